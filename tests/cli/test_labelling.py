"""What `predict` and `eval -o` write: formats, fields of the input, best labels, and rows that are skipped."""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import REVIEWS, Models, write_rows
from helpers.forks import Forks
from helpers.said import Captured, json_of, output, rows_of

from deepthink_cli.cli.main import run
from deepthink_cli.data.rows import read_rows

LONG = "fine " * 3000
GOOD: list[dict[str, object]] = [
    {"id": 7, "review": "a kind film", "sentiment": "positive"},
    {"id": 8, "review": "dull,\nand long", "sentiment": "negative", "label": "mine"},
]
BAD = ["not json", json.dumps({"id": 9, "review": ""}), json.dumps({"id": 10, "review": LONG, "sentiment": "negative"})]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of two iterations."""
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "2", "--keep", "all")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Two good rows."""
    return write_rows(tmp_path / "in.jsonl", GOOD)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A good row, three bad ones, and a good row."""
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([json.dumps(GOOD[0]), *BAD, json.dumps(GOOD[1])]) + "\n")
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def cells(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(str(path))]


def test_the_suffix_is_the_format(memory: Path, inputs: Path, tmp_path: Path) -> None:
    for name in ("out.jsonl", "out.csv", "out.tsv", "out.parquet"):
        assert run(["predict", str(memory), str(inputs), "-q", "--scores", "-o", str(tmp_path / name)]) == 0
    plain = lines(tmp_path / "out.jsonl")
    for name in ("out.csv", "out.tsv", "out.parquet"):
        table = cells(tmp_path / name)
        assert list(table[0]) == [
            *("index", "label", "probability", "scores.positive", "scores.negative"),
            *("id", "review", "sentiment", "input.label"),
        ]
        for row, expected in zip(table, plain, strict=True):
            assert row["label"] == expected["label"]
            assert float(row["scores.negative"]) == expected["scores"]["negative"]
            assert (int(row["id"]), row["review"]) == (expected["input"]["id"], expected["input"]["review"])
        assert table[1]["input.label"] == "mine"
    assert cells(tmp_path / "out.parquet")[0]["id"] == 7


def test_every_iteration_and_every_calibration_has_its_columns(memory: Path, inputs: Path, tmp_path: Path) -> None:
    words = ["predict", str(memory), str(inputs), "--at", "all", "--calibrate", "domain,contextual", "--scores", "-q"]
    for name in ("out.jsonl", "out.csv"):
        assert run([*words, "-o", str(tmp_path / name)]) == 0
    for row, expected in zip(cells(tmp_path / "out.csv"), lines(tmp_path / "out.jsonl"), strict=True):
        assert int(row["iteration"]) == expected["iteration"]
        domain = expected["calibrated"]["domain"]
        assert row["calibrated.domain.label"] == domain["label"]
        assert float(row["calibrated.domain.bias.positive"]) == domain["bias"]["positive"]
        assert int(row["calibrated.domain.texts"]) == domain["texts"]


def test_rows_with_candidates_of_their_own_have_scores_as_json(memory: Path, tmp_path: Path) -> None:
    own = write_rows(
        tmp_path / "own.jsonl", [{"review": "a", "candidates": ["yes", "no", "positive"]}, {"review": "b"}]
    )
    assert run(["predict", str(memory), str(own), "--top", "2", "--scores", "-q", "-o", str(tmp_path / "out.csv")]) == 0
    first, second = cells(tmp_path / "out.csv")
    assert list(json.loads(first["scores"])) == ["yes", "no", "positive"]
    assert len(json.loads(second["top"])) == 2


def test_fields_of_the_input_are_kept_by_name(memory: Path, inputs: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["predict", str(memory), str(inputs), "-q", "--columns"]
    assert run([*words, "id, label", "-o", str(tmp_path / "out.jsonl")]) == 0
    assert [row["input"] for row in lines(tmp_path / "out.jsonl")] == [{"id": 7}, {"id": 8, "label": "mine"}]
    assert run([*words, "none", "-o", str(tmp_path / "out.jsonl")]) == 0
    assert "input" not in lines(tmp_path / "out.jsonl")[0]
    assert run([*words, "id", "-o", str(tmp_path / "out.csv")]) == 0
    assert list(cells(tmp_path / "out.csv")[0])[-2:] == ["probability", "id"]
    assert run([*words, "ID", "-o", str(tmp_path / "out.csv")]) == 2
    assert "--columns ID: no row has this field; the rows have id, review, sentiment, label" in capsys.readouterr().err


def test_the_best_labels_have_the_probabilities_of_their_scores(memory: Path, inputs: Path, capsys: Captured) -> None:
    for row in rows_of(capsys, "predict", memory, inputs, "--top", "5"):
        assert row["confidence"] == "uncalibrated"
        assert [each["label"] for each in row["top"]] == sorted(row["scores"], key=row["scores"].get, reverse=True)
        assert row["top"][0] == {"label": row["label"], "probability": pytest.approx(row["probability"])}
        assert sum(each["probability"] for each in row["top"]) == pytest.approx(1)


def test_below_the_threshold_the_label_is_null_and_the_probability_stays(
    memory: Path, inputs: Path, capsys: Captured
) -> None:
    words = ["predict", str(memory), str(inputs)]
    plain = rows_of(capsys, *words)
    assert all("confidence" not in row for row in plain)
    least = min(row["probability"] for row in plain)
    assert run([*words, "--threshold", repr(least)]) == 0
    assert "no label: 0 of 2 rows" in capsys.readouterr().err
    assert run([*words, "--threshold", repr(least + 1e-9)]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert "no label: 1 of 2 rows" in err
    assert [row["label"] is None for row in rows] == [row["probability"] == least for row in plain]
    assert [row["probability"] for row in rows] == [row["probability"] for row in plain]


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_bad_row_is_skipped_and_keeps_its_place(
    source: str, memory: Path, mixed: Path, tmp_path: Path, forks: Forks
) -> None:
    out = tmp_path / "out.jsonl"
    with open(mixed, "rb") as given:
        name = str(mixed) if source == "file" else "-"
        words = ["predict", str(memory), name, "--on-error", "skip", "-o", str(out)]
        code, said = forks.run(words, stdin=given.fileno())
    assert code == 1
    rows = lines(out)
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert ["error" in row for row in rows] == [False, True, True, True, False]
    assert [list(row) for row in rows[1:4]] == [["index", "error"], *[["index", "error", "input"]] * 2]
    assert [row["input"]["id"] for row in rows[2:4]] == [9, 10]
    assert "too long" in rows[3]["error"]
    assert said.count("warning: skipped: ") == 3
    assert "3 of 5 rows were skipped" in said.splitlines()[-1]


def test_a_table_has_a_column_for_errors(memory: Path, mixed: Path, tmp_path: Path, capsys: Captured) -> None:
    for name in ("out.csv", "out.parquet"):
        assert run(["predict", str(memory), str(mixed), "--on-error", "skip", "-o", str(tmp_path / name)]) == 1
        rows = cells(tmp_path / name)
        assert [bool(row["error"]) for row in rows] == [False, True, True, True, False]
        assert not rows[1]["label"]
        assert [str(row["id"]) for row in rows[2:]] == ["9", "10", "8"]
    assert "--allow-errors N accepts N" in capsys.readouterr().err


def test_more_errors_than_allowed_end_with_1_and_a_whole_output(
    memory: Path, mixed: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["predict", str(memory), str(mixed), "--on-error", "skip", "-o", str(tmp_path / "out.jsonl")]
    assert run([*words, "--allow-errors", "2"]) == 1
    assert "3 of 5 rows were skipped, more than --allow-errors 2" in capsys.readouterr().err
    assert len(lines(tmp_path / "out.jsonl")) == 5
    assert run([*words, "--allow-errors", "3"]) == 0


def test_a_file_without_a_good_row_is_not_skipped_row_by_row(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    other = write_rows(tmp_path / "other.jsonl", [{"text": "another field"}] * 30)
    assert run(["predict", str(memory), str(other), "--on-error", "skip"]) == 2
    err = capsys.readouterr().err
    assert "other.jsonl:1 and 29 more, the last" in err
    assert "other.jsonl:30: field 'review' is missing; the row has text; add it, or rename" in err
    assert run(["predict", str(memory), str(tmp_path / "none.csv"), "--on-error", "skip"]) == 2
    (tmp_path / "torn.csv").write_text('review\nfine\n"open\n')
    assert run(["predict", str(memory), str(tmp_path / "torn.csv"), "--on-error", "skip"]) == 2
    assert "not CSV" in capsys.readouterr().err


def test_a_row_that_a_calibration_does_not_support_is_skipped(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    rows: list[dict[str, object]] = [{"review": "a", "candidates": ["yes", "no"]}]
    rows += [{"review": f"b {n}"} for n in range(20)]
    own = write_rows(tmp_path / "own.jsonl", rows)
    words = ["predict", str(memory), str(own), "--calibrate", "batch"]
    assert run(words) == 2
    first, second, *_ = rows_of(capsys, *words, "--on-error", "skip", "--allow-errors", "1")
    assert "has candidates of its own" in first["error"]
    assert second["calibrated"]["batch"]["rows"] == 20


def test_eval_reports_skipped_rows_apart(memory: Path, mixed: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["eval", str(memory), str(mixed), "--on-error", "skip", "--json", "-o", str(tmp_path / "s.csv")]
    assert run(words) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["n"] == 2
    assert report["skipped"] == {"cannot be read": 2, "too long for the model": 1}
    assert "3 of 5 rows were skipped" in err
    samples = cells(tmp_path / "s.csv")
    assert [int(row["index"]) for row in samples] == [0, 0, 1, 2, 3, 4, 4]
    assert [row["gold"] for row in samples if not row["error"]] == ["positive", "positive", "negative", "negative"]
    assert run([*words, "--allow-errors", "3", "--calibrate", "contextual"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "2"], "--threshold 2: a probability between 0 and 1, as in 0.8"),
        (["--top", "0"], "--top 0: a number of labels, 1 or more"),
        (["--columns", "a,,b"], "--columns a,,b: name each field once, as in id,text, or say all or none"),
        (["--allow-errors", "3"], "--allow-errors 3: only with --on-error skip"),
        (["--on-error", "skip", "--allow-errors", "-1"], "--allow-errors -1: a number of rows, 0 or more"),
        (["--on-error", "ignore"], "'ignore' is not one of 'stop', 'skip'"),
        (["-o", "out.xlsx"], "-o out.xlsx: unknown format '.xlsx'; end the name in .jsonl, .ndjson, .csv"),
        (["--resume"], "--resume: only with -o FILE; name the output"),
        (["--resume", "-o", "-"], "--resume: only with -o FILE"),
        (["--flush"], "--flush: {inputs} is a file, whose rows are all there; omit it, or use -"),
        (["--output-format", "csv", "-o", "x.csv"], "--output-format csv: x.csv is a file, whose suffix names it"),
        (["--dtype", "half"], "'half' is not one of 'auto', 'float32', 'bfloat16', 'float16'"),
    ],
)
def test_a_wrong_option_is_refused(
    words: list[str], message: str, memory: Path, inputs: Path, capsys: Captured
) -> None:
    assert run(["predict", str(memory), str(inputs), *words]) == 2
    assert message.format(inputs=inputs) in capsys.readouterr().err


def test_a_table_on_stdout_has_no_header_where_a_row_is_refused(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    long = write_rows(tmp_path / "long.jsonl", [{"review": "word " * 5000}])
    assert run(["predict", str(memory), str(long), "--output-format", "csv"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.plugins
def test_other_outputs_have_formats_too(memory: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["eval", str(memory), str(demos), "-o", str(tmp_path / "s.doc")]) == 2
    assert "s.doc: unknown format '.doc'" in capsys.readouterr().err
    words = ["select", str(demos), "--demos-by", "random", "--shots", "2"]
    assert run([*words, "-o", str(tmp_path / "d.doc"), "--pool-scores", str(tmp_path / "s.doc")]) == 2
    assert run([*words, "-o", str(tmp_path / "d.csv"), "--pool-scores", str(tmp_path / "s.tsv")]) == 0
    assert {row["sentiment"] for row in cells(tmp_path / "d.csv")} <= {label for _, label in REVIEWS}
    assert len(cells(tmp_path / "s.tsv")) == 4


def test_a_table_of_standard_input_refuses_other_candidates(memory: Path, tmp_path: Path, forks: Forks) -> None:
    rows: list[dict[str, object]] = [{"review": "a"}, {"review": "b", "candidates": ["yes", "no"]}]
    with open(write_rows(tmp_path / "rows.jsonl", rows), "rb") as given:
        code, said = forks.run(["predict", str(memory), "-", "-o", str(tmp_path / "out.csv")], stdin=given.fileno())
    assert code == 2
    assert "standard input:2: has candidates of its own" in said
    assert not (tmp_path / "out.csv").exists()


def test_the_progress_is_shown_at_a_terminal_while_a_file_is_written(
    memory: Path, tmp_path: Path, forks: Forks
) -> None:
    inputs = write_rows(tmp_path / "in.jsonl", [{"review": f"film {n}"} for n in range(600)])
    ours, theirs = pty.openpty()
    words = ["predict", str(memory), str(inputs), "-o", str(tmp_path / "out.jsonl")]
    child = forks.start(words, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # of a terminal that nobody writes to any more
        while read := os.read(ours, 4096):
            shown += read
    os.close(ours)
    assert child.wait(30) == 0, shown
    assert b"predicting" in shown
    assert b"a probability is a share among the labels" in shown


@pytest.mark.parametrize(("keep", "words"), [("end", "a kind film"), ("start", "dull and slow")])
@pytest.mark.plugins
def test_of_a_text_that_is_too_long_one_end_is_read_and_the_row_says_so(
    memory: Path, tmp_path: Path, capsys: Captured, keep: str, words: str
) -> None:
    text = f"dull and slow {LONG}a kind film"
    long = write_rows(tmp_path / "long.jsonl", [{"id": 1, "review": text}, {"id": 2, "review": "short"}])
    assert run(["predict", str(memory), str(long), "--truncate", keep, "-o", str(tmp_path / "out.jsonl")]) == 0
    assert "truncated 1 rows: of a text that is too long for the model, a part was read" in capsys.readouterr().err
    first, second = lines(tmp_path / "out.jsonl")
    left = len(text) - first["truncated"]
    kept = text[-left:] if keep == "end" else text[:left]
    assert words in kept
    assert "truncated" not in second
    assert first["input"]["review"] == text
    alone = write_rows(tmp_path / "alone.jsonl", [{"id": 1, "review": kept}, {"id": 2, "review": "short"}])
    assert run(["predict", str(memory), str(alone), "-q", "-o", str(tmp_path / "alone-out.jsonl")]) == 0
    assert lines(tmp_path / "alone-out.jsonl")[0]["scores"] == first["scores"]
    gold = write_rows(tmp_path / "gold.jsonl", [{"review": text, "sentiment": "positive"}, GOOD[0]])
    assert run(["eval", str(memory), str(gold), "--truncate", keep, "-o", str(tmp_path / "s.csv"), "-q"]) == 0
    assert cells(tmp_path / "s.csv")[0]["truncated"] == str(first["truncated"])


def test_columns_are_read_as_other_fields_and_kept_under_their_names(
    models: Models, tmp_path: Path, capsys: Captured
) -> None:
    rows, memory = tmp_path / "rows.csv", str(tmp_path / "mem.safetensors")
    rows.write_text("Text,Class\na kind film,positive\ndull,negative\nfine,positive\nslow,negative\n")
    mapped = [str(rows), "--map", "Text=review,Class=sentiment", "-q"]
    assert run(["think", *mapped, "-m", str(models("llama")), "-o", memory]) == 0
    assert json_of(capsys, "eval", memory, *mapped, "--json")["n"] == 4
    assert rows_of(capsys, "predict", memory, *mapped)[0]["input"] == {"Text": "a kind film", "Class": "positive"}
    assert run(["predict", memory, str(rows), "--map", "Text"]) == 2
    assert "--map Text: give COLUMN=FIELD" in capsys.readouterr().err


def test_a_stream_is_answered_row_by_row_also_as_csv(memory: Path, tmp_path: Path, forks: Forks) -> None:
    given, answers = os.pipe(), os.pipe()
    words = f"predict {memory} - --format csv --output-format csv --flush --columns none -q".split()
    child = forks.start(words, stdin=given[0], stdout=answers[1])
    os.close(answers[1])
    with os.fdopen(given[1], "w") as rows, os.fdopen(answers[0]) as out:
        rows.write("review\n")
        for index in range(2):
            rows.write("a kind film\n")
            rows.flush()
            if index == 0:
                assert out.readline().strip() == "index,label,probability"
            assert out.readline().startswith(f"{index},")
        rows.close()
        assert not out.read()
    assert child.wait() == 0


def test_the_prompt_is_the_text_of_the_tokens_up_to_the_label(memory: Path, inputs: Path, capsys: Captured) -> None:
    assert run(["predict", str(memory), str(inputs), "--show-prompt"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("Review: a kind film\nSentiment:\n")
    assert "  positive: ' positive'" in err
    with inputs.open("a", encoding="utf-8") as file:
        file.write('{"other": "a row that is not shown"}\n')
    assert output(capsys, "predict", memory, inputs, "--show-prompt") == out
