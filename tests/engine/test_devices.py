"""A network spread over two devices, or partly on disk, reads, thinks and scores as one on a single device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from devices import FIRST, LAST, Devices, put, spread
from families import write_model

from deepthink_cli import load_model, think, tokenize_demonstrations
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.choice import Engine, engine_of
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.passes import score_rows
from deepthink_cli.engine.probe import Verdict
from deepthink_cli.model.tokens import TokenizedQuery

QUERIES = [TokenizedQuery((5, 6, 7, 8), ((9,), (10, 11), (10, 12, 13))), TokenizedQuery((5, 6), ((9, 4, 3), (10, 11)))]


def scores(model: LanguageModel, given: DemonstrationSet, packed: bool) -> torch.Tensor:
    """The scores of the queries, packed or padded, after three readings."""
    *_, memory = think(model, tokenize_demonstrations(model.tokenizer, given), 3)
    rows = Engine(Verdict(None if packed else "asked for"), 512, 2**30).rows(QUERIES)
    found = next(score_rows(model, [(memory,)], rows, packed))
    return torch.tensor([found[one] for one in sorted(found)])


def on_two(tied: bool) -> Callable[[str], torch.device]:
    """The second layer, the last norm and an untied head are on the second device."""
    last = ["layers.1", "h.1", "model.norm", "ln_f", "final_layer_norm", *([] if tied else ["lm_head"])]
    return lambda name: LAST if any(f".{part}." in f".{name}." for part in last) else FIRST


@pytest.fixture(params=[("llama", False), ("llama", True), ("gpt2", True), ("gemma2", True), ("opt", False)], ids=str)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family, tied = request.param
    return write_model(tmp_path / "model", family, tie_word_embeddings=tied)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("own_head", [True, False])
def test_a_network_on_two_devices_scores_as_on_one(
    packed: bool, own_head: bool, folder: Path, reviews: DemonstrationSet
) -> None:
    expected = scores(load_model(str(folder)), reviews, packed)
    model = load_model(str(folder))
    spread(model.network, on_two(model.network.config.tie_word_embeddings))
    with Devices():
        assert (model.device, model.layer_devices, engine_of(model).packed) == (FIRST, (FIRST, LAST), True)
        assert model._head is not None
        if not own_head:
            vars(model)["_head"] = None
        assert (scores(model, reviews, packed) - expected).abs().max() < 1e-4


@pytest.mark.parametrize(("first", "last"), [("cpu:0", "cpu:1"), ("cpu", "disk")])
def test_what_accelerate_places_scores_as_on_one_device(
    first: str, last: str, tmp_path: Path, reviews: DemonstrationSet
) -> None:
    dispatch = pytest.importorskip("accelerate").dispatch_model
    folder = str(write_model(tmp_path / "model", "llama", tie_word_embeddings=False))
    expected = scores(load_model(folder), reviews, True)
    model = load_model(folder)
    places = {"model.embed_tokens": first, "model.layers.0": first, "model.layers.1": last, "lm_head": last}
    places |= dict.fromkeys(["model.norm", "model.rotary_emb"], "cpu" if last == "disk" else last)
    with nullcontext() if last == "disk" else Devices():
        dispatch(model.network, places, main_device=first, offload_dir=tmp_path / "offloaded", force_hooks=True)
        assert (model._head is None) is (last == "disk")
        for packed in (True, False):
            assert (scores(model, reviews, packed) - expected).abs().max() < 1e-4


def test_the_made_up_devices_refuse_what_mixes_them() -> None:
    one, two = put(torch.ones(3), FIRST), put(torch.ones(3), LAST)
    with Devices():
        assert (one + one).device == (one + 1).sum().device == two.to(FIRST).device == FIRST
        assert two[torch.tensor([0])].device == two.device == LAST
        for mixed in (
            lambda: one + two,
            lambda: torch.cat([one, two]),
            lambda: one[two.long()],
            lambda: one @ torch.ones(3),
        ):
            with pytest.raises(RuntimeError, match="tensors on cpu"):
                mixed()
