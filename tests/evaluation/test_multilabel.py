"""Rows with several labels: reading them, thresholds against brute force, metrics against scikit-learn."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from helpers.said import Captured, json_of, output, rows_of

from deepthink_cli import load_memory
from deepthink_cli.calibrate_memory import calibrate
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import read_demonstrations, read_queries
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.threshold import Threshold
from deepthink_cli.multilabel import LabelSets, best_threshold, cross_validated

LABELS = ("bug", "account", "billing")
DEMONSTRATIONS = (
    {"text": "It crashes when I log in", "labels": ["bug", "account"]},
    {"text": "The invoice is wrong", "labels": ["billing"]},
    {"text": "My password is rejected", "labels": ["account"]},
)


def rows(path: Path, of: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in of))  # type: ignore[attr-defined]
    return str(path)


def labelled(count: int) -> list[dict[str, object]]:
    draw = random.Random(3)
    chosen = [draw.sample(LABELS, draw.choice([1, 1, 2])) for _ in range(count)]
    return [{"text": f"{' and '.join(each)} in ticket {place}", "labels": each} for place, each in enumerate(chosen)]


def test_lists_and_separators_give_the_same_labels_and_prompts(tmp_path: Path) -> None:
    lists = read_demonstrations(rows(tmp_path / "lists.jsonl", DEMONSTRATIONS))
    texts = [{**row, "labels": ",".join(row["labels"])} for row in DEMONSTRATIONS]
    joined = read_demonstrations(rows(tmp_path / "texts.jsonl", texts), label_separator=",")
    assert lists == joined
    assert lists.labels == LABELS
    assert lists.examples[0].label == "bug, account"


def test_without_a_separator_a_text_is_one_label_and_the_template_says_nothing(tmp_path: Path) -> None:
    texts = [{**row, "labels": ",".join(row["labels"])} for row in DEMONSTRATIONS]
    found = read_demonstrations(rows(tmp_path / "texts.jsonl", texts))
    assert found.template.label_separator is None
    assert found.labels == ("bug,account", "billing", "account")


def test_true_labels_are_in_the_order_of_the_memory_and_may_be_none(tmp_path: Path) -> None:
    template = read_demonstrations(rows(tmp_path / "lists.jsonl", DEMONSTRATIONS)).template
    given = [{"text": "a", "labels": ["billing", "bug"]}, {"text": "b", "labels": []}]
    queries = read_queries(rows(tmp_path / "rows.jsonl", given), template, LABELS, labelled=True)
    assert [template.labels_of(query.gold or "") for query in queries] == [("bug", "billing"), ()]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a", "labels": ["bugs"]}, "did you mean 'bug'"),
        ({"text": "a", "labels": ["bug, account"]}, "holds the separator"),
        ({"text": "a", "labels": ["bug"], "candidates": ["bug", "x"]}, "no 'candidates' of their own"),
    ],
)
def test_mistakes_in_rows_are_named(row: dict[str, object], message: str, tmp_path: Path) -> None:
    template = read_demonstrations(rows(tmp_path / "lists.jsonl", DEMONSTRATIONS)).template
    with pytest.raises(InputError, match=message):
        list(read_queries(rows(tmp_path / "rows.jsonl", [row]), template, LABELS, labelled=True))


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_has_a_better_f1_than_the_fitted_one(seed: int) -> None:
    draw = random.Random(seed)
    values = [draw.choice([draw.random(), 0.5, 0.25]) for _ in range(30)]
    true = [draw.random() < value for value in values]

    def f1(threshold: float) -> float:
        given = [value > threshold for value in values]
        right = sum(a and b for a, b in zip(given, true, strict=True))
        return 2 * right / max(1, sum(given) + sum(true))

    every = [0.0, 1.0, *((a + b) / 2 for a in values for b in values)]
    assert f1(best_threshold(values, true)) == max(map(f1, every))


def test_a_label_of_no_row_is_never_given() -> None:
    assert best_threshold([0.2, 1.0], [False, False]) == 1.0


def test_metrics_are_those_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    draw, sets = random.Random(5), LabelSets(LABELS)
    true, given = ([[draw.random() < 0.4 for _ in LABELS] for _ in range(50)] for _ in range(2))
    for pair in zip(true, given, strict=True):
        sets.add(*({label for label, has in zip(LABELS, each, strict=True) if has} for each in pair))
    assert sets.micro_f1 == pytest.approx(sklearn.f1_score(true, given, average="micro"))
    assert sets.macro_f1 == pytest.approx(sklearn.f1_score(true, given, average="macro"))
    assert sets.subset_accuracy == pytest.approx(sklearn.accuracy_score(true, given))
    precision, recall, f1, _ = sklearn.precision_recall_fscore_support(true, given)
    for place, label in enumerate(LABELS):
        found = sets.of(label)
        assert [found.precision, found.recall, found.f1] == pytest.approx([precision[place], recall[place], f1[place]])


def test_held_out_rows_of_shares_that_separate_get_exactly_their_labels() -> None:
    draw = random.Random(1)
    true = [frozenset(label for label in LABELS if draw.random() < 0.5) for _ in range(60)]
    shares = [{label: 0.7 if label in each else 0.1 for label in LABELS} for each in true]
    least, judged = cross_validated(list(zip(shares, true, strict=True)), LABELS, range(60))
    assert least == pytest.approx(dict.fromkeys(LABELS, 0.4))
    assert judged.subset_accuracy == judged.micro_f1 == judged.macro_f1 == 1


def test_rows_that_occur_twice_change_no_threshold_and_no_metric() -> None:
    """The shares say nothing of the labels, so that a threshold that has seen the row would give better metrics."""
    draw = random.Random(2)
    true = [frozenset(label for label in LABELS if draw.random() < 0.5) for _ in range(40)]
    rows = [({label: draw.random() for label in LABELS}, each) for each in true]
    least, judged = cross_validated(rows, LABELS, range(40))
    again, twice = cross_validated([*rows, *rows[::-1]], LABELS, [*range(40), *reversed(range(40))])
    assert again == pytest.approx(least)
    assert (twice.n, twice.macro_f1) == (80, pytest.approx(judged.macro_f1))
    assert [twice.micro_f1, twice.subset_accuracy] == pytest.approx([judged.micro_f1, judged.subset_accuracy])


def test_think_calibrate_predict_and_eval_give_several_labels(tmp_path: Path, capsys: Captured) -> None:
    demonstrations, given = (
        rows(tmp_path / name, of) for name, of in (("demos.jsonl", DEMONSTRATIONS), ("rows.jsonl", labelled(30)))
    )
    memory = str(tmp_path / "memory.safetensors")
    output(capsys, "think", demonstrations, "-m", "pocket", "-T", "2", "-o", memory)
    assert load_memory(memory).provenance.demonstrations.template.label_separator == ","
    assert calibrate(memory, given).metadata.thresholds is not None
    stored = load_memory(memory).provenance.thresholds
    predicted = rows_of(capsys, "predict", memory, given)
    assert all(set(row["labels"]) <= set(LABELS) for row in predicted)
    found = json_of(capsys, "eval", memory, given, "--json")
    assert found["thresholds"] == stored.at
    assert found["fitted_on_these_rows"]
    exact = sum(set(row["labels"]) == set(row["input"]["labels"]) for row in predicted)
    assert found["results"][-1]["subset_accuracy"] == pytest.approx(exact / 30)
    assert found["judged"]["metric"] == "micro_f1"
    exactly = output(capsys, "eval", memory, given, "--json", "--fail-under", f"subset_accuracy={exact / 30}")
    assert json.loads(exactly)["judged"]["value"] == pytest.approx(exact / 30)


def test_what_has_one_label_only_is_refused_by_name(tmp_path: Path, capsys: Captured) -> None:
    demonstrations, given = (
        rows(tmp_path / name, of) for name, of in (("demos.jsonl", DEMONSTRATIONS), ("rows.jsonl", labelled(30)))
    )
    memory = str(tmp_path / "memory.safetensors")
    output(capsys, "think", demonstrations, "-m", "pocket", "-T", "1", "-o", memory)
    with pytest.raises(InputError, match="several labels"):
        calibrate(memory, given, calibrate="batch")
    with pytest.raises(InputError, match="several labels"):
        Threshold.of("0.8").check_possible(True, True, several=True)


def test_copies_of_a_row_are_no_more_rows_for_thresholds(tmp_path: Path) -> None:
    memory = str(tmp_path / "memory.safetensors")
    assert run(["think", rows(tmp_path / "demos.jsonl", DEMONSTRATIONS), "-T", "1", "-q", "-o", memory]) == 0
    with pytest.raises(InputError, match="10 different rows that the memory has not read; thresholds need 20"):
        calibrate(memory, rows(tmp_path / "rows.jsonl", labelled(10) * 3))
