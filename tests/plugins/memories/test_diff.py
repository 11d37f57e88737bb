"""What differs between two memories: provenance, keys and values, and the labels of rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, readings_of, write_reviews, write_rows
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured
from helpers.tiny import BAD, GOOD

from deepthink_cli import DemonstrationSet, Example, Gate, Memory, Method, save_memory, think, tokenize_demonstrations
from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.plugins.memories.diff import ComparedLabels, LabelledRow, diff, tensor_changes
from deepthink_cli.plugins.memories.diff_command import is_labelled
from deepthink_cli.plugins.memories.quantize import save_quantized
from deepthink_cli.tasks.rows import rows_of_file


def memory(*layers: list[list[float]]) -> Memory:
    """A memory of one head whose keys are these numbers (L, size), its values all one."""
    keys = tuple(torch.tensor([layer]) for layer in layers)
    return Memory(keys, tuple(torch.ones_like(each) for each in keys))


@pytest.fixture
def path(llama: Engine, reviews: DemonstrationSet, tmp_path: Path) -> Path:
    readings = think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(3, Gate(0.5)))
    save_memory(list(readings), tmp_path / "mem.safetensors")
    return tmp_path / "mem.safetensors"


def test_changes_are_relative_by_layer() -> None:
    before = memory([[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    after = memory([[3, 0], [0, 7]], [[1, 0], [0, 0]], [[2, 0], [0, 0]])
    changes = tensor_changes(before, after)
    assert changes.whole.keys == pytest.approx(math.sqrt(13 / 26))
    assert [layer.keys for layer in changes.layers] == [pytest.approx(0.6), 0.0, math.inf]
    assert {layer.values for layer in changes.layers} == {0.0}


@pytest.mark.parametrize("other", [memory([[1.0], [2.0]]), memory([[1.0]], [[1.0]])])
def test_memories_of_other_shapes_are_not_compared(other: Memory) -> None:
    assert tensor_changes(memory([[1.0]]), other) is None


def test_two_iterations_of_a_file_differ_in_their_number_and_by_what_thinking_changed(path: Path) -> None:
    result = diff(open_memory(path, 1), open_memory(path, 2))
    drift = open_memory(path, 2).memories()[0].drift[0]
    assert result.provenance == {"iteration": ("1 of 1, 2, 3", "2 of 1, 2, 3")}
    assert [change.keys for change in result.tensors.layers] == pytest.approx(drift.keys)
    assert [change.values for change in result.tensors.layers] == pytest.approx(drift.values)


def test_a_quantized_memory_is_compared_with_its_source(path: Path, tmp_path: Path) -> None:
    small = save_quantized(open_memory(path).source.header, 8, tmp_path / "small.safetensors")  # type: ignore[union-attr]
    result = diff(path, small.path)
    assert list(result.provenance) == ["quantized"]
    assert 0 < result.tensors.whole.keys < 0.01


def test_labels_of_memories_of_two_models_are_not_compared(
    path: Path, models: Models, reviews: DemonstrationSet, loaded: Callable[[str], Engine], demos: Path, tmp_path: Path
) -> None:
    other = loaded("gpt2")
    save_memory(next(readings_of(other, reviews)), tmp_path / "other.safetensors")
    result = diff(path, tmp_path / "other.safetensors", partial(rows_of_file, path=demos))
    assert result.labels is None
    assert result.not_labelled.startswith("A and B were made by different models: architecture and ")
    assert "model" in result.provenance


def test_other_demonstrations_differ(llama: Engine, path: Path, tmp_path: Path) -> None:
    given = DemonstrationSet.of([Example("a new one", "positive")], "Review: {review}\nSentiment: {sentiment}")
    save_memory(next(readings_of(llama, given)), tmp_path / "new.safetensors")
    ours, theirs = diff(path, tmp_path / "new.safetensors").provenance["demonstrations"]
    assert (ours[:2], theirs[:2]) == ("4,", "1,")


def test_rows_are_labelled_if_the_first_one_has_the_label_field(path: Path, demos: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.jsonl").write_text('{"review": "fine"}\n')
    (tmp_path / "lines.txt").write_text("fine\n")
    opened = open_memory(path)
    assert is_labelled(opened, RowSource.of(demos))
    assert not is_labelled(opened, RowSource.of(tmp_path / "plain.jsonl"))
    assert not is_labelled(opened, RowSource.of(tmp_path / "lines.txt"))


def test_changed_rows_are_counted_by_what_they_were_and_became() -> None:
    labels = [("yes", "yes", "yes"), ("no", "yes", "no"), ("yes", "yes", "no"), ("no", "no", "yes")]
    rows = [LabelledRow(n, Query("text", ("yes", "no"), gold), a, b) for n, (gold, a, b) in enumerate(labels)]
    compared = ComparedLabels(tuple(rows), "rows.jsonl", None, {})
    assert compared.transitions == {("yes", "no"): 2, ("no", "yes"): 1}
    assert [row.index for row in compared.changed] == [1, 2, 3]
    assert compared.accuracies == (0.75, 0.5)
    assert (compared.changes.fixed, compared.changes.broken) == (1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("memories")
    demos = str(write_reviews(root / "demos.jsonl"))
    common = ["-m", "pocket", "--eta", "0.3", "-q"]
    assert run(["think", demos, *common, "-T", "3", "--keep", "all", "-o", str(root / "mem.safetensors")]) == 0
    assert run(["think", demos, *common, "-T", "2", "--labels", "positive,negative,mixed", "-o", str(root / "b")]) == 0
    return root


def told(capsys: Captured, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run([*map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_one_file_is_compared_from_its_first_to_its_last_iteration(folder: Path, capsys: Captured) -> None:
    out, err = told(capsys, "diff", folder / "mem.safetensors")
    assert err == ""
    assert f"A  {folder}/mem.safetensors, iteration 1\nB  {folder}/mem.safetensors, iteration 3" in out
    assert "Relative change from A to B: keys " in out
    assert re.search(r"^\d +\d+\.\d{3}% ", out, re.MULTILINE)


def test_iterations_are_named_for_one_or_both(folder: Path, capsys: Captured) -> None:
    memory = folder / "mem.safetensors"
    assert "Keys and values: the same" in told(capsys, "diff", memory, memory, "--at", "2")[0]
    out, _ = told(capsys, "diff", memory, memory, "--at", "1, last")
    assert "iteration  A  1 of 1, 2, 3\n           B  3 of 1, 2, 3" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mem.safetensors", "--at", "first"], "--at first: name one iteration for both, or two as in 1,5"),
        (["mem.safetensors", "--at", "1,7"], "--at 7: mem.safetensors keeps 1, 2, 3"),
        (["b"], "b: keeps one iteration, 2; name a second memory, or keep all with deepthink think --keep all"),
        (["mem.safetensors", "b", "-"], "ROWS -: both memories read the rows; give a file"),
        (["mem.safetensors", "--limit", "5"], "--limit 5: no rows are labelled; give ROWS or --task, or omit it"),
        (["mem.safetensors", "--task", "trec"], "mem.safetensors: made for the labels positive, negative; task trec"),
    ],
)
def test_wrong_input_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    out, err = told(capsys, "diff", *arguments, code=2)
    assert out == ""
    assert err.startswith(f"deepthink: {message}")
    assert err.count("\n") == 1


def test_labels_that_cannot_be_compared_are_named_after_the_report(folder: Path, capsys: Captured) -> None:
    out, err = told(capsys, "diff", folder / "mem.safetensors", folder / "b", folder / "demos.jsonl", code=2)
    assert "labels" in out
    assert err == (
        "deepthink: labels: A has the labels negative, positive, B mixed, negative, positive; compare memories of one "
        "model and the same labels\n"
    )


def test_rows_are_labelled_with_both_and_what_changed_is_shown(folder: Path, capsys: Captured) -> None:
    memory, rows = folder / "mem.safetensors", folder / "demos.jsonl"
    out, _ = told(capsys, "diff", memory, memory, rows, "--at", "1,3")
    assert f"Labels of 4 rows ({rows}): " in out
    assert "chance (p = " in out
    unlabelled = write_rows(folder / "inputs.jsonl", [{"review": "fine"}, {"review": "dull"}])
    out, _ = told(capsys, "diff", memory, memory, unlabelled, "--at", "1,3")
    assert "Labels of 2 rows" in out
    assert "chance" not in out


@pytest.fixture
def corrected(folder: Path, tmp_path: Path) -> Path:
    """The memory with a correction of another score, of queries that are written twice."""
    path = tmp_path / "mean.safetensors"
    assert run(["calibrate", str(folder / "mem.safetensors"), "--score", "mean", "--reread", "2", "-o", str(path)]) == 0
    return path


def test_labels_are_those_of_the_score_that_a_stored_correction_is_of(
    folder: Path, corrected: Path, tmp_path: Path, capsys: Captured
) -> None:
    pairs = [f"{first} but {second}" for first in GOOD for second in BAD]
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": text} for text in pairs])
    plain, again = folder / "mem.safetensors", ["--score", "mean", "--reread", "2"]
    answers = []
    for number, memory in enumerate((plain, corrected)):
        output = tmp_path / f"{number}.jsonl"
        told(capsys, "predict", memory, rows, *again, "-q", "-o", output)
        answers.append([json.loads(line)["label"] for line in output.read_text().splitlines()])
    out, err = told(capsys, "diff", plain, corrected, rows, "--json")
    different = [place for place, (a, b) in enumerate(zip(*answers, strict=True)) if a != b]
    assert different
    assert [row["index"] for row in json.loads(out)["labels"]["rows"]] == different
    assert "labels are compared with score=mean,reread=2" in err


def test_rows_with_several_labels_are_not_compared(tmp_path: Path, capsys: Captured) -> None:
    several = write_rows(
        tmp_path / "several.jsonl", [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": ["x"]}]
    )
    memory = tmp_path / "several.safetensors"
    told(capsys, "think", several, "-m", "pocket", "-T", "1", "-q", "-o", memory)
    _, err = told(capsys, "diff", memory, memory, several, code=2)
    assert "labels: rows may have several labels; compare the metrics of deepthink eval" in err


def test_json_has_every_layer_and_changed_row(folder: Path, capsys: Captured) -> None:
    memory = folder / "mem.safetensors"
    out, _ = told(capsys, "diff", memory, memory, folder / "demos.jsonl", "--at", "1,3", "--json")
    value: dict[str, Any] = json.loads(out)
    assert (value["a"]["iteration"], value["b"]["iteration"]) == (1, 3)
    assert [layer["layer"] for layer in value["layers"]] == list(range(7))
    assert value["labels"]["n"] == 4
    assert value["labels"]["changed"] == len(value["labels"]["rows"])
    assert 0 <= value["labels"]["labelled"]["mcnemar_p"] <= 1


def test_quantize_says_what_it_saves_and_how_to_measure_the_loss(folder: Path, capsys: Captured) -> None:
    output = folder / "small.safetensors"
    out, err = told(capsys, "quantize", folder / "mem.safetensors", "--to", "int4", "-o", output)
    assert err.startswith(f"wrote {output} (")
    assert "of the bytes" in out
    assert f"labels  not compared; run: deepthink diff {folder}/mem.safetensors {output} ROWS" in out
    shown, _ = told(capsys, "inspect", output, "--verify")
    assert "quantized int4, keys per channel and values per token in groups of 32" in shown
    assert "digest verified" in shown
    assert not modules_after(["inspect", "--verify", str(output)]) & HEAVY


def test_quantize_prints_its_report_as_json(folder: Path, capsys: Captured) -> None:
    value = json.loads(
        told(capsys, "quantize", folder / "mem.safetensors", "-o", folder / "small8.safetensors", "--json")[0]
    )
    assert (value["to"], value["group"]) == ("int8", 32)
    assert value["share"] == value["bytes_after"] / value["bytes_before"]
    assert run(["predict", str(folder / "small8.safetensors"), str(folder / "demos.jsonl"), "-q"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mem.safetensors", "-o", "mem.safetensors"], "-o mem.safetensors: the same file as mem.safetensors"),
        (
            ["mem.safetensors", "-o", "x", "--to", "int2"],
            "Invalid value for '--to': 'int2' is not one of 'int8', 'int4'",
        ),
    ],
)
def test_a_memory_that_cannot_be_quantized_is_one_line_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    out, err = told(capsys, "quantize", *arguments, code=2)
    assert out == ""
    assert err.startswith(f"deepthink: {message}")
    assert err.count("\n") == 1
    assert not (folder / "x").exists()
