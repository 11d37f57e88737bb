"""Rows that change between the check and the scoring are an error, and nothing wrong can be continued."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Models
from helpers.said import Captured
from helpers.tiny import tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.generation import generate
from deepthink_cli.prediction import scorer
from deepthink_cli.prediction.files import partial_of
from deepthink_cli.scoring.pipeline import CHUNK

WHILE_LOADING = {"predict": scorer, "eval": scorer, "generate": generate}
LINES = [json.dumps({"review": f"film {n}", "sentiment": "positive"}) + "\n" for n in range(CHUNK + 20)]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of four reviews."""
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "1")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Rows of a chunk and a part of one."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(LINES))
    return path


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path, str], None]:
    """Gives a file other contents while a command loads the model, after the rows were checked."""

    def change(command: str, path: Path, contents: str) -> None:
        module = WHILE_LOADING[command]
        load = module.load_both

        def loading(*arguments: object) -> object:
            path.write_text(contents)
            return load(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(module, "load_both", loading)

    return change


CHANGES = {
    "fewer rows": "".join(LINES[:5]),
    "more rows": "".join([*LINES, LINES[0]]),
    "other rows": "".join([*LINES[:-3], *LINES[:3]]),
    "no row": "",
    "half a row": "".join(LINES)[:-10],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("more", [[], ["--on-error", "skip"]])
def test_labels_of_rows_that_change_are_not_written(
    change: str, more: list[str], memory: Path, inputs: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    output = inputs.parent / "out.jsonl"
    changing("predict", inputs, CHANGES[change])
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(output), *more]) == 1
    assert f"deepthink: {inputs}: has changed since its rows were checked" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("words", [["eval", "--limit", "8"], ["generate", "--max-new-tokens", "1"]])
def test_so_are_answers_and_the_rows_of_an_evaluation(
    words: list[str], memory: Path, inputs: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    command, *options = words
    output = inputs.parent / "out.jsonl"
    changing(command, inputs, CHANGES["other rows"])
    assert run([command, str(memory), str(inputs), "-q", "-o", str(output), *options]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1].partition(";")[0]) == (
        "",
        f"deepthink: {inputs}: has changed since its rows were checked",
    )
    assert not output.exists()


def test_the_rows_of_a_task_are_those_that_were_checked(
    models: Models, tmp_path: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    task, data = tiny_task(tmp_path)
    fixed = ["--task", str(task), "--data-dir", str(data), "--protocol", "paper", "-q"]
    memory, rows = tmp_path / "mem.safetensors", data / "tiny" / "test.jsonl"
    assert run(["think", *fixed, "-m", str(models("llama")), "-T", "1", "-o", str(memory)]) == 0
    changing("eval", rows, "".join(rows.read_text().splitlines(keepends=True)[:3]))
    assert run(["eval", str(memory), *fixed]) == 1
    assert "task tiny: its test rows have changed since they were checked" in capsys.readouterr().err


def test_a_labelling_is_continued_with_the_rows_that_it_was_begun_with(
    memory: Path, inputs: Path, changing: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    whole, output = inputs.parent / "whole.jsonl", inputs.parent / "out.jsonl"
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(whole)]) == 0
    words = ["predict", str(memory), str(inputs), "-q", "-o", str(output), "--resume"]
    others = "".join([*LINES[:CHUNK], *LINES[:20]])
    with monkeypatch.context():
        changing("predict", inputs, others)
        assert run(words) == 1
        monkeypatch.undo()
    kept = partial_of(output).read_bytes().splitlines(keepends=True)[1:]
    assert kept == whole.read_bytes().splitlines(keepends=True)[:CHUNK]
    assert run(words) == 2
    assert "was begun with another content of the inputs" in capsys.readouterr().err
    inputs.write_text("".join(LINES))
    assert run(words) == 0
    assert output.read_bytes() == whole.read_bytes()
    assert not partial_of(output).exists()
