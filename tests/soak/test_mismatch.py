"""A memory used where it does not belong: what differs is named, and nothing is scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.families import write_model
from helpers.said import Captured, refused
from helpers.tiny import tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.provenance import ModelIdentity


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


CONFIGURATION: dict[str, Any] = {"llama": {"rms_norm_eps": 0.1}, "gpt2": {"layer_norm_epsilon": 0.1}}


@pytest.mark.parametrize("family", CONFIGURATION)
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
