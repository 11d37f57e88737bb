"""Tuning as a library: settings compared on held-out rows, and the memory that is made of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEMPLATE
from helpers.chats import write_chat_model
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Engine,
    Example,
    Memory,
    Query,
    Template,
    load_memory,
    load_model,
    predict,
    think,
)
from deepthink_cli import tokenize_demonstrations as tokenize
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Progress
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.selection.features import Observer
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tuning.held_out import held_out_scores, training_sets
from deepthink_cli.tuning.nested import Comparison
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, plan_tuning
from deepthink_cli.tuning.tune import TuneReport, tune

LABELS = ("negative", "positive")
WORDS = ["warm", "dull", "wise", "flat", "tender", "cold", "lively", "stale", "kind"]
ROWS = [(f"a {word} film", LABELS[(place + 1) % 2]) for place, word in enumerate(WORDS)]


def labelled(rows: Sequence[tuple[str, str]] = ROWS, **more: Any) -> LabelledRows:
    queries = [Query(text, LABELS, label, f"rows:{place}") for place, (text, label) in enumerate(rows, start=1)]
    return LabelledRows(PoolRows.of("rows", queries, Template(TEMPLATE), LABELS), **more)


def planned(engine: Engine, rows: LabelledRows | None = None, **options: Any) -> TunePlan:
    checked = TuneOptions.checked(**{"iterations": 3, "etas": "0.1,0.5", "folds": "3", **options})
    return plan_tuning(rows or labelled(), ModelOptions.checked(model=engine.identity.id), checked)


def by_hand(engine: Engine, plan: TunePlan, rows: Sequence[int], scored: Sequence[int], setting: Any) -> list[str]:
    """The labels of some rows after a memory of others, by thinking and predicting alone."""
    demonstrations = tokenize(engine.tokenizer, plan.rows.demonstrations(rows))
    *_, memory = think(engine, demonstrations, setting.method)
    predictions = list(predict(engine, memory, [plan.rows.queries[row] for row in scored]))
    if setting.calibration == "none":
        return [prediction.label for prediction in predictions]
    corrected = Calibrator(engine, [[memory]], [setting.calibration])(predictions)
    return [prediction.calibrated[setting.calibration].prediction.label for prediction in corrected]


@pytest.mark.parametrize("calibrate", ["none", "contextual,domain,pmi"])
def test_every_setting_is_judged_by_thinking_about_the_other_folds(llama: Engine, calibrate: str) -> None:
    plan = planned(llama, calibrate=calibrate, momentums="0.9", positions="restarted,continued")
    report = tune(plan, engine=llama)
    for number in range(0, len(report.settings), 3):
        setting, right = report.settings[number], 0
        for fold in plan.folds:
            rest = [row for row in plan.order if row not in fold]
            labels = by_hand(llama, plan, rest, fold, setting)
            right += sum(label == plan.rows.queries[row].gold for label, row in zip(labels, fold, strict=True))
        assert report.right[number] == right, setting


def test_scores_without_two_folds_are_those_of_a_memory_of_the_third(llama: Engine) -> None:
    plan = planned(llama)
    sets = training_sets(plan, llama, None, lambda _: None)
    scores = held_out_scores(llama, plan.rows, sets, plan.grid, lambda _: None)
    (place,) = [place for place, each in enumerate(sets) if each.held_out == (0, 2)]
    assert sets[place].rows == (*plan.folds[0], *plan.folds[2])
    rest = [row for row in plan.order if row in plan.folds[1]]
    *_, memory = think(llama, tokenize(llama.tokenizer, plan.rows.demonstrations(rest)), plan.grid.methods[1])
    queries = [plan.rows.queries[row] for row in sets[place].rows]
    expected = [list(prediction.scores.values()) for prediction in predict(llama, memory, queries)]
    np.testing.assert_allclose(scores[place]["none"][1, 2], expected, rtol=1e-4, atol=1e-4)


def better(report: TuneReport, number: int) -> TuneReport:
    """The report as if a setting had been better beyond noise."""
    return replace(report, best=number, comparison=Comparison(20, 15, 5, 10, 0))


def test_the_memory_is_that_of_think_with_the_choice(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(llama)
    number = len(plan.grid.settings) - 1
    monkeypatch.setattr(TuneReport, "kept", property(lambda self: number))
    report = tune(plan, tmp_path / "mem.safetensors", engine=llama)
    memory = load_memory(tmp_path / "mem.safetensors")
    setting = plan.grid.settings[number]
    *_, expected = think(llama, tokenize(llama.tokenizer, plan.rows.demonstrations(plan.order)), setting.method)
    assert memory.provenance is not None
    assert memory.provenance.tuned == report.tuned
    assert replace(memory.provenance, tuned=None) == expected.provenance
    assert all(map(torch.equal, (*memory.keys, *memory.values), (*expected.keys, *expected.values)))


def test_plain_in_context_learning_is_kept_unless_the_choice_is_better_beyond_noise(llama: Engine) -> None:
    report = tune(planned(llama), engine=llama)
    noise = replace(report, best=4, comparison=Comparison(9, 8, 3, 5, 0))
    assert (noise.kept, noise.setting.method.iterations, noise.tuned.accuracy) == (0, 1, 3 / 9)
    chosen = better(report, 4)
    assert (chosen.kept, chosen.setting, chosen.tuned.accuracy) == (4, report.settings[4], 15 / 20)
    assert (chosen.as_json()["difference_beyond_noise"], noise.as_json()["difference_beyond_noise"]) == (True, False)


def test_the_order_of_the_rows_changes_nothing(llama: Engine) -> None:
    forward, backward = (tune(planned(llama, labelled(rows)), engine=llama) for rows in (ROWS, ROWS[::-1]))
    assert forward.right == backward.right
    assert forward.plan.rows.demonstrations(forward.plan.order) == backward.plan.rows.demonstrations(
        backward.plan.order
    )


def test_demonstrations_are_chosen_from_the_rows_that_are_not_held_out(llama: Engine, tmp_path: Path) -> None:
    plan = planned(llama, folds="4", shots=2, demos_by="first,entropy", calibrate="domain")
    sets = training_sets(plan, llama, None, lambda _: None)
    names = [plan.grid.selections[each.selection] for each in sets]
    assert names == [name for name in ("random", "first", "entropy") for _ in range(10)]
    for each in sets:
        scored = {plan.rows.queries[row].text for row in each.rows}
        texts = {example.text for example in each.demonstrations.examples}
        assert len(texts) == 2
        assert not texts & scored
    report = tune(plan, tmp_path / "mem.safetensors", engine=llama)
    memory = load_memory(tmp_path / "mem.safetensors")
    assert memory.provenance is not None
    assert memory.provenance.selected is not None
    assert (memory.provenance.selected.method, memory.provenance.selected.shots) == (report.setting.selection, 2)


def test_rows_with_candidates_of_their_own_are_tuned_without_the_calibrations_that_compare_rows(llama: Engine) -> None:
    queries = [
        Query(f"a {word} film", ("good", "bad", "odd")[: 2 + place % 2], "good") for place, word in enumerate(WORDS)
    ]
    rows = LabelledRows(PoolRows.of("rows", queries, Template(TEMPLATE), ()))
    assert planned(llama, rows).grid.calibrations == ("none",)
    report = tune(planned(llama, rows, calibrate="contextual"), engine=llama)
    assert report.comparison.rows == len(WORDS)
    with pytest.raises(InputError, match="calibrate batch"):
        planned(llama, rows, calibrate="batch")


def test_conversations_are_tuned_in_conversations(tmp_path: Path) -> None:
    engine = load_model(str(write_chat_model(tmp_path / "model")))
    plan = planned(engine, labelled(ROWS[:6], chat=Chat()), iterations=2, positions="restarted")
    tune(plan, tmp_path / "mem.safetensors", engine=engine)
    provenance = load_memory(tmp_path / "mem.safetensors").provenance
    assert provenance is not None
    assert provenance.demonstrations.chat is not None


def test_progress_ends_at_its_total_and_identical_rows_are_counted(llama: Engine) -> None:
    events: list[Any] = []
    rows = labelled([*ROWS, ROWS[0], ROWS[1]])
    options = TuneOptions.checked(iterations=2, folds="3")
    plan = plan_tuning(rows, ModelOptions.checked(model=llama.identity.id), options, events.append)
    assert [event.text for event in events if isinstance(event, Note)][-1].startswith("2 rows are identical")
    tune(plan, engine=llama, tell=events.append)
    steps = [event for event in events if isinstance(event, Progress)]
    assert all(before.done < after.done for before, after in pairwise(steps))
    assert steps[-1].done == steps[-1].total == 6 * 2 * 2


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS[:5], {}, "5 different rows; give 6 at least"),
        ([(text, "positive") for text, _ in ROWS], {}, "one label only, 'positive'"),
        ([*((text, "positive") for text, _ in ROWS[:8]), ("b", "negative")], {}, "'negative' has 1 rows"),
        (ROWS, {"folds": "10"}, "folds 10: rows has 9 different texts; use 3 to 9, or loo"),
        (ROWS, {"folds": "2"}, "use 3 to 9"),
        (ROWS, {"shots": 4}, "shots 4: with two of 3 folds held out, 3 rows are left"),
        (ROWS, {"demos_by": "first"}, "demos_by first: only with shots"),
        (ROWS, {"shots": 2, "demos_by": "best"}, "demos_by best: use random"),
        ([(f"{text} " + "long " * 60, label) for text, label in ROWS], {}, "demonstrations too long: L = "),
        ([(f"{text} " + "long " * 60, label) for text, label in ROWS], {"shots": 3}, "demonstrations too long: L = "),
    ],
)
def test_rows_and_options_that_cannot_work_are_refused_before_the_weights_are_loaded(
    llama: Engine, rows: Sequence[tuple[str, str]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        planned(llama, labelled(rows), **options)
    assert message in refused.value.messages[0]


def test_labelled_examples_become_the_same_demonstrations(llama: Engine) -> None:
    rows = labelled()
    examples = [Example(str(rows.queries[row].text), str(rows.queries[row].gold)) for row in (2, 0)]
    assert rows.demonstrations([2, 0]) == DemonstrationSet.of(examples, TEMPLATE, LABELS)


def test_a_bias_of_few_rows_is_refused_if_it_is_named_and_not_tried_by_default(llama: Engine) -> None:
    with pytest.raises(InputError, match=r"^calibrate prior: .* there are only 6"):  # of 9, without one of three folds
        planned(llama, folds="3", calibrate="none,prior,contextual")
    assert planned(llama, folds="3").grid.calibrations == ("none",)


MANY = [(f"{kind} {word} film", LABELS[(place + len(kind)) % 2]) for place, word in enumerate(WORDS) for kind in "abcd"]
MORE = [(f"{text} {end}", label) for text, label in MANY for end in ("here", "now")]


def stored_by(llama: Engine, plan: TunePlan, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The memory that tune writes if the third reading of the only gate with a calibration is chosen."""
    numbers = [number for number, each in enumerate(plan.grid.settings) if each.calibration == name]
    monkeypatch.setattr(TuneReport, "kept", property(lambda self: numbers[-1]))
    tune(plan, folder / "mem.safetensors", engine=llama)
    return load_memory(folder / "mem.safetensors")


def bias_of(name: str, llama: Engine, memory: Memory, plan: TunePlan, rows: Sequence[int]) -> Any:
    """The bias by a calibration, by its own function, of some rows after a memory."""
    predictions = predict(llama, memory, [plan.rows.queries[row] for row in rows])
    gold = [plan.rows.gold[row] for row in rows] if name == "fitted" else None
    return CALIBRATIONS[name].bias(log_softmax([list(each.scores.values()) for each in predictions]), gold)


@pytest.mark.parametrize("name", ["fitted", "batch"])
def test_a_bias_of_rows_is_that_of_the_rows_which_the_memory_has_not_read(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = planned(llama, labelled(MORE), calibrate=name, etas="0.5", shots=4)
    memory, right = stored_by(llama, plan, name, tmp_path, monkeypatch), 0
    assert memory.provenance is not None
    read, stored = {each.text for each in memory.provenance.demonstrations.examples}, memory.provenance.calibrated
    unread = [row for row, query in enumerate(plan.rows.queries) if query.text not in read]
    assert stored is not None
    assert (stored.method, stored.inputs, stored.source, sorted(stored.bias)) == (name, len(unread), "rows", ["1", "3"])
    expected = bias_of(name, llama, memory, plan, unread)
    assert list(stored.bias["3"].compared.values()) == pytest.approx(expected.tolist(), abs=1e-3)
    report = tune(plan, engine=llama)
    for each in training_sets(plan, llama, None, lambda _: None):
        if len(each.held_out) == 1:
            *_, without = think(llama, each.demonstrations, report.setting.method)
            bias = bias_of(name, llama, without, plan, each.unread)
            predictions = predict(llama, without, [plan.rows.queries[row] for row in each.rows])
            labels = [(log_softmax([*found.scores.values()]) - bias).argmax() for found in predictions]
            right += sum(label == plan.rows.gold[row] for label, row in zip(labels, each.rows, strict=True))
            assert not {*each.unread} & {*each.rows}
    assert report.right[report.kept] == right


@pytest.mark.parametrize("name", ["fitted", "batch"])
def test_if_all_rows_are_read_the_bias_is_that_of_their_held_out_scores(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = planned(llama, labelled(MANY[:30]), calibrate=name, etas="0.5", positions="restarted")
    memory, scores = stored_by(llama, plan, name, tmp_path, monkeypatch), np.empty((30, 2))
    assert memory.provenance is not None
    stored = memory.provenance.calibrated
    assert stored is not None
    assert (stored.method, stored.inputs) == (name, 30)
    for fold in plan.folds:
        rest = plan.rows.demonstrations([row for row in plan.order if row not in fold])
        *_, without = think(llama, tokenize(llama.tokenizer, rest), memory.provenance.method)
        for row, each in zip(fold, predict(llama, without, [plan.rows.queries[row] for row in fold]), strict=True):
            scores[row] = list(each.scores.values())
    bias = CALIBRATIONS[name].bias(log_softmax(scores), plan.rows.gold if name == "fitted" else None)
    assert list(stored.bias["3"].compared.values()) == pytest.approx(bias.tolist(), abs=1e-3)


def test_classifiers_are_trained_without_the_rows_that_they_label(llama: Engine) -> None:
    """Words that tell the label are learned; words that no other fold has teach nothing."""
    told = [(f"{text}, {'good' if label == LABELS[1] else 'bad'}", label) for text, label in MANY]
    words, states = tune(planned(llama, labelled(told), shots=4), engine=llama).rivals
    assert (words.right, words.rows) == (len(MANY), len(MANY))
    assert 0 <= states.right <= len(MANY)
    words_alone = labelled([(word, LABELS[place % 2]) for place, word in enumerate(WORDS)])
    report = tune(planned(llama, words_alone), engine=llama)
    assert report.rivals[0].right < len(WORDS)
    assert report.as_json()["rivals"][0]["accuracy"] == report.rivals[0].right / len(WORDS)


def test_the_head_on_hidden_states_is_logistic_regression_on_their_mean(llama: Engine) -> None:
    plan = planned(llama, labelled(MANY), shots=4)
    queries, right = plan.rows.queries, 0
    tokens = Observer(llama, Template(TEMPLATE), queries, every_token=True)(queries).tokens
    assert tokens is not None
    means = np.array([states.mean(axis=0) for states in tokens])
    for fold in plan.folds:
        others = [row for row in range(len(queries)) if row not in fold]
        scaler = StandardScaler().fit(means[others])
        head = LogisticRegression(max_iter=1000).fit(scaler.transform(means[others]), np.array(plan.rows.gold)[others])
        right += int((head.predict(scaler.transform(means[list(fold)])) == np.array(plan.rows.gold)[list(fold)]).sum())
    assert tune(plan, engine=llama).rivals[1].right == right


def test_without_scikit_learn_no_classifier_is_compared(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepthink_cli.tuning.rivals.find_spec", lambda name: None)
    told: list[object] = []
    assert tune(planned(llama), engine=llama, tell=told.append).rivals == ()
    assert [str(each) for each in told if isinstance(each, Note) and "scikit-learn" in each.text]


def test_a_budget_tries_as_many_readings_as_fit_it(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two readings in 1 s, 3 folds (6 sets) and 2 gates, each T takes 6 s."""
    times = iter([0.0, 1.0, 0.0, 1.0])
    monkeypatch.setattr("deepthink_cli.tuning.held_out.clock", lambda: next(times))
    told: list[object] = []
    report = tune(planned(llama, iterations=9, budget="20s"), engine=llama, tell=told.append)
    assert max(setting.method.iterations for setting in report.settings) == 3
    assert "budget 20s: T up to 3 is tried instead of 9; each T takes about 6 s" in [
        each.text for each in told if isinstance(each, Note)
    ]
    assert {each.method.iterations for each in tune(planned(llama, budget="1s"), engine=llama).settings} == {1}


@pytest.mark.parametrize("budget", ["10", "0m", "1.5h", "m", "-1s", "10 m"])
def test_a_budget_is_a_number_with_a_unit(llama: Engine, budget: str) -> None:
    with pytest.raises(InputError, match=r"budget .*: a time in seconds, minutes or hours, as in 90s, 10m or 2h"):
        planned(llama, budget=budget)
