"""What think and eval say to do next: one sentence for each sign, and none where there is no sign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.chats import write_chat_model
from helpers.said import Captured

from deepthink_cli.advice import few_demonstrations, few_evaluated, no_better_than_constant, no_difference, strong_bias
from deepthink_cli.cli.main import run


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
    assert "eta" not in no_difference(5, 0.4)[0]  # a larger one is worse in the mean


def test_a_memory_that_is_right_as_often_as_one_label_is_said_to_be() -> None:
    assert no_better_than_constant(0.4, ("a", 0.35), unused_chat=True) == []
    assert no_better_than_constant(0.1, None, unused_chat=True) == []  # every row has candidates of its own
    (sentence,), (with_chat,) = (no_better_than_constant(0.35, ("a", 0.35), unused) for unused in (False, True))
    assert sentence.startswith(
        "always answering 'a' is right at least as often (35.0%): compare corrections (calibrate "
    )
    assert ("think chat" in sentence, "think chat" in with_chat) == (False, True)


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Nine reviews, eight of which are positive."""
    rows = [{"review": f"a warm film, number {n}", "sentiment": "positive"} for n in range(8)]
    return write_rows(tmp_path / "rows.jsonl", [*rows, {"review": "a dull film", "sentiment": "negative"}])


def test_think_and_eval_give_the_advice_on_stderr_and_in_json(
    reviews: Path, models: Models, tmp_path: Path, capsys: Captured
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


REVIEWS = Path(__file__).parent.parent / "examples" / "reviews"


def rows_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (REVIEWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def judged(memory: Path, capsys: Captured, *options: str) -> tuple[float, str]:
    """The accuracy that stands for a memory on the reviews, and what eval says beside it."""
    capsys.readouterr()
    assert run(["eval", str(memory), str(REVIEWS / "labelled.jsonl"), "--json", *options]) == 0
    out, err = capsys.readouterr()
    return json.loads(out)["judged"]["value"], err


@pytest.fixture
def one_label(tmp_path: Path, capsys: Captured) -> tuple[Path, float, str]:
    """A memory of positive reviews alone; its accuracy, and what think and eval say to do."""
    positive = [row for row in rows_of("demos") if row["sentiment"] == "positive"]
    demos, memory = write_rows(tmp_path / "positive.jsonl", list(positive)), tmp_path / "positive.safetensors"
    words = ["think", str(demos), "-m", "pocket", "--labels", "negative,positive", "-T", "2", "-o", str(memory)]
    assert run(words) == 0
    thought = capsys.readouterr().err
    accuracy, told = judged(memory, capsys)
    return memory, accuracy, thought + told


def test_rows_of_a_label_that_has_few_make_figures_better(
    one_label: tuple[Path, float, str], tmp_path: Path, capsys: Captured
) -> None:
    _, accuracy, told = one_label
    assert "few of the 8 demonstrations have the labels 'negative' (0): add rows of them" in told
    added = tmp_path / "added.safetensors"
    assert run(["think", str(REVIEWS / "demos.jsonl"), "-m", "pocket", "-T", "2", "-q", "-o", str(added)]) == 0
    assert judged(added, capsys)[0] > accuracy


def test_a_stored_correction_makes_figures_of_a_biased_memory_better(
    one_label: tuple[Path, float, str], capsys: Captured
) -> None:
    memory, accuracy, told = one_label
    assert f"store a correction of that bias with deepthink calibrate {memory} [ROWS]" in told
    assert run(["calibrate", str(memory), "-q"]) == 0
    assert judged(memory, capsys)[0] > accuracy


@pytest.mark.parametrize("name", ["contextual", "domain", "batch"])
def test_each_correction_to_compare_makes_figures_of_one_label_better(
    name: str, one_label: tuple[Path, float, str], capsys: Captured
) -> None:
    memory, accuracy, told = one_label
    assert "is right at least as often (50.0%): compare corrections" in told
    assert "(--calibrate contextual,domain,batch), and other models" in told  # the model has no chat template
    assert "100 % of the answers are 'positive', but only 50 % of the rows: try --calibrate batch" in told
    assert judged(memory, capsys, "--calibrate", name)[0] > accuracy


def test_what_tune_keeps_is_no_worse_than_the_memory_whose_thinking_changed_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    memory, tuned = tmp_path / "mem.safetensors", tmp_path / "tuned.safetensors"
    rows = rows_of("demos")
    demos = write_rows(tmp_path / "demos.jsonl", [row for row in rows if row["sentiment"] == "positive"] + rows[:1])
    assert run(["think", str(demos), "-m", "pocket", "-T", "5", "-q", "-o", str(memory)]) == 0
    accuracy, told = judged(memory, capsys)
    assert "next: T = 5 and T = 1 are equally good on these rows, within chance: deepthink tune ROWS says" in told
    words = ["tune", str(REVIEWS / "demos.jsonl"), "-m", "pocket", "-T", "2", "--technique", "deep-thinking"]
    assert run([*words, "--folds", "3", "-q", "-o", str(tuned)]) == 0
    assert judged(tuned, capsys)[0] >= accuracy


def test_rows_of_one_label_call_for_rows_of_others() -> None:
    assert no_better_than_constant(1.0, ("a", 1.0), True) == ["all rows have the label 'a': give rows of the others"]


def test_a_chat_template_is_named_only_where_the_memory_is_no_better_than_one_label(
    tmp_path: Path, capsys: Captured
) -> None:
    model, memory = write_chat_model(tmp_path / "model"), tmp_path / "mem.safetensors"
    rows = [{"review": f"film {n}", "sentiment": ("negative", "positive")[n % 2]} for n in range(8)]
    given = [str(write_rows(tmp_path / "rows.jsonl", list(rows))), "-m", str(model), "-T", "1"]
    assert run(["think", *given, "-o", str(memory)]) == 0
    assert run(["tune", *given, "--folds", "3", "--technique", "deep-thinking", "--calibrate", "none"]) == 0
    out, err = capsys.readouterr()
    assert "--chat" not in out + err

    def told(label: str, *options: str) -> str:
        """What eval says where that label is the true one of all rows but one."""
        other, *most = rows
        labelled = write_rows(tmp_path / "labelled.jsonl", [other, *({**row, "sentiment": label} for row in most)])
        assert run(["eval", str(memory), str(labelled), *options]) == 0
        return capsys.readouterr().err

    assert "a memory made with deepthink think --chat" in told("positive")
    assert "--chat" not in told("positive", "-q")
    assert run(["think", *given, "--chat", "-q", "-o", str(memory)]) == 0
    assert "--chat" not in told("positive")
