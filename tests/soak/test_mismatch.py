"""A memory used where it does not belong: what differs is named, and nothing is scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, Soak, write_rows
from helpers.families import FAMILIES, write_model
from helpers.said import Captured, refused
from helpers.soak import with_soak
from helpers.tiny import tiny_task

from deepthink_cli import Method, load_model, save_memory, think, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.opening import choose_engine
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.provenance import ModelIdentity

PAIRS = list(permutations(FAMILIES, 2))


@pytest.fixture(scope="module")
def memories(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A memory of every family's model, each made once."""
    root = tmp_path_factory.mktemp("memories")
    demos = write_rows(root / "demos.jsonl", [{"text": "fine", "label": "yes"}, {"text": "poor", "label": "no"}])

    def made(family: str) -> Path:
        path = root / f"{family}.safetensors"
        if not path.exists():
            assert run(["think", str(demos), "-m", str(models(family)), "-T", "2", "-q", "-o", str(path)]) == 0
        return path

    return made


@pytest.fixture
def inputs(tmp_path: Path) -> str:
    return str(write_rows(tmp_path / "in.jsonl", [{"text": "so so"}]))


def test_a_memory_of_another_family_is_refused(
    memories: Callable[[str], Path], models: Models, inputs: str, soak: Soak, capsys: Captured
) -> None:
    for one, two in soak.draw("pairs").sample(PAIRS, soak.count(5, len(PAIRS))):
        error = refused(capsys, "predict", str(memories(one)), inputs, "-m", str(models(two)))
        assert "made by another model: " in error
        if one.removesuffix("-alibi") != two.removesuffix("-alibi"):
            named = error.split("made by another model: ")[1].split(" differ")[0].split(" and ")
            assert {"architecture", "configuration"} <= set(named), (one, two)
        assert f"it was made by {models(one)}, this is {models(two)}: use the model that made it" in error


CONFIGURATION: dict[str, Any] = {
    "llama": {"rms_norm_eps": 0.1},
    "gpt2": {"layer_norm_epsilon": 0.1},
    "gpt_neox": {"rotary_pct": 0.5},
    "opt": {"activation_function": "gelu"},
    "bloom": {"layer_norm_epsilon": 0.1},
    "gpt_neo": {"layer_norm_epsilon": 0.1},
}


@pytest.mark.parametrize("family", with_soak(CONFIGURATION, ("llama", "gpt2")))
def test_a_model_that_differs_in_one_thing_is_refused_by_its_name(
    family: str, memories: Callable[[str], Path], models: Models, inputs: str, tmp_path: Path, capsys: Captured
) -> None:
    memory, own = str(memories(family)), models(family)
    others = {
        "weights": write_model(tmp_path / "weights", family, seed=1),
        "configuration": write_model(tmp_path / "configuration", family, **CONFIGURATION[family]),
        "tokenizer": Path(shutil.copytree(own, tmp_path / "tokenizer")),
    }
    rules = json.loads((others["tokenizer"] / "tokenizer.json").read_text())
    rules["model"]["merges"].pop()
    (others["tokenizer"] / "tokenizer.json").write_text(json.dumps(rules))
    for part, folder in others.items():
        assert f"another model: {part} differ; " in refused(capsys, "predict", memory, inputs, "-m", folder)
    assert run(["predict", memory, inputs, "-m", str(shutil.copytree(own, tmp_path / "copy")), "-q"]) == 0


IDENTITY = ModelIdentity("org/name", "1" * 40, "LlamaForCausalLM", "c", "w", "t", "float32")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"revision": "2" * 40}, ["revision"]),
        ({"quantize": "8bit"}, ["quantization"]),
        ({"architecture": "GPT2LMHeadModel", "weights_sha256": "x"}, ["architecture", "weights"]),
        ({"tokenizer_sha256": "x"}, ["tokenizer"]),
        ({"dtype": "bfloat16"}, []),
        ({"revision": None}, []),
        ({"id": "/a/copy", "revision": None}, []),
        ({"id": "org/fork", "revision": "2" * 40}, []),
    ],
)
def test_what_makes_a_model_another_one(changes: dict[str, Any], named: list[str]) -> None:
    assert IDENTITY.differences(replace(IDENTITY, **changes)) == named


@pytest.mark.parametrize(("part", "value"), [("revision", "b" * 40), ("quantize", "4bit")])
def test_another_revision_or_quantization_is_refused(
    part: str,
    value: str,
    models: Models,
    inputs: str,
    tmp_path: Path,
    reviews: DemonstrationSet,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    engine = load_model(str(models("llama")))
    made = choose_engine(replace(engine.model, identity=replace(engine.identity, revision="a" * 40)))
    memories = list(think(made, tokenize_demonstrations(engine.tokenizer, reviews), Method(1)))
    save_memory(memories, tmp_path / "mem.safetensors")
    identity = replace(made.identity, **{part: value})
    monkeypatch.setattr(ModelSpec, "identify", lambda _: identity)
    rows = str(write_rows(tmp_path / "rows.jsonl", [{"review": "fine"}]))
    error = refused(capsys, "predict", tmp_path / "mem.safetensors", rows)
    assert f"another model: {'revision' if part == 'revision' else 'quantization'} differ; " in error
    assert "revision " + "a" * 40 in error
    assert value in error


def test_inputs_of_another_template_or_other_labels_are_refused(
    memories: Callable[[str], Path], models: Models, tmp_path: Path, capsys: Captured
) -> None:
    memory = str(memories("llama"))
    rows = str(write_rows(tmp_path / "rows.jsonl", [{"review": "fine", "label": "yes"}]))
    assert "rows.jsonl:1: field 'text' is missing" in refused(capsys, "predict", memory, rows)
    rows = str(write_rows(tmp_path / "rows.jsonl", [{"text": "fine", "label": "good"}]))
    assert "rows.jsonl:1: label 'good' is not one of yes, no" in refused(capsys, "eval", memory, rows)
    task, data = tiny_task(tmp_path)
    error = refused(capsys, "eval", memory, "--task", task, "--data-dir", data)
    assert "made for the labels yes, no; task tiny has negative, positive" in error


def test_a_memory_with_another_wording_than_the_tasks_is_told(models: Models, tmp_path: Path, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path)
    rows: list[dict[str, object]] = [{"text": "fine", "kind": "positive"}, {"text": "poor", "kind": "negative"}]
    demos = str(write_rows(tmp_path / "demos.jsonl", rows))
    memory, model = str(tmp_path / "mem.safetensors"), str(models("llama"))
    for template, told in (("Review: {text}\nSentiment: {kind}", False), ("{text} = {kind}", True)):
        assert run(["think", demos, "-m", model, "--template", template, "-T", "1", "-o", memory, "-q"]) == 0
        run(["eval", memory, "--task", str(task), "--data-dir", str(data), "-q"])
        err = capsys.readouterr().err
        assert ("is not that of task tiny, 'Review: {text}\\nSentiment: {kind}'" in err) is told


@pytest.mark.parametrize(("made", "used"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "float32")])
def test_other_numbers_than_the_memorys_are_a_warning(
    made: str, used: str, models: Models, inputs: str, tmp_path: Path, capsys: Captured
) -> None:
    demos = write_rows(tmp_path / "demos.jsonl", [{"text": "fine", "label": "yes"}, {"text": "poor", "label": "no"}])
    memory, model = str(tmp_path / "mem.safetensors"), str(models("llama"))
    assert run(["think", str(demos), "-m", model, "--dtype", made, "-T", "1", "-o", memory, "-q"]) == 0
    capsys.readouterr()
    assert run(["predict", memory, inputs, "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["predict", memory, inputs, "-q", "--dtype", used]) == 0
    warning = f"warning: {memory} was made in {made} and is used in {used}: scores differ from those in {made}\n"
    assert capsys.readouterr().err == warning
