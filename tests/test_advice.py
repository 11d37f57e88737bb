"""What think and eval say to do next: one sentence for each sign, and none where there is no sign."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import write_rows

from deepthink_cli.advice import (
    few_demonstrations,
    few_evaluated,
    no_better_than_constant,
    no_difference,
    strong_bias,
)
from deepthink_cli.cli.main import run

Captured = pytest.CaptureFixture[str]


def test_labels_with_less_than_a_quarter_of_the_most_frequent_one_have_few_demonstrations() -> None:
    assert few_demonstrations({"World": 4, "Sports": 1, "Tech": 3}) == []
    (sentence,) = few_demonstrations({"World": 3, "Sports": 0})
    assert sentence == "few of the 3 demonstrations have the labels 'Sports' (0): add rows of them"
    (sentence,) = few_demonstrations({"a": 9, "b": 1, "c": 2, "d": 0, "e": 1})
    assert "'b' (1), 'c' (2), 'd' (0), 1 more" in sentence
    assert few_demonstrations({}) == []


def test_a_bias_is_strong_beyond_three_tenths_of_the_way_from_equal_shares_to_certainty() -> None:
    assert strong_bias({"a": 0.64, "b": 0.36}, "m") == []
    (sentence,) = strong_bias({"a": 0.05, "b": 0.95}, "m.safetensors")
    assert sentence.startswith("'b' has 95% of the probability after texts without content")
    assert sentence.endswith("deepthink calibrate m.safetensors [ROWS]")


def test_few_evaluated_rows_of_some_labels_are_named_but_not_of_all() -> None:
    assert few_evaluated({"a": 5, "b": 9}) == []
    assert few_evaluated({"a": 2, "b": 3}) == []
    assert "'b' (4)" in few_evaluated({"a": 40, "b": 4})[0]


def test_no_difference_is_one_that_chance_explains() -> None:
    assert no_difference(5, 0.01) == []
    assert no_difference(5, 0.4)[0].startswith("T = 5 and T = 1 are equally good on these rows, within chance")


def test_a_memory_that_is_right_as_often_as_one_label_is_said_to_be() -> None:
    assert no_better_than_constant(0.4, ("a", 0.35), chat=False) == []
    assert no_better_than_constant(0.1, None, chat=False) == []  # every row has candidates of its own
    (sentence,), (of_a_chat,) = (no_better_than_constant(0.35, ("a", 0.35), chat) for chat in (False, True))
    assert sentence.startswith(
        "always answering 'a' is right at least as often (35.0%): compare corrections (calibrate "
    )
    assert ("made with chat" in sentence, "made with chat" in of_a_chat) == (True, False)


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Nine reviews, eight of which are positive."""
    rows = [{"review": f"a warm film, number {n}", "sentiment": "positive"} for n in range(8)]
    return write_rows(tmp_path / "rows.jsonl", [*rows, {"review": "a dull film", "sentiment": "negative"}])


def test_think_and_eval_give_the_advice_on_stderr_and_in_json(
    reviews: Path, models: Callable[[str], Path], tmp_path: Path, capsys: Captured
) -> None:
    path, model = tmp_path / "mem.safetensors", str(models("llama"))
    few = "few of the 9 demonstrations have the labels 'negative' (1): add rows of them"
    assert run(["think", str(reviews), "-m", model, "-T", "2", "-o", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert few in json.loads(out)["next"]
    assert f"next: {few}\n" in err
    assert run(["eval", str(path), str(reviews), "--json"]) == 0
    out, err = capsys.readouterr()
    advice = json.loads(out)["next"]
    assert few in advice
    assert len(advice) <= 3
    assert [line.removeprefix("next: ") for line in err.splitlines() if line.startswith("next: ")] == advice
    for words in (["think", str(reviews), "-m", model, "-q", "-o", str(path)], ["eval", str(path), str(reviews), "-q"]):
        assert run(words) == 0
        assert "next:" not in capsys.readouterr().err
