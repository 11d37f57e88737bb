"""`--score` on predict, eval and run: what is written, what stays as it was, and labels that a sum never chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from conftest import Models, write_rows
from helpers.said import Captured
from helpers.tiny import run_words

from deepthink_cli import evaluate
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import read_results
from deepthink_cli.experiments.samples import find_samples
from deepthink_cli.prediction.predict import Labelling
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.scoring import Scoring
from deepthink_cli.tasks.rows import in_columns

LABELS = ("bug", "bug report", "feature")
ROWS: list[dict[str, object]] = [{"text": f"text {n}", "kind": LABELS[n % 3]} for n in range(6)]
NEVER = "can never be predicted by a sum of log-probabilities: its tokens begin with those of"
WARNING = f"warning: label 'bug report' {NEVER} 'bug'; rename it, or use --score end\n"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled rows, one of whose labels begins with another."""
    return write_rows(tmp_path_factory.mktemp("score") / "rows.jsonl", ROWS)


@pytest.fixture(scope="module")
def memory(rows: Path, models: Models) -> Path:
    """A memory of these rows with two iterations."""
    path = rows.parent / "mem.safetensors"
    words = ["think", str(rows), "-m", str(models("llama")), "-T", "2", "--keep", "all", "-q", "-o", str(path)]
    assert run(words) == 0
    return path


@pytest.fixture
def printed(capsys: Captured) -> Callable[..., tuple[str, str]]:
    """What a command writes on stdout and stderr."""

    def call(*words: str | Path) -> tuple[str, str]:
        capsys.readouterr()
        assert run(list(map(str, words))) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return call


Printed = Callable[..., tuple[str, str]]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_by_the_sum_rows_are_the_same_bytes(memory: Path, rows: Path, printed: Printed) -> None:
    plain, _ = printed("predict", memory, rows)
    assert list(lines(plain)[0]) == ["index", "label", "probability", "scores", "input"]
    assert printed("predict", memory, rows, "--score", "sum")[0] == plain
    assert "score" not in json.loads(printed("eval", memory, rows, "--json", "--score", "sum")[0])


@pytest.mark.parametrize("score", ["mean", "end"])
def test_a_row_names_the_score_that_gave_its_label(score: str, memory: Path, rows: Path, printed: Printed) -> None:
    plain = lines(printed("predict", memory, rows)[0])
    for before, row in zip(plain, lines(printed("predict", memory, rows, "--score", score)[0]), strict=True):
        assert row["score"] == score
        assert row["label"] == max(row["scores"], key=row["scores"].__getitem__)
        higher = row["scores"]["feature"] > before["scores"]["feature"]
        assert higher == (score == "mean")


def test_the_python_functions_take_the_score(memory: Path, rows: Path, printed: Printed) -> None:
    written = lines(printed("predict", memory, rows, "--score", "end")[0])
    scorer = Scorer.open(memory, scoring=Scoring.of(score="end"))
    labelling = Labelling(scorer, in_columns(scorer.memory, rows))
    assert [each.scores for part in labelling() for each in part] == [row["scores"] for row in written]
    report = evaluate(Scorer.open(memory, iteration="all", scoring=Scoring.of(score="mean")), rows)
    assert report.as_json()["score"] == "mean"
    assert all(metrics.accuracy == metrics.accuracy_mean_per_token for metrics in report.evaluation.results.values())


def test_an_evaluation_names_its_score_on_the_terminal_and_in_samples(
    memory: Path, rows: Path, tmp_path: Path, printed: Printed
) -> None:
    samples = tmp_path / "samples.jsonl"
    out, _ = printed("eval", memory, rows, "--score", "end", "-o", samples)
    assert "compared by the sum with the first token of what follows a label" in out
    assert {row["score"] for row in lines(samples.read_text())} == {"end"}
    assert "compared by" not in printed("eval", memory, rows)[0]
    assert json.loads(printed("eval", memory, rows, "--score", "mean", "--json")[0])["score"] == "mean"


@pytest.mark.parametrize("command", ["predict", "eval"])
@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ([], True),
        (["--score", "end"], False),
        (["--score", "mean"], False),
        (["--calibrate", "contextual"], False),
        (["--calibrate", "none,contextual"], True),
    ],
)
def test_a_label_that_a_sum_never_chooses_is_named(
    command: str, options: list[str], warns: bool, memory: Path, rows: Path, printed: Printed
) -> None:
    _, told = printed(command, memory, rows, "-q", *options)
    assert (WARNING in told) == warns
    assert warns or "never" not in told


def test_think_says_it_of_its_labels(rows: Path, models: Models, printed: Printed) -> None:
    _, told = printed("think", rows, "-m", models("llama"), "-q", "--dry-run")
    assert f"label 'bug report' {NEVER} 'bug'; rename it, or use deepthink predict --score end\n" in told
    more = ["--labels", "bug,bug report,feature,bug fix,bugs x,bug tracker,feature request"]
    _, told = printed("think", rows, "-m", models("llama"), "-q", "--dry-run", *more)
    assert "'bug' (also 'bug fix' after 'bug', 'bugs x' after 'bug', 2 more); rename it" in told
    assert told.count("warning:") == 1


def test_rows_of_a_run_have_keys_of_their_own_for_another_score(
    models: Models, tmp_path: Path, printed: Printed
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", "-q", "--calibrate", "none,contextual", "--samples")
    for score in ("sum", "mean", "end"):
        printed(*words, "--score", score)
    assert json.loads(printed(*words, "--score", "end", "--dry-run", "--json")[0])["scoring"] == "score=end"
    written = [json.loads(line)["setting"] for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [setting.get("scoring") for setting in written] == [None] * 4 + ["score=mean"] * 4 + ["score=end"] * 4
    found = read_results(tmp_path / "out")
    assert len({row.key for row in found}) == 12
    alone = [*words, "-o", str(tmp_path / "alone")]
    printed(*alone)
    assert [row.key for row in read_results(tmp_path / "alone")] == [row.key for row in found[:4]]
    for row in found:
        columns = pyarrow.parquet.read_table(find_samples(tmp_path / "out", row)).to_pydict()
        assert set(columns.get("scoring", [None])) == {row.setting.scoring}
        if row.setting.scoring == "score=mean":
            assert row.accuracy == row.accuracy_mean_per_token


def test_a_run_names_the_task_whose_label_a_sum_never_chooses(models: Models, tmp_path: Path, printed: Printed) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "1", "--seeds", "2", "-q", labels=["good", "good film"])
    _, told = printed(*words, "--dry-run")
    assert told == f"warning: task tiny: label 'good film' {NEVER} 'good'; rename it, or use --score end\n"
    for options in (["--score", "end"], ["--score", "mean"], ["--calibrate", "contextual"]):
        assert printed(*words, "--dry-run", *options)[1] == ""


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (("billing", "billing;urgent", "bug"), ";"),
        (("billing", "billing, bug", "bug"), ","),
        (("billing", "billing, but late", "bug"), None),  # no list of labels
        (("bug", "bug report", "feature"), None),
    ],
)
def test_labels_that_seem_to_be_several_are_to_be_divided(
    labels: tuple[str, ...], separator: str | None, models: Models, tmp_path: Path, printed: Printed
) -> None:
    demos = write_rows(tmp_path / "demos.jsonl", [{"text": f"text {n}", "kind": labels[n % 3]} for n in range(6)])
    words = ("think", demos, "-m", models("llama"), "-T", "1", "-o", tmp_path / "mem.safetensors")
    _, told = printed(*words)
    assert NEVER in told
    assert ("--score end" in told) == (separator is None)
    way = f"; if rows have several labels, make the memory with deepthink think --label-separator '{separator}'\n"
    assert (way in told) == (separator is not None)
    if separator is not None:
        _, told = printed(*words, "--label-separator", separator)
        assert NEVER not in told
        (row, *_) = lines(printed("predict", tmp_path / "mem.safetensors", demos)[0])
        assert set(row["scores"]) == {part.strip() for label in labels for part in label.split(separator)}
