"""Check that a query after a memory gets the scores of the whole prompt in one pass (T = 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from deepthink_cli.engine.logits import MASKED
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.errors import DeepThinkError, InputError, ran_out_of_memory

_ASKED = 64  # tokens of the vocabulary whose log-probabilities are compared


def check_plain_pass(model: LanguageModel, text_ids: Sequence[int], query_ids: Sequence[int]) -> None:
    """Raise InputError, naming the architecture, unless a query after a memory scores as in one pass over both.

    The text is read, then the query runs with the memory as its past. The next-token log-probabilities after every
    token of the query are compared with those of a pass without cache and without explicit positions. They may differ
    by twice as much as when the results of every layer are disturbed by one rounding.
    """
    name, way_out = model.identity.architecture, "choose a model of another architecture"
    asked = _Asked(model, len(query_ids))
    expected_SN, rounded_SN = _plain(model, asked, [*text_ids, *query_ids])
    try:
        actual_SN = _after_memory(model, asked, text_ids, query_ids)
    except Exception as error:  # an unsupported past can fail in any way
        if isinstance(error, DeepThinkError) or ran_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InputError(f"{name} cannot continue from a memory ({reason}); {way_out}") from error
    # In 8 bits, a token's rounding depends on the other tokens of the pass.
    least = 0.1 if model.identity.quantize else 1e-3
    if _relative_difference(actual_SN, expected_SN) > max(
        least, 2 * _relative_difference(rounded_SN, expected_SN)
    ):  # scoring reports NaN
        raise InputError(
            f"{name} scores a query after a memory differently than after the same text, by up to "
            f"{float((actual_SN - expected_SN).abs().max()):.2g} nats: T = 1 would not be in-context learning; "
            f"{way_out}"
        )


class _Asked:
    """Computes the log-probabilities to compare: of N tokens after each of the last S tokens of a row."""

    def __init__(self, model: LanguageModel, length: int) -> None:
        known = model.known_tokens
        self.model, self.length = model, length
        self.tokens_N = torch.arange(0, known, max(1, known // _ASKED), device=model.device)

    def of(self, inputs: dict[str, Any], start: int) -> Tensor:
        """Log-probabilities (S, N) after tokens `start` onward of the first row of a pass."""
        places_S = torch.arange(self.length, device=self.model.device)
        repeated = places_S.repeat_interleave(len(self.tokens_N)), self.tokens_N.repeat(self.length)
        return self.model.log_probabilities(inputs, places_S + start, *repeated).view(self.length, -1).cpu()


@torch.inference_mode()
def _plain(model: LanguageModel, asked: _Asked, ids: list[int]) -> tuple[Tensor, Tensor]:
    """Log-probabilities (S, N) from one pass over all ids, and the same with different rounding."""
    # A second row of other tokens changes the first one only by rounding.
    pair_2S, start = torch.tensor([ids, ids[::-1]], device=model.device), len(ids) - asked.length
    expected_SN = asked.of({"input_ids": pair_2S[:1], "use_cache": False}, start)
    with off_by_one_rounding(model):
        return expected_SN, asked.of({"input_ids": pair_2S, "use_cache": False}, start)


@torch.inference_mode()
def _after_memory(model: LanguageModel, asked: _Asked, text_ids: Sequence[int], query_ids: Sequence[int]) -> Tensor:
    """Log-probabilities (S, N) from a pass over the query, with the memory of the text as its past."""
    query_2S = torch.tensor([query_ids, query_ids[::-1]], device=model.device)
    return asked.of(model.inputs(query_2S, model.read(text_ids).as_cache(model.dtype, rows=2), len(text_ids)), 0)


@contextmanager
def off_by_one_rounding(model: LanguageModel) -> Iterator[None]:
    """Inside the block the output of every innermost module differs by about one rounding."""
    leaves = (module for module in model.network.modules() if not any(module.children()))
    with ExitStack() as hooks:
        for number, leaf in enumerate(leaves, start=1):
            hooks.callback(leaf.register_forward_hook(partial(_disturbed, number)).remove)
        yield


def _disturbed(number: int, _: torch.nn.Module, __: Any, out: Any) -> Any:
    if not isinstance(out, Tensor) or not out.is_floating_point() or not out.dim():
        return out
    noise = torch.cos(torch.arange(out.shape[-1], device=out.device) * number)
    return out * (1 + torch.finfo(out.dtype).eps * noise).to(out.dtype)


def _relative_difference(actual_SN: Tensor, expected_SN: Tensor) -> float:
    """Norm of the difference relative to the spread of the log-probabilities; the median over the query's tokens."""
    # A masked vocabulary row (-1e9, -inf) would outweigh every other one.
    floor_S1 = expected_SN.amax(-1, keepdim=True) - MASKED
    actual_SN, expected_SN = actual_SN.maximum(floor_S1), expected_SN.maximum(floor_S1)
    spread_S = torch.linalg.vector_norm(expected_SN - expected_SN.mean(-1, keepdim=True), dim=-1)
    return float((torch.linalg.vector_norm(actual_SN - expected_SN, dim=-1) / spread_S.clamp(min=1e-6)).median())
