"""`deepthink diff` and `deepthink quantize` as a user meets them: reports, JSON, wrong input and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_reviews, write_rows
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured
from helpers.tiny import BAD, GOOD

from deepthink_cli.cli.main import run


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
    assert "demonstrations: the same 4" in out
    assert "Relative change from A to B: keys " in out
    assert re.search(r"^\d+ +'.+' +\d+\.\d{3}% ", out, re.MULTILINE)


def test_iterations_are_named_for_one_or_both(folder: Path, capsys: Captured) -> None:
    memory = folder / "mem.safetensors"
    assert "Keys and values: the same" in told(capsys, "diff", memory, memory, "--at", "2")[0]
    out, _ = told(capsys, "diff", memory, memory, "--at", "1, last")
    assert "iteration  A  1 of 1, 2, 3\n           B  3 of 1, 2, 3" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["mem.safetensors", "--at", "first"],
            "--at first: name one iteration for both, or two as in 1,5",
        ),
        (["mem.safetensors", "--at", "1,7"], "--at 7: mem.safetensors keeps 1, 2, 3"),
        (["b"], "b: keeps one iteration, 2; name a second memory, or keep all with deepthink think --keep all"),
        (["mem.safetensors", "gone"], "gone: no such file"),
        (["mem.safetensors", "mem.safetensors", "gone.jsonl"], "gone.jsonl: no such file"),
        (["mem.safetensors", "b", "-"], "ROWS -: both memories read the rows; give a file"),
        (["mem.safetensors", "--limit", "5"], "--limit 5: no rows are labelled; give ROWS or --task, or omit it"),
        (["mem.safetensors", "--task", "trec"], "mem.safetensors: made for the labels positive, negative; task trec"),
        (["mem.safetensors", "--format", "csv"], "--format csv: no rows are read from a file"),
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
    assert "exact McNemar p = " in out
    unlabelled = write_rows(folder / "inputs.jsonl", [{"review": "fine"}, {"review": "dull"}])
    out, _ = told(capsys, "diff", memory, memory, unlabelled, "--at", "1,3")
    assert "Labels of 2 rows" in out
    assert "McNemar" not in out


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
    out, _ = told(capsys, "quantize", corrected, "-o", tmp_path / "small.safetensors", "--eval", rows, "--json")
    assert json.loads(out)["labels"]["n"] == len(pairs)


def test_corrections_of_two_scores_are_named_after_the_report(
    folder: Path, corrected: Path, tmp_path: Path, capsys: Captured
) -> None:
    other = tmp_path / "sum.safetensors"
    assert run(["calibrate", str(folder / "mem.safetensors"), "-o", str(other)]) == 0
    _, err = told(capsys, "diff", other, corrected, folder / "demos.jsonl", code=2)
    assert err.startswith("deepthink: labels: A and B store corrections of other options of scoring")


def test_what_cannot_be_compared_is_refused_before_a_file_is_written(tmp_path: Path, capsys: Captured) -> None:
    several = write_rows(
        tmp_path / "several.jsonl", [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": ["x"]}]
    )
    memory, output = tmp_path / "several.safetensors", tmp_path / "small.safetensors"
    told(capsys, "think", several, "-m", "pocket", "-T", "1", "-q", "-o", memory)
    _, err = told(capsys, "quantize", memory, "-o", output, "--eval", several, code=2)
    assert err == "deepthink: rows may have several labels; compare the metrics of deepthink eval\n"
    assert not output.exists()


def test_json_has_every_layer_token_and_changed_row(folder: Path, capsys: Captured) -> None:
    memory = folder / "mem.safetensors"
    out, _ = told(capsys, "diff", memory, memory, folder / "demos.jsonl", "--at", "1,3", "--json")
    value: dict[str, Any] = json.loads(out)
    assert (value["a"]["iteration"], value["b"]["iteration"]) == (1, 3)
    assert [layer["layer"] for layer in value["layers"]] == list(range(7))
    assert value["tokens"][0]["text"] == "<|begin|>"
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


def test_quantize_compares_the_labels_of_rows(folder: Path, capsys: Captured) -> None:
    arguments = [folder / "mem.safetensors", "-o", folder / "small8.safetensors", "--eval", folder / "demos.jsonl"]
    out, _ = told(capsys, "quantize", *arguments)
    assert "A is the memory, B its quantized form." in out
    assert "accuracy: A " in out
    value = json.loads(told(capsys, "quantize", *arguments, "--json")[0])
    assert (value["to"], value["group"], value["labels"]["n"]) == ("int8", 32, 4)
    assert value["share"] == value["bytes_after"] / value["bytes_before"]
    assert run(["predict", str(folder / "small8.safetensors"), str(folder / "demos.jsonl"), "-q"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mem.safetensors", "-o", "mem.safetensors"], "-o mem.safetensors: the same file as mem.safetensors"),
        (
            ["mem.safetensors", "-o", "demos.jsonl", "--eval", "demos.jsonl"],
            "-o demos.jsonl: the same file as demos.jsonl",
        ),
        (["gone", "-o", "x"], "gone: no such file"),
        (["mem.safetensors", "-o", "no/x"], "-o no/x: there is no directory "),
        (["mem.safetensors", "-o", "x", "--eval", "gone.jsonl"], "gone.jsonl: no such file"),
        (
            ["mem.safetensors", "-o", "x", "--to", "int2"],
            "Invalid value for '--to': 'int2' is not one of 'int8', 'int4'",
        ),
        (["mem.safetensors", "-o", "x", "--limit", "0"], "--limit 0: "),
        (["mem.safetensors", "-o", "x", "--task", "trec"], "mem.safetensors: made for the labels positive, negative"),
        (["demos.jsonl", "-o", "x"], "demos.jsonl: not a deepthink memory"),
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


def test_a_limit_of_the_environment_is_for_commands_with_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("DEEPTHINK_LIMIT", "2")
    assert "Labels of" not in told(capsys, "diff", folder / "mem.safetensors")[0]
    memory, rows = folder / "mem.safetensors", folder / "demos.jsonl"
    assert "Labels of 2 rows" in told(capsys, "diff", memory, memory, rows)[0]


def test_a_file_of_the_memorys_own_model_is_not_overwritten(folder: Path, models: Models, capsys: Captured) -> None:
    model, memory = models("llama"), folder / "llama.safetensors"
    told(capsys, "think", folder / "demos.jsonl", "-m", model, "-T", "1", "-q", "-o", memory)
    before = (model / "model.safetensors").read_bytes()
    _, err = told(capsys, "quantize", memory, "-o", model / "model.safetensors", code=2)
    assert "which this command reads; name a new file" in err
    assert (model / "model.safetensors").read_bytes() == before


def test_a_quantized_memory_is_not_quantized_again(folder: Path, capsys: Captured) -> None:
    small = folder / "once.safetensors"
    told(capsys, "quantize", folder / "mem.safetensors", "-o", small)
    _, err = told(capsys, "quantize", small, "--to", "int4", "-o", folder / "twice.safetensors", code=2)
    assert err == f"deepthink: {small}: is int8 already; quantize the float32 memory that it was made from\n"
