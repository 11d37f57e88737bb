"""`--calibrate` on predict and eval: what is written, what is judged, what is refused, and the advice to use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured, json_of, output, rows_of
from scipy.stats import binomtest

from deepthink_cli.calibration import calibrator
from deepthink_cli.calibration.registry import choices
from deepthink_cli.cli.main import run

NAMES = choices()[1:]
TEXTS = [f"{word} {kind} number {n}" for n in range(6) for word in ("warm", "dull") for kind in ("film", "play")]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of a random model, which prefers one label."""
    return thought_of(tmp_path_factory.mktemp("calibrate") / "mem.safetensors", "qwen3", "-T", "2", "--keep", "all")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Rows without labels."""
    return write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in TEXTS])


@pytest.fixture
def labelled(memory: Path, inputs: Path, tmp_path: Path, predicted: Callable[..., list[dict[str, Any]]]) -> Path:
    """Rows whose true labels are those of batch calibration at the last iteration."""
    rows = predicted("--calibrate", "batch")
    return write_rows(
        tmp_path / "labelled.jsonl", [{"review": row["input"]["review"], "sentiment": row["label"]} for row in rows]
    )


@pytest.fixture
def predicted(memory: Path, inputs: Path, capsys: Captured) -> Callable[..., list[dict[str, Any]]]:
    """The rows that predict writes with some options."""

    def rows(*options: str, source: Path = inputs) -> list[dict[str, Any]]:
        return rows_of(capsys, "predict", memory, source, "-q", *options)

    return rows


def evaluated(memory: Path, labelled: Path, capsys: Captured, *options: str) -> dict[str, Any]:
    report: dict[str, Any] = json_of(capsys, "eval", memory, labelled, "--json", *options)
    return report


def test_without_a_calibration_rows_are_the_same_bytes(memory: Path, inputs: Path, capsys: Captured) -> None:
    plain = output(capsys, "predict", memory, inputs, "-q")
    assert list(json.loads(plain.splitlines()[0])) == ["index", "label", "probability", "scores", "input"]
    assert output(capsys, "predict", memory, inputs, "-q", "--calibrate", "none") == plain


def test_a_row_holds_every_calibration_and_what_it_needed(predicted: Callable[..., list[dict[str, Any]]]) -> None:
    raw, rows = predicted(), predicted("--calibrate", ",".join(NAMES))
    inputs = {"contextual": ("texts", 3), "domain": ("texts", 20), "pmi": ("texts", 1)}
    for before, row in zip(raw, rows, strict=True):
        assert row["scores"] == before["scores"]
        assert list(row["calibrated"]) == list(NAMES)
        for name, entry in row["calibrated"].items():
            counted, number = inputs.get(name, ("rows", len(TEXTS)))
            assert list(entry) == ["label", "probability", "scores", counted, "bias"]
            assert entry[counted] == number
            assert entry["bias"].keys() == entry["scores"].keys() == row["scores"].keys()
            assert entry["label"] == max(entry["scores"], key=lambda label: entry["scores"][label])


def test_the_first_calibration_gives_label_and_probability(predicted: Callable[..., list[dict[str, Any]]]) -> None:
    raw, batch, none_first = predicted(), predicted("--calibrate", "batch,none"), predicted("--calibrate", "none,batch")
    assert [row["label"] for row in raw] != [row["label"] for row in batch]
    for before, first, second in zip(raw, batch, none_first, strict=True):
        correction = first["calibrated"]["batch"]
        assert (first["label"], first["probability"]) == (correction["label"], correction["probability"])
        assert (second["label"], second["probability"]) == (before["label"], before["probability"])
        assert second["calibrated"] == first["calibrated"]


@pytest.mark.plugins
def test_a_stream_reports_the_rows_so_far_and_the_bias_at_its_end(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    many = write_rows(tmp_path / "many.jsonl", [{"review": TEXTS[n % len(TEXTS)]} for n in range(300)])
    assert run(["predict", str(memory), str(many), "--calibrate", "batch,prior"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line)["calibrated"] for line in printed.out.splitlines()]
    for name in ("batch", "prior"):
        assert [row[name]["rows"] for row in rows] == [256] * 256 + [300] * 44
        assert f"{name} calibration: bias of 300 rows: 'positive' " in printed.err


def test_eval_reports_every_calibration_beside_the_raw_scores(memory: Path, labelled: Path, capsys: Captured) -> None:
    raw = evaluated(memory, labelled, capsys)
    report = evaluated(memory, labelled, capsys, "--calibrate", "batch,pmi,none")
    assert [result["iteration"] for result in report["results"]] == [1, 2]
    for before, result in zip(raw["results"], report["results"], strict=True):
        assert list(result["calibrated"]) == ["batch", "pmi"]
        for metrics in result["calibrated"].values():
            assert metrics.keys() == before.keys() - {"iteration"}
        assert {name: value for name, value in result.items() if name != "calibrated"} == before
    assert report["results"][-1]["calibrated"]["batch"]["accuracy"] == 1
    assert report["results"][-1]["accuracy"] < 1
    assert report["confusion"] == raw["confusion"]


def test_the_table_and_the_sentence_are_said_raw_and_calibrated(memory: Path, labelled: Path, capsys: Captured) -> None:
    lines = output(capsys, "eval", memory, labelled, "--calibrate", "batch,pmi", "--details").splitlines()
    header = next(line for line in lines if line.startswith("scores "))
    assert header.split()[:4] == ["scores", "T", "accuracy", "95"]
    table = lines[lines.index(header) + 1 : lines.index(header) + 7]
    ways = [tuple(line.split()[:2]) for line in table]
    assert ways == [("raw", "1"), ("raw", "2"), ("batch", "1"), ("batch", "2"), ("pmi", "1"), ("pmi", "2")]
    last = {line.split()[0]: line.split()[2:6] for line in table if line.split()[1] == "2"}
    low, high = binomtest(len(TEXTS), len(TEXTS)).proportion_ci(method="wilson")
    assert last["batch"] == ["100.0%", f"{low:.1%}", "to", f"{high:.1%}"] != last["raw"]
    changes = [line.split(", T = 1 to T = 2: ")[0] for line in lines if "T = 1 to T = 2" in line]
    assert changes == ["raw", "batch", "pmi"]
    assert "T = 2, batch calibration, true label first:" in lines


@pytest.mark.parametrize("calibrate", ["none,batch", "domain,none"])
def test_the_figure_judged_is_that_of_the_answers_that_predict_gives(
    calibrate: str, memory: Path, labelled: Path, capsys: Captured, predicted: Callable[..., list[dict[str, Any]]]
) -> None:
    given = [row["label"] for row in predicted("--calibrate", calibrate)]
    true = [json.loads(line)["sentiment"] for line in labelled.read_text().splitlines()]
    right = sum(map(str.__eq__, given, true))
    judged = evaluated(memory, labelled, capsys, "--calibrate", calibrate)["judged"]
    interval = binomtest(right, len(true)).proportion_ci(method="wilson")
    assert judged.pop("interval") == pytest.approx(list(interval))
    first = calibrate.partition(",")[0]
    assert judged == {"metric": "accuracy", "value": right / len(true), "iteration": 2, "correction": first}


def test_rows_with_their_own_candidates_are_corrected_by_texts(
    predicted: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    mixed = write_rows(
        tmp_path / "mixed.jsonl", [{"review": "flat", "candidates": ["stale", "bright"]}, {"review": "loud"}]
    )
    own, shared = predicted("--calibrate", "contextual,domain,pmi", source=mixed)
    assert {tuple(entry["bias"]) for entry in own["calibrated"].values()} == {("stale", "bright")}
    assert {tuple(entry["bias"]) for entry in shared["calibrated"].values()} == {("positive", "negative")}


def one_sided(rows: list[dict[str, Any]], folder: Path, gold: str | None = None) -> Path:
    """Twenty rows that the raw scores label alike."""
    label = max({row["label"] for row in rows}, key=[row["label"] for row in rows].count)
    alike = [row["input"]["review"] for row in rows if row["label"] == label]
    texts = [alike[n % len(alike)] for n in range(20)]
    other = "negative" if label == "positive" else "positive"
    golds = [other if n % 2 else label for n in range(20)] if gold is None else [label] * 20
    pairs = zip(texts, golds, strict=True)
    return write_rows(folder / "alike.jsonl", [{"review": text, "sentiment": gold} for text, gold in pairs])


@pytest.mark.parametrize("command", ["predict", "eval"])
def test_one_label_for_nearly_all_rows_is_a_warning_unless_it_is_corrected(
    command: str, memory: Path, predicted: Callable[..., list[dict[str, Any]]], tmp_path: Path, capsys: Captured
) -> None:
    alike = one_sided(predicted(), tmp_path)
    words = [command, str(memory), str(alike)]
    assert run(words) == 0
    assert capsys.readouterr().err.count("warning: 100 % of the answers are '") == 1
    assert run([*words, "--calibrate", "none"]) == 0
    assert "of the answers are" not in capsys.readouterr().err
    alike.write_text("".join(alike.read_text().splitlines(keepends=True)[:19]))
    assert run(words) == 0
    assert "of the answers are" not in capsys.readouterr().err


def test_one_label_is_no_warning_where_the_rows_have_it(
    memory: Path, predicted: Callable[..., list[dict[str, Any]]], tmp_path: Path, capsys: Captured
) -> None:
    assert run(["eval", str(memory), str(one_sided(predicted(), tmp_path, gold="same"))]) == 0
    assert "of the answers are" not in capsys.readouterr().err


def test_one_label_for_nearly_all_rows_after_a_correction_is_a_warning_of_eval(
    memory: Path,
    predicted: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = calibrator.corrected
    nothing = lambda predictions, bias: found(predictions, replace(bias, logs=0 * bias.logs))  # noqa: E731
    monkeypatch.setattr(calibrator, "corrected", nothing)
    assert run(["eval", str(memory), str(one_sided(predicted(), tmp_path)), "--calibrate", "contextual"]) == 0
    said = capsys.readouterr().err
    assert "warning: 100 % of the answers are '" in said
    assert "after contextual calibration, but only 50 % of the rows; compare --calibrate domain,batch" in said


@pytest.mark.plugins
@pytest.mark.parametrize(("command", "name"), [("predict", "batch"), ("eval", "prior")])
def test_a_bias_of_fewer_than_twenty_rows_is_refused_before_the_model_is_loaded(
    command: str, name: str, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    rows = [{"review": text, "sentiment": "positive"} for text in TEXTS]
    for count, said in ((1, "not from 1"), (19, "not from 19")):
        few = write_rows(tmp_path / f"{count}.jsonl", rows[:count])
        assert run([command, str(memory), str(few), "--calibrate", f"contextual,{name}", "--device", "cuda:99"]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"deepthink: --calibrate {name}: is estimated from 20 rows or more, {said};")
    assert run([command, str(memory), str(few), "-q", "--calibrate", "contextual,domain,pmi"]) == 0


def test_rows_that_are_skipped_do_not_count(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "warm"}, *({"other": n} for n in range(20))])
    assert run(["predict", str(memory), str(rows), "-q", "--on-error", "skip", "--calibrate", "batch"]) == 2
    assert "not from 1;" in capsys.readouterr().err
