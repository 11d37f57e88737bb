"""Tuning as a library: settings compared on held-out rows, and the memory that is made of the choice."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEMPLATE, Models
from helpers.chats import write_chat_model
from helpers.soak import with_soak
from helpers.tuned import LABELS, MANY, MORE, ROWS, WORDS, labelled, planned

from deepthink_cli import Chat, Engine, Memory, Query, Template, load_memory, load_model, predict, think
from deepthink_cli import tokenize_demonstrations as tokenize
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.engine.base import Reading, ScoringPlan, Sums
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Progress, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tuning import held_out
from deepthink_cli.tuning.held_out import held_out_scores, training_sets
from deepthink_cli.tuning.nested import Comparison, Excess
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, plan_tuning
from deepthink_cli.tuning.tune import TuneReport, tune


def by_hand(engine: Engine, plan: TunePlan, rows: Sequence[int], scored: Sequence[int], setting: Any) -> list[str]:
    """The labels of some rows after a memory of others, by thinking and predicting alone."""
    read = setting.technique.change(plan.rows.demonstrations(rows))
    *_, memory = think(engine, tokenize(engine.tokenizer, read), setting.method)
    predictions = list(predict(engine, memory, [plan.rows.queries[row] for row in scored]))
    if setting.calibration == "none":
        return [prediction.label for prediction in predictions]
    corrected = Calibrator([setting.calibration], memory.origin.demonstrations.labels, engine, [[memory]])(predictions)
    return [prediction.calibrated[setting.calibration].prediction.label for prediction in corrected]


@pytest.mark.plugins
def test_every_setting_is_judged_by_thinking_about_the_other_folds(llama: Engine) -> None:
    more = {"momentums": "0.9", "positions": "restarted,continued", "techniques": "composed,repeat-2"}
    plan = planned(llama, calibrate="none,contextual,domain,pmi", **more)
    report = tune(plan, engine=llama)
    for number in range(0, len(report.settings), 5):
        setting, right = report.settings[number], 0
        for fold in plan.folds:
            rest = [row for row in plan.order if row not in fold]
            labels = by_hand(llama, plan, rest, fold, setting)
            right += sum(label == plan.rows.queries[row].gold for label, row in zip(labels, fold, strict=True))
        assert report.right[number] == right, setting


def test_nothing_is_read_or_scored_twice(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, given = planned(llama, iterations=3, calibrate="contextual"), Counter[tuple[object, ...]]()
    read, score = BatchedEngine.read, BatchedEngine.score

    def last_keys(memory: Memory | None) -> bytes:
        return b"" if memory is None else memory.keys[-1].numpy().tobytes()

    def noted_reading(engine: BatchedEngine, readings: Sequence[Reading]) -> list[Memory]:
        given.update((each.token_ids, last_keys(each.history), each.start) for each in readings)
        return read(engine, readings)

    def noted_rows(engine: BatchedEngine, memories: Sequence[Memory], queries: ScoringPlan) -> list[Sums]:
        given.update((each.prefix, last_keys(memory)) for memory in memories for each in queries.queries)
        return score(engine, memories, queries)

    monkeypatch.setattr(BatchedEngine, "read", noted_reading)
    monkeypatch.setattr(BatchedEngine, "score", noted_rows)
    sets = training_sets(plan, llama, None, lambda _: None)
    held_out_scores(llama, plan.rows, sets, plan.grid, lambda _: None)
    assert {len(each) for each in given} == {2, 3}  # rows and readings
    assert given.total() == len(given)


def test_scores_without_two_folds_are_those_of_a_memory_of_the_third(llama: Engine) -> None:
    plan = planned(llama)
    sets = training_sets(plan, llama, None, lambda _: None)
    scores = held_out_scores(llama, plan.rows, sets, plan.grid, lambda _: None).scores
    (place,) = [place for place, each in enumerate(sets) if each.held_out == (0, 2)]
    assert sets[place].rows == (*plan.folds[0], *plan.folds[2])
    rest = [row for row in plan.order if row in plan.folds[1]]
    *_, memory = think(llama, tokenize(llama.tokenizer, plan.rows.demonstrations(rest)), plan.grid.methods[1])
    queries = [plan.rows.queries[row] for row in sets[place].rows]
    expected = [list(prediction.scores.values()) for prediction in predict(llama, memory, queries)]
    np.testing.assert_allclose(scores[place]["none"][0, 1, 2], expected, rtol=1e-4, atol=1e-4)


def better(report: TuneReport, number: int) -> TuneReport:
    """The report as if a setting had been better beyond noise."""
    right = tuple(15 if place == number else 5 for place in range(len(report.right)))
    return replace(report, best=number, right=right, comparison=Comparison(20, 15, 5, 10, 0))


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
    assert memory.provenance.tuned == report.tuned
    assert replace(memory.provenance, tuned=None) == expected.provenance
    assert all(map(torch.equal, (*memory.keys, *memory.values), (*expected.keys, *expected.values)))


def test_plain_in_context_learning_is_kept_unless_the_choice_is_better_beyond_noise(llama: Engine) -> None:
    report = tune(planned(llama), engine=llama)
    noise = replace(report, best=4, right=(3, *report.right[1:]), comparison=Comparison(9, 8, 3, 5, 0))
    assert (noise.kept, noise.setting.method.iterations, noise.tuned.accuracy) == (0, 1, 3 / 9)
    chosen = better(report, 4)
    assert (chosen.kept, chosen.setting, chosen.tuned.accuracy) == (4, report.settings[4], 15 / 20)
    assert (chosen.as_json()["difference_beyond_noise"], noise.as_json()["difference_beyond_noise"]) == (True, False)


def test_the_excess_is_that_of_labels_by_memories_that_have_not_read_the_rows(models: Models) -> None:
    engine = load_model(str(models("qwen3")))
    plan = planned(engine, iterations=1)
    given, (plain, *_) = Counter[str](), plan.grid.settings
    for fold in plan.folds:
        given.update(by_hand(engine, plan, [row for row in plan.order if row not in fold], fold, plain))
    ((label, count),) = given.most_common(1)
    true = [query.gold for query in plan.rows.queries].count(label)
    assert count == len(ROWS) > true
    assert tune(plan, engine=engine).excess == Excess(label, count, true)


def test_the_order_of_the_rows_changes_nothing(llama: Engine) -> None:
    forward, backward = (tune(planned(llama, labelled(rows)), engine=llama) for rows in (ROWS, ROWS[::-1]))
    assert forward.right == backward.right
    assert forward.plan.rows.demonstrations(forward.plan.order) == backward.plan.rows.demonstrations(
        backward.plan.order
    )


@pytest.mark.plugins
def test_demonstrations_are_chosen_from_the_rows_that_are_not_held_out(llama: Engine, tmp_path: Path) -> None:
    plan = planned(llama, folds="4", shots=2, demos_by="first,entropy", calibrate="domain")
    sets = training_sets(plan, llama, None, lambda _: None)
    names = [plan.grid.selections[each.selection] for each in sets]
    assert names == [name for name in ("random", "first", "entropy") for _ in range(10)]
    for each in sets:
        scored = {plan.rows.queries[row].text for row in each.rows}
        texts = {example.text for example in each.demonstrations[0].examples}
        assert len(texts) == 2
        assert not texts & scored
    report = tune(plan, tmp_path / "mem.safetensors", engine=llama)
    memory = load_memory(tmp_path / "mem.safetensors")
    assert (memory.provenance.selected.method, memory.provenance.selected.shots) == (report.setting.selection, 2)


def test_rows_with_candidates_of_their_own_are_tuned_without_the_calibrations_that_compare_rows(llama: Engine) -> None:
    queries = [
        Query(f"a {word} film", ("good", "bad", "odd")[: 2 + place % 2], "good") for place, word in enumerate(WORDS)
    ]
    rows = LabelledRows(PoolRows.of("rows", queries, Template(TEMPLATE), ()))
    assert planned(llama, rows, calibrate=None).grid.calibrations == ("none",)
    report = tune(planned(llama, rows, calibrate="contextual"), engine=llama)
    assert report.comparison.rows == len(WORDS)
    with pytest.raises(InputError, match="calibrate batch"):
        planned(llama, rows, calibrate="batch")


def test_conversations_are_tuned_in_conversations(tmp_path: Path) -> None:
    engine = load_model(str(write_chat_model(tmp_path / "model")))
    plan = planned(engine, labelled(ROWS[:6], chat=Chat()), iterations=2, positions="restarted")
    tune(plan, tmp_path / "mem.safetensors", engine=engine)
    provenance = load_memory(tmp_path / "mem.safetensors").provenance
    assert provenance.demonstrations.chat is not None


def test_progress_ends_at_its_total_and_identical_rows_are_counted(llama: Engine) -> None:
    events: list[Any] = []
    rows = labelled([*ROWS, ROWS[0], ROWS[1]])
    options = TuneOptions.checked(iterations=2, folds="3", techniques="deep-thinking")
    plan = plan_tuning(rows, ModelOptions.checked(model=llama.identity.id), options, events.append)
    assert [event.text for event in events if isinstance(event, Note)][-1].startswith("2 rows are identical")
    tune(plan, engine=llama, tell=events.append)
    steps = [event for event in events if isinstance(event, Progress)]
    assert all(before.done < after.done or after.done == 0 for before, after in pairwise(steps))
    ends = [step.total for step, after in pairwise([*steps, steps[0]]) if after.done == 0]
    assert (
        [step.done for step in steps if step.done == step.total] == ends == [6 * 2 * 2]
    )  # two readings with two gates


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS[:5], {}, "5 different rows; give 6 at least"),
        ([(text, "positive") for text, _ in ROWS], {}, "one label only, 'positive'"),
        (
            [*((text, "positive") for text, _ in ROWS[:8]), ("b", "negative")],
            {},
            "'negative' has too few different rows",
        ),
        (ROWS, {"folds": "10"}, "folds 10: rows has 9 different inputs; use 3 to 9, or loo"),
        (ROWS, {"shots": 4}, "shots 4: with two of 3 folds held out, 3 rows are left"),
        (ROWS, {"demos_by": "first"}, "demos_by first: only with shots"),
        (ROWS, {"shots": 2, "demos_by": "best"}, "demos_by best: use random"),
        ([(f"{text} " + "long " * 60, label) for text, label in ROWS], {"shots": 3}, "demonstrations too long: L = "),
    ],
)
def test_rows_and_options_that_cannot_work_are_refused_before_the_weights_are_loaded(
    llama: Engine, rows: Sequence[tuple[str, str]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        planned(llama, labelled(rows), **options)
    assert message in refused.value.messages[0]


@pytest.mark.plugins
def test_a_bias_of_few_rows_is_refused_if_it_is_named_and_not_tried_by_default(llama: Engine) -> None:
    with pytest.raises(InputError, match=r"^calibrate prior: .* not from 6"):  # of 9, without one of three folds
        planned(llama, folds="3", calibrate="none,prior,contextual")
    told: list[object] = []
    options = TuneOptions.checked(folds="3", techniques="deep-thinking")
    plan = plan_tuning(labelled(), ModelOptions.checked(model=llama.identity.id), options, told.append)
    assert plan.grid.calibrations == ("none", "contextual", "domain", "pmi", "centroid", "head")
    assert str(told[0]).count("batch, fitted, fitted-slope, prior: they need 20 rows outside a fold, and there are 6")


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


@pytest.mark.parametrize("name", with_soak(["fitted", "batch"], ["fitted"]))
def test_a_bias_of_rows_is_that_of_the_rows_which_the_memory_has_not_read(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = planned(llama, labelled(MORE), calibrate=name, etas="0.5", shots=4)
    memory, right = stored_by(llama, plan, name, tmp_path, monkeypatch), 0
    read, stored = {each.text for each in memory.provenance.demonstrations.examples}, memory.provenance.calibrated
    unread = [row for row, query in enumerate(plan.rows.queries) if query.text not in read]
    assert (stored.method, stored.inputs, stored.source, sorted(stored.bias)) == (name, len(unread), "rows", ["1", "3"])
    expected = bias_of(name, llama, memory, plan, unread)
    assert list(stored.bias["3"].compared.values()) == pytest.approx(expected.tolist(), abs=1e-3)
    report = tune(plan, engine=llama)
    for each in training_sets(plan, llama, None, lambda _: None):
        if len(each.held_out) == 1:
            *_, without = think(llama, each.demonstrations[0], report.setting.method)
            bias = bias_of(name, llama, without, plan, each.unread)
            predictions = predict(llama, without, [plan.rows.queries[row] for row in each.rows])
            labels = [(log_softmax([*found.scores.values()]) - bias).argmax() for found in predictions]
            right += sum(label == plan.rows.gold[row] for label, row in zip(labels, each.rows, strict=True))
            assert not {*each.unread} & {*each.rows}
    assert report.right[report.kept] == right


@pytest.mark.parametrize("name", with_soak(["fitted", "batch"], ["batch"]))
def test_if_all_rows_are_read_the_bias_is_that_of_their_held_out_scores(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = planned(llama, labelled(MANY[:30]), calibrate=name, etas="0.5", positions="restarted")
    memory, scores = stored_by(llama, plan, name, tmp_path, monkeypatch), np.empty((30, 2))
    stored = memory.provenance.calibrated
    assert (stored.method, stored.inputs) == (name, 30)
    for fold in plan.folds:
        rest = plan.rows.demonstrations([row for row in plan.order if row not in fold])
        *_, without = think(llama, tokenize(llama.tokenizer, rest), memory.provenance.method)
        for row, each in zip(fold, predict(llama, without, [plan.rows.queries[row] for row in fold]), strict=True):
            scores[row] = list(each.scores.values())
    bias = CALIBRATIONS[name].bias(log_softmax(scores), plan.rows.gold if name == "fitted" else None)
    assert list(stored.bias["3"].compared.values()) == pytest.approx(bias.tolist(), abs=1e-3)


def states_of(llama: Engine, memory: Memory, plan: TunePlan, rows: Sequence[int]) -> Any:
    """The hidden states (n, W) of some rows after a memory."""
    queries = [plan.rows.queries[row] for row in rows]
    tokenized = tokenize_queries(llama.tokenizer, memory.provenance.demonstrations, queries)
    return np.stack([each.hidden.numpy() for each in llama.observe(memory, llama.plan(tokenized))])


def nearest(states: Any, rows: Any, gold: Sequence[int]) -> list[int]:
    """The label of the nearest mean of rows, for each state."""
    means = [rows[[place for place, label in enumerate(gold) if label == each]].mean(axis=0) for each in (0, 1)]
    return [int(np.argmin([((state - mean) ** 2).sum() for mean in means])) for state in states]


def between_means(memory: Memory) -> Any:
    """The direction between the means that a memory stores for its last iteration, from the first label's."""
    stored = memory.provenance.calibrated
    weights = stored.head["3"].weights
    of_labels = [np.frombuffer(b64decode(weights[each]), "<f4") for each in memory.provenance.demonstrations.labels]
    return direction((of_labels[1] - of_labels[0])[-len(of_labels[0]) // len(stored.head["3"].layers) :])


def direction(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


@pytest.mark.plugins
def test_centroids_are_those_of_the_rows_which_the_memory_has_not_read(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(llama, labelled(MORE), calibrate="centroid", etas="0.5", shots=4)
    memory, right = stored_by(llama, plan, "centroid", tmp_path, monkeypatch), 0
    read = {each.text for each in memory.provenance.demonstrations.examples}
    unread = [row for row, query in enumerate(plan.rows.queries) if query.text not in read]
    states, gold = states_of(llama, memory, plan, unread), [plan.rows.gold[row] for row in unread]
    means = [states[[place for place, each in enumerate(gold) if each == label]].mean(axis=0) for label in (0, 1)]
    assert between_means(memory) == pytest.approx(direction(means[1] - means[0]), abs=1e-3)
    report = tune(plan, engine=llama)
    for each in training_sets(plan, llama, None, lambda _: None):
        if len(each.held_out) == 1:
            *_, without = think(llama, each.demonstrations[0], report.setting.method)
            rows, others = (states_of(llama, without, plan, places) for places in (each.rows, each.unread))
            labels = nearest(rows, others, [plan.rows.gold[row] for row in each.unread])
            right += sum(label == plan.rows.gold[row] for label, row in zip(labels, each.rows, strict=True))
    assert report.right[report.kept] == right


@pytest.mark.plugins
def test_if_all_rows_are_read_centroids_are_those_of_their_held_out_states(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(llama, labelled(MANY[:30]), calibrate="centroid", etas="0.5", positions="restarted")
    memory, states = stored_by(llama, plan, "centroid", tmp_path, monkeypatch), dict[int, Any]()
    for fold in plan.folds:
        rest = plan.rows.demonstrations([row for row in plan.order if row not in fold])
        *_, without = think(llama, tokenize(llama.tokenizer, rest), memory.provenance.method)
        states |= dict(zip(fold, states_of(llama, without, plan, fold), strict=True))
    means = [np.mean([states[row] for row, y in enumerate(plan.rows.gold) if y == label], axis=0) for label in (0, 1)]
    assert between_means(memory) == pytest.approx(direction(means[1] - means[0]), abs=1e-3)


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("budget", "readings"), [(60, (3, 1, 1)), (17, (1, 1, 0)), pytest.param(None, (9, 9, 1), marks=pytest.mark.soak)]
)
def test_a_budget_tries_t_1_of_every_technique_first_and_then_as_many_readings_as_fit(
    llama: Engine, monkeypatch: pytest.MonkeyPatch, budget: float | None, readings: tuple[int, ...]
) -> None:
    """A scored memory takes 1 s: 6 for T = 1 of 6 sets, 12 for each later T of two gates.

    The first set is scored twice: of 60 s, 21 are spent on T = 1 of three techniques, and 4 on T = 2 and 3 of one set.
    35 are left, in which two more readings end after 24 s, and three after 36.
    """
    plan, seconds = planned(llama, iterations=9, techniques="composed,repeat-2"), [0.0]
    score = held_out._Scorer.score

    def scored(scorer: Any, memories: dict[int, Any]) -> None:
        seconds[0] += len(memories)
        score(scorer, memories)

    sets = training_sets(plan, llama, None, silent)
    monkeypatch.setattr(held_out._Scorer, "score", scored)
    monkeypatch.setattr(held_out, "clock", lambda: seconds[0])
    tried = held_out_scores(llama, plan.rows, sets, plan.grid, silent, budget)
    assert not tried.grid.left_out
    if budget is not None:
        assert seconds[0] <= budget
    assert tried.grid.readings == readings
    assert {each.technique.name for each in tried.grid.settings} == {
        name for name, last in zip(("deep-thinking", "composed", "repeat-2"), readings, strict=True) if last
    }


def test_a_budget_leaves_out_the_corrections_of_most_texts_if_t_1_takes_longer(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T = 1 of the first of 6 sets takes 1 s; 20 texts of random words are most of it."""
    plan, seconds, score = planned(llama, calibrate="contextual,domain,pmi"), [0.0], held_out._Scorer.score

    def scored(scorer: Any, memories: dict[int, Any]) -> None:
        seconds[0] += 1
        score(scorer, memories)

    sets = training_sets(plan, llama, None, silent)
    monkeypatch.setattr(held_out._Scorer, "score", scored)
    monkeypatch.setattr(held_out, "clock", lambda: seconds[0])
    tried = held_out_scores(llama, plan.rows, sets, plan.grid, silent, 5)
    assert tried.grid.left_out == ("domain",)
    assert {each.calibration for each in tried.grid.settings} == {"none", "contextual", "pmi"}
    assert not held_out_scores(llama, plan.rows, sets, plan.grid, silent, 8).grid.left_out


@pytest.mark.plugins
def test_what_the_budget_leaves_out_is_named(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = iter(range(0, 3_600_000, 3600))
    monkeypatch.setattr("deepthink_cli.tuning.held_out.clock", lambda: next(hours))
    report = tune(planned(llama, iterations=3, techniques="composed,repeat-2", budget="1s"), engine=llama)
    assert {each.method.iterations for each in report.settings} == {1}
    assert report.not_tried == ["deep-thinking, T = 2 to 3", "composed, T = 1 to 3", "repeat-2, T = 1"]
    assert report.as_json()["not_tried"] == report.not_tried


@pytest.mark.plugins
def test_the_labels_of_a_fold_do_not_choose_what_labels_it(llama: Engine) -> None:
    more = {"iterations": 1, "techniques": "composed", "calibrate": "batch,fitted"}
    first = planned(llama, labelled(MANY[:30]), **more)
    fold = {str(first.rows.queries[row].text) for row in first.folds[0]}
    flipped = [(text, LABELS[1 - LABELS.index(label)] if text in fold else label) for text, label in MANY[:30]]
    other = planned(llama, labelled(flipped), **more)
    places = {str(query.text): place for place, query in enumerate(other.rows.queries)}
    moved = [places[str(query.text)] for query in first.rows.queries]
    folds = tuple(tuple(moved[row] for row in rows) for rows in first.folds)
    other = replace(other, folds=folds, order=tuple(moved[row] for row in first.order))
    reports = [tune(plan, engine=llama) for plan in (first, other)]
    assert reports[0].chosen[0] == reports[1].chosen[0]
    assert reports[0].right != reports[1].right  # the labels were flipped


@pytest.mark.plugins
@pytest.mark.parametrize(("technique", "iteration"), [("composed", 3), ("repeat-2", 1)])
def test_the_file_labels_as_the_technique_does_with_the_stored_correction(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, technique: str, iteration: int
) -> None:
    plan = planned(llama, labelled(MORE), techniques=technique, calibrate="fitted", etas="0.5", shots=4)

    def wanted(setting: Any) -> bool:
        return (setting.technique.name, setting.method.iterations, setting.calibration) == (
            *(technique, iteration),
            "fitted",
        )

    chosen = property(lambda self: [wanted(setting) for setting in self.settings].index(True))
    monkeypatch.setattr(TuneReport, "kept", chosen)
    report = tune(plan, tmp_path / "mem.safetensors", engine=llama)
    memory = load_memory(tmp_path / "mem.safetensors")
    assert (memory.iteration, memory.provenance.technique.name) == (iteration, technique)
    stored = memory.provenance.calibrated
    assert stored is not None
    places = {query.text: place for place, query in enumerate(plan.rows.queries)}
    rows = [places[text] for text in dict.fromkeys(each.text for each in memory.provenance.demonstrations.examples)]
    unread = [row for row in range(len(plan.rows)) if row not in rows]
    read = report.setting.technique.change(plan.rows.demonstrations(rows))
    *_, expected = think(llama, tokenize(llama.tokenizer, read), report.setting.method)
    queries = [plan.rows.queries[row] for row in unread]
    logs = log_softmax([list(found.scores.values()) for found in predict(llama, expected, queries)])
    bias = CALIBRATIONS["fitted"].bias(logs, [plan.rows.gold[row] for row in unread])
    corrected = Calibrator(["stored"], LABELS, llama, [[memory]])(list(predict(llama, memory, queries)))
    labels = [LABELS.index(found.calibrated["stored"].prediction.label) for found in corrected]
    assert labels == (logs - bias).argmax(axis=1).tolist()


@pytest.mark.plugins
def test_a_trained_memory_is_tried_by_name(llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(llama, techniques="ct-kv", iterations=1)
    short = replace(plan.grid.techniques[1], steps=2)
    plan = replace(plan, grid=replace(plan.grid, techniques=(plan.grid.techniques[0], short)))
    monkeypatch.setattr(TuneReport, "kept", property(lambda self: 1))
    report = tune(plan, tmp_path / "mem.safetensors", engine=llama)
    assert str(report.setting) == "ct-kv (T = 1)"
    memory = load_memory(tmp_path / "mem.safetensors")
    training = short.training(llama, tokenize(llama.tokenizer, plan.rows.demonstrations(plan.order)))
    list(training)
    assert all(map(torch.equal, memory.keys, training.memory.keys))


@pytest.mark.plugins
@pytest.mark.parametrize("name", ["ensemble-3", "more"])
def test_techniques_whose_memory_is_not_one_file_are_refused(llama: Engine, name: str) -> None:
    with pytest.raises(InputError, match=f"technique {name}: use .*composed"):
        planned(llama, techniques=name)


@pytest.mark.parametrize("budget", ["10", "1.5h"])
def test_a_budget_is_a_number_with_a_unit(llama: Engine, budget: str) -> None:
    with pytest.raises(InputError, match=r"budget .*: a time in seconds, minutes or hours, as in 90s, 10m or 2h"):
        planned(llama, budget=budget)
