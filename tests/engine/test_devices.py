"""A network spread over two devices, or partly on disk, reads, thinks and scores as one on a single device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from conftest import readings_of
from helpers.devices import FIRST, LAST, Devices, spread
from helpers.families import write_model

from deepthink_cli import Decoding, Engine, Method, load_model, score
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.opening import choose_engine, load_language_model
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.chat.dialogue import Dialogue

QUERIES = [TokenizedQuery((5, 6, 7, 8), ((9,), (10, 11), (10, 12, 13))), TokenizedQuery((5, 6), ((9, 4, 3), (10, 11)))]


def scores(engine: BatchedEngine, given: DemonstrationSet) -> torch.Tensor:
    """The scores of the queries after three readings."""
    *_, memory = readings_of(engine, given, Method(3))
    return torch.tensor([value for scored in score(engine, memory, QUERIES) for value in scored.sums])


def on_two(tied: bool) -> Callable[[str], torch.device]:
    """The second layer, the last norm and an untied head are on the second device."""
    last = ["layers.1", "h.1", "model.norm", "ln_f", "final_layer_norm", *([] if tied else ["lm_head"])]
    return lambda name: LAST if any(f".{part}." in f".{name}." for part in last) else FIRST


PLACED = [
    *[("llama", False), ("gpt2", True)],
    *[pytest.param(each, marks=pytest.mark.soak) for each in (("llama", True), ("gemma2", True), ("opt", False))],
]


@pytest.fixture(params=PLACED, ids=str)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family, tied = request.param
    return write_model(tmp_path / "model", family, tie_word_embeddings=tied)


@pytest.mark.parametrize(
    ("engine", "own_head"), [("packed", True), pytest.param("packed", False, marks=pytest.mark.soak), ("padded", True)]
)
def test_a_network_on_two_devices_scores_as_on_one(
    engine: str, own_head: bool, folder: Path, reviews: DemonstrationSet
) -> None:
    expected = scores(load_model(str(folder), engine=engine), reviews)
    model = load_language_model(open_model(ModelOptions(model=str(folder))))
    spread(model.network, on_two(model.network.config.tie_word_embeddings))
    with Devices():
        assert isinstance(choose_engine(model), PackedEngine)
        assert (model.device, model.layer_devices) == (FIRST, (FIRST, LAST))
        assert model.head is not None
        if not own_head:
            vars(model)["head"] = None
        assert (scores(choose_engine(model, engine), reviews) - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    "folder", [PLACED[0], pytest.param(PLACED[1], marks=pytest.mark.soak), *PLACED[2:]], indirect=True, ids=str
)
def test_a_dialogue_after_a_memory_of_a_file_continues_on_the_networks_devices(
    folder: Path, reviews: DemonstrationSet
) -> None:
    def talk(engine: Engine) -> list[str]:
        dialogue = Dialogue(engine, memory, Decoding(max_new_tokens=3))
        return ["".join(dialogue.ask(text)) for text in ("so so", "again")]

    alone = load_model(str(folder))
    memory = next(readings_of(alone, reviews))
    expected = talk(alone)
    model = load_language_model(open_model(ModelOptions(model=str(folder))))
    spread(model.network, on_two(model.network.config.tie_word_embeddings))
    with Devices():
        assert talk(choose_engine(model)) == expected


@pytest.mark.parametrize(("first", "last"), [("cpu:0", "cpu:1"), ("cpu", "disk")])
def test_what_accelerate_places_scores_as_on_one_device(
    first: str, last: str, tmp_path: Path, reviews: DemonstrationSet
) -> None:
    dispatch = pytest.importorskip("accelerate").dispatch_model
    folder = str(write_model(tmp_path / "model", "llama", tie_word_embeddings=False))
    expected = scores(load_model(folder), reviews)
    model = load_language_model(open_model(ModelOptions(model=folder)))
    places = {"model.embed_tokens": first, "model.layers.0": first, "model.layers.1": last, "lm_head": last}
    places |= dict.fromkeys(["model.norm", "model.rotary_emb"], "cpu" if last == "disk" else last)
    with nullcontext() if last == "disk" else Devices():
        dispatch(model.network, places, main_device=first, offload_dir=tmp_path / "offloaded", force_hooks=True)
        assert (model.head is None) is (last == "disk")
        for name in ("packed", "padded"):
            assert (scores(choose_engine(model, name), reviews) - expected).abs().max() < 1e-4
