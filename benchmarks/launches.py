"""How many operations a scoring pass starts in a layer, whatever the lengths of its rows: counted, not timed.

    python benchmarks/launches.py

Every operation that torch dispatches in the second layer counts, views included. Beside it stands transformers' own
forward pass over one batch. Torch's device `meta` stands for a GPU in bfloat16: its tensors have shapes and no data, so
that a pass which waited for a value of one would fail. Also counts the copies to it, whole pass included, and what is
started beside the recording of a pass that a GPU repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig

from deepthink_cli.engine import kernels, replay
from deepthink_cli.engine.fixed import FixedPass
from deepthink_cli.engine.logits import Head
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedLayout
from deepthink_cli.engine.packing import PackedRow, tree
from deepthink_cli.engine.replay import Replays
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import ModelIdentity
from record import Table, parser
from shapes import random_network, stand_in_tokenizer

COLUMNS = ("tokens of the rows", "candidates", "device", "operations in a layer", "copies to the device")
NOTE = (
    "Operations that a scoring pass starts in one layer of a Llama, views included, for 64 queries after a memory with "
    "three candidates each. Those of a GPU are counted with tensors without data; nothing is timed."
)
CONFIG = AutoConfig.for_model(
    "llama",
    vocab_size=500,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
    max_position_embeddings=4096,
)
L = 128  # tokens of the memory
DEVICES = {"cpu": torch.float32, "meta": torch.bfloat16}
LENGTHS = {"64 of 26": [26] * 64, "64 of 16 to 48": [16 + n % 33 for n in range(64)], "64 of 1 to 64": [*range(1, 65)]}
CANDIDATES = {"one token": ((5,), (6,), (7,)), "two tokens": ((5, 6), (7, 8), (9, 5))}


class Counting(TorchDispatchMode):
    """Counts operations: all that were started, those in the second layer, and copies from the processor elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.in_layer, self.copies = 0, 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.started += 1
        if isinstance(found, torch.Tensor) and found.device.type != "cpu":
            self.copies += any(isinstance(each, torch.Tensor) and each.device.type == "cpu" for each in args)
        return found

    def watch(self, layer: torch.nn.Module) -> None:
        """Count the operations of a layer in `in_layer`."""
        layer.register_forward_pre_hook(lambda *_: setattr(self, "in_layer", self.started))
        layer.register_forward_hook(lambda *_: setattr(self, "in_layer", self.started - self.in_layer))


def llama(device: str) -> LanguageModel:
    """The Llama on a device, with the head that its logits would be checked for."""
    network = random_network(CONFIG, DEVICES[device], device)
    identity = ModelIdentity("llama", None, type(network).__name__, "", "", "", str(DEVICES[device]))
    model = LanguageModel(network, stand_in_tokenizer(), identity, limits_of(CONFIG))
    vars(model)["_head"] = Head(network.get_output_embeddings(), CONFIG)
    return model


@torch.inference_mode()
def scoring(device: str, lengths: Sequence[int], candidates: Sequence[tuple[int, ...]]) -> Counting:
    """Counts of a pass over queries of these lengths, each with these candidates."""
    rows, model, counting = rows_of(lengths, candidates), llama(device), Counting()
    counting.watch(model.network.base_model.layers[1])
    with patch.object(kernels, "has_varlen", lambda device: device.type == "meta"), counting:
        layout = PackedLayout(model, rows, any_length=True)
        requested = layout.requested
        with layout.after((memory_on(device),), requested.places_M) as inputs:
            model.log_probabilities(inputs, requested.places_M, requested.asked_N, requested.tokens_N)
    return counting


@torch.inference_mode()
def repeated(lengths: Sequence[int], candidates: Sequence[tuple[int, ...]]) -> Counting:
    """Counts of what a GPU is told beside the recording when a recorded pass is repeated with other numbers."""
    replays, past, counting = Replays(llama("meta")), (memory_on("meta"),), Counting()
    fixed = FixedPass.of(rows_of(lengths, candidates))
    with (
        patch.object(kernels, "has_varlen", lambda device: device.type == "meta"),
        patch.object(replay, "record", lambda run: (lambda: None, run())),
        patch.object(torch, "allclose", lambda *_, **__: True),  # there are no values to compare
    ):
        for _ in range(2):
            replays.log_probabilities(past, fixed)
        with counting:
            found_N = replays.log_probabilities(past, fixed)
    assert found_N is not None
    return counting


def rows_of(lengths: Sequence[int], candidates: Sequence[tuple[int, ...]]) -> list[PackedRow]:
    """Queries of these lengths, each with these candidates, longest first."""
    ids = range(10, 10 + max(lengths))
    return [tree(n, TokenizedQuery(tuple(ids[:n]), tuple(candidates))) for n in sorted(lengths, reverse=True)]


def memory_on(device: str) -> Memory:
    """A memory of L tokens of noise."""
    shape = CONFIG.num_key_value_heads, L, CONFIG.hidden_size // CONFIG.num_attention_heads
    drawn = [torch.randn(shape, dtype=DEVICES[device], device=device) for _ in range(CONFIG.num_hidden_layers)]
    return Memory(tuple(drawn), tuple(drawn))


@torch.inference_mode()
def plain() -> Counting:
    """Counts of transformers' own forward pass over a batch, on the processor: elsewhere it waits for values."""
    model, counting = llama("cpu"), Counting()
    counting.watch(model.network.base_model.layers[1])
    with counting:
        model.network.base_model(input_ids=torch.ones(64, 26, dtype=torch.long), use_cache=False)
    return counting


def main() -> None:
    """Count and show."""
    table = Table(parser(__doc__).parse_args(), "Operations a layer", COLUMNS, note=NOTE)
    for device, where in (("cpu", "processor, float32"), ("meta", "GPU, bfloat16")):
        for name, lengths in LENGTHS.items():
            for tokens, candidates in CANDIDATES.items():
                counts = scoring(device, lengths, candidates)
                table.add(name, tokens, where, counts.in_layer, counts.copies)
    for name, lengths in LENGTHS.items():
        for tokens, candidates in CANDIDATES.items():
            counts = repeated(lengths, candidates)
            table.add(name, tokens, "GPU, a recorded pass (all layers)", counts.started, counts.copies)
    table.add("64 of 26", "transformers' own pass", "processor, float32", plain().in_layer, 0)


if __name__ == "__main__":
    main()
