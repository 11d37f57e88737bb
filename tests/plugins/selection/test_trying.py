"""Methods that try sets of rows, each against its definition."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, read
from helpers.chats import write_chat_model
from helpers.fake_trials import FakeTrials, fake_pool

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Engine,
    Example,
    Memory,
    Method,
    Query,
    Template,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.engine.base import Reading, ScoringPlan, Sums
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Event, Progress
from deepthink_cli.io.cache import Store
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.plugins.selection.random_sets import accuracies, dev_rows, global_entropy, local_entropy, random_sets
from deepthink_cli.plugins.selection.readers import EngineTrials
from deepthink_cli.selection.registry import METHODS, Pool

TRYING = [name for name, method in METHODS.items() if "trials" in method.reads]


def chosen(method: str, pool: Pool, shots: int, seed: int = 0) -> list[int]:
    """The rows that a method chooses."""
    return [int(row) for row in METHODS[method](pool, shots, random.Random(seed)).rows]


def sets_of(trials: FakeTrials, shots: int) -> list[tuple[int, ...]]:
    """The different sets of so many rows that were tried, in order."""
    return list(dict.fromkeys(each for each, _ in trials.tried if len(each) == shots))


@pytest.mark.parametrize("method", TRYING)
@pytest.mark.parametrize("shots", [1, 4, 11])
def test_every_method_chooses_that_many_different_rows_and_the_same_for_a_seed(method: str, shots: int) -> None:
    pool, _ = fake_pool(12)
    assert len(set(chosen(method, pool, shots))) == shots
    assert chosen(method, pool, shots, seed=5) == chosen(method, pool, shots, seed=5)


@pytest.mark.parametrize("method", TRYING)
@pytest.mark.parametrize("shots", [3, 7])
def test_a_balanced_pool_gives_every_label_its_share(method: str, shots: int) -> None:
    pool, _ = fake_pool(20, balanced=True)
    counts = Counter(str(pool.rows[row].gold) for row in chosen(method, pool, shots))
    assert counts == pool.shares(shots)


@pytest.mark.parametrize("method", [name for name in TRYING if "entropy" not in name])
def test_a_pool_without_other_rows_cannot_be_tried(method: str) -> None:
    pool, _ = fake_pool(4)
    with pytest.raises(InputError, match=r"shots 4: the pool has 4 different rows, and none is left to try sets on"):
        chosen(method, pool, 4)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("shots", [3, 5, 9])
def test_all_rows_occur_equally_often_in_random_sets(balanced: bool, shots: int) -> None:
    pool, _ = fake_pool(9, balanced=balanced)
    sets = list(islice(random_sets(pool, shots, random.Random(1)), 36))
    assert all(len(set(each)) == shots for each in sets)
    counts = Counter(row for each in sets for row in each)
    for rows in pool.by_label.values() if balanced else [range(9)]:
        assert max(counts[row] for row in rows) - min(counts[row] for row in rows) <= 1


def test_accuracy_is_measured_on_rows_outside_the_set() -> None:
    pool, trials = fake_pool(10)
    sets, rows = [[0, 1, 2], [7, 3, 0]], [0, 2, 4, 6, 8]
    expected = [trials.accuracy([0, 1, 2], [4, 6, 8]), trials.accuracy([7, 3, 0], [2, 4, 6, 8])]
    assert accuracies(pool, sets, rows).tolist() == pytest.approx(expected)


def test_no_set_is_tried_on_an_input_that_it_has_with_another_label() -> None:
    pool, trials = fake_pool(10)
    pool = replace(pool, groups=[0, 1, 2, 3, 0, 5, 1, 7, 8, 9])
    expected = [trials.accuracy([0, 1, 2], [8]), trials.accuracy([7, 3, 5], [0, 2, 4, 6, 8]), 0]
    sets, rows = [[0, 1, 2], [7, 3, 5], [4, 1, 2, 8]], [0, 2, 4, 6, 8]
    assert accuracies(pool, sets, rows).tolist() == pytest.approx(expected)
    with pytest.raises(InputError, match="shots 4: the pool has 4 different rows"):
        dev_rows(replace(pool, groups=[0, 1, 2, 3] * 2 + [0, 0]), 4, random.Random(0))


@pytest.mark.parametrize("rows", [5, 30, 300])
def test_every_set_lacks_a_dev_row(rows: int) -> None:
    pool, _ = fake_pool(rows)
    for shots in {1, 4, rows // 2, rows - 1} - {0}:
        assert len(dev_rows(pool, shots, random.Random(0))) > shots


def test_random_valid_is_the_best_of_thirty_sets() -> None:
    pool, trials = fake_pool(40)
    best = chosen("random-valid", pool, 4)
    tried, dev = sets_of(trials, 4), set(trials.tried[0][1])
    accuracy = [trials.accuracy(each, sorted(dev - set(each))) for each in tried]
    assert len(tried) == 30
    assert len(set(accuracy)) > 5
    assert best == list(tried[accuracy.index(max(accuracy))])


@pytest.mark.parametrize("balanced", [False, True])
def test_influence_is_the_mean_accuracy_of_sets_with_a_row_less_that_of_sets_without_it(balanced: bool) -> None:
    pool, trials = fake_pool(30, balanced=balanced)
    choice = METHODS["influence"](pool, 6, random.Random(3))
    tried, dev = [each for each, _ in trials.tried], set(trials.tried[0][1])
    accuracy = {each: trials.accuracy(each, sorted(dev - set(each))) for each in tried}
    expected = [
        np.mean([accuracy[each] for each in tried if row in each])
        - np.mean([accuracy[each] for each in tried if row not in each])
        for row in range(30)
    ]
    assert len(tried) == 25
    assert choice.scores.tolist() == pytest.approx(expected)
    if not balanced:
        assert set(choice.rows) == set(np.argsort(expected)[-6:].tolist())


@pytest.mark.parametrize(
    ("probabilities", "in_all", "on_average"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], math.log(2), 0.0),
        ([[0.5, 0.5], [0.5, 0.5]], 0.0, math.log(2)),
        ([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]], math.log(2), None),
        ([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]], 0.5623351446, 0.5623351446),
    ],
)
def test_entropies_of_hand_computed_cases(
    probabilities: list[list[float]], in_all: float, on_average: float | None
) -> None:
    assert global_entropy(np.array(probabilities)) == pytest.approx(in_all)
    if on_average is not None:
        assert local_entropy(np.array(probabilities)) == pytest.approx(on_average)


@pytest.mark.parametrize(("method", "entropy"), [("global-entropy", global_entropy), ("local-entropy", local_entropy)])
def test_entropy_orders_a_set_that_is_the_whole_pool(method: str, entropy: object) -> None:
    pool, trials = fake_pool(4)
    best = chosen(method, pool, 4)
    assert set(trials.tried) == {(order, (0, 1, 2, 3)) for order in permutations(range(4))}
    tried = sets_of(trials, 4)
    values = [entropy(np.array([trials.one(each, row) for row in range(4)])) for each in tried]  # type: ignore[operator]
    assert tuple(best) == tried[values.index(max(values))]


@pytest.mark.parametrize("method", ["global-entropy", "local-entropy"])
def test_entropy_tries_24_orders_on_rows_outside_the_set(method: str) -> None:
    pool, trials = fake_pool(20)
    best = chosen(method, pool, 6)
    assert len(sets_of(trials, 6)) == 24
    assert tuple(best) in sets_of(trials, 6)
    assert {row for _, rows in trials.tried for row in rows} == set(range(20)) - set(best)


@pytest.mark.parametrize("method", TRYING)
def test_only_entropies_ignore_the_labels_of_other_rows(method: str) -> None:
    pool, trials = fake_pool(20)
    before = chosen(method, pool, 6)
    relabelled = [
        query if row in before else replace(query, gold=pool.rows[(row + 1) % 20].gold)
        for row, query in enumerate(pool.rows)
    ]
    after = chosen(method, Pool(relabelled, trials=trials), 6)
    assert (after == before) == ("entropy" in method)


LABELS = ("negative", "positive")
ROWS = [Query(text, LABELS, gold) for text, gold in [*REVIEWS, ("a gem", "positive"), ("so very dull", "negative")]]
SETS = [(0, 1), (1, 0), (2,), (3, 4, 0)]


def trials_of(engine: Engine, store: Store | None = None, **options: object) -> EngineTrials:
    """Trials of the reviews."""
    return EngineTrials(engine, ROWS, Template(TEMPLATE), LABELS, store=store, **options)  # type: ignore[arg-type]


def probabilities(sums: Sequence[Sequence[float]]) -> np.ndarray:
    """The softmax of log-probabilities (rows, C)."""
    return torch.tensor(sums, dtype=torch.float64).softmax(dim=-1).numpy()


def by_thinking(engine: Engine, rows: Sequence[int], asked: Sequence[int], chat: Chat | None = None) -> np.ndarray:
    """Probabilities by `think` with T = 1 and `score`."""
    examples = [Example(ROWS[row].text, str(ROWS[row].gold)) for row in rows]
    demonstrations = DemonstrationSet.of(examples, TEMPLATE, LABELS, chat)
    read_once = tokenize_demonstrations(engine.tokenizer, demonstrations)
    (memory,) = think(engine, read_once, Method(iterations=1))
    queries = tokenize_queries(engine.tokenizer, read_once, [ROWS[row] for row in asked])
    return probabilities([scores.sums for scores in score(engine, memory, queries)])


class Failing(PackedEngine):
    """An engine that reads so often, a few sets at a time."""

    def __init__(self, model: LanguageModel, readings: int) -> None:
        super().__init__(model)
        self.left = readings

    @property
    def tokens_together(self) -> int:
        """About two reviews."""
        return 60

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        """Read, unless that was done too often."""
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().read(readings)


class Infinite(PackedEngine):
    """An engine whose scores are infinite."""

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """Scores that are not finite."""
        return [[[float("-inf")] * len(query.answers) for query in plan.queries] for _ in memories]


def test_probabilities_after_a_set_are_those_of_one_reading(llama: Engine) -> None:
    tried = trials_of(llama).probabilities(SETS, [5, 2, 0])
    assert (tried.shape, tried.dtype) == ((4, 3, 2), np.float64)
    for rows, values in zip(SETS, tried, strict=True):
        assert values == pytest.approx(by_thinking(llama, rows, [5, 2, 0]), abs=1e-5)
    assert not np.allclose(tried[0], tried[1], atol=1e-3)  # the order counts


def test_zero_shot_is_after_the_special_tokens_that_the_tokenizer_adds(llama: Engine) -> None:
    (tried,) = trials_of(llama).probabilities([()], [0, 5])
    queries = tokenize_queries(llama.tokenizer, Template(TEMPLATE), [ROWS[0], ROWS[5]])
    sums = [scores.sums for scores in score(llama, read(llama, special_ids(llama.tokenizer)), queries)]
    assert special_ids(llama.tokenizer) == (0,)
    assert tried == pytest.approx(probabilities(sums), abs=1e-6)


def test_demonstrations_are_turns_of_a_conversation_with_a_chat(tmp_path: Path) -> None:
    engine = load_model(str(write_chat_model(tmp_path)))
    tried = trials_of(engine, chat=Chat()).probabilities([(), (0, 1), (4, 3)], [5, 2])
    for rows, values in zip([(0, 1), (4, 3)], tried[1:], strict=True):
        assert values == pytest.approx(by_thinking(engine, rows, [5, 2], Chat()), abs=1e-5)
    assert tried[0] == pytest.approx(trials_of(engine).probabilities([()], [5, 2])[0])


def test_each_distinct_set_is_read_once_and_progress_counts_inputs(llama: Engine) -> None:
    seen = list[Event]()
    trials = trials_of(llama, tell=seen.append)
    tried = trials.probabilities([(0, 1), (), [0, 1], (2,)], [3, 5])
    assert (trials.sets_read, trials.inputs_scored) == (2, 6)
    assert seen[-1] == Progress("trying sets", 6, 6)
    assert tried[0].tolist() == tried[2].tolist()
    again = trials.probabilities([(2,), (0, 1)], [3, 5])
    assert again.tolist() == tried[[3, 0]].tolist()
    assert trials.inputs_scored == 6


def test_other_labels_another_template_and_another_dtype_are_tried_again(
    llama: Engine, models: Models, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    first = trials_of(llama, store).probabilities([(0, 1)], [5])
    for labels, template in ((LABELS[::-1], TEMPLATE), (LABELS, TEMPLATE.replace("Review", "Text"))):
        other = EngineTrials(llama, ROWS, Template(template), labels, store=store)
        other.probabilities([(0, 1)], [5])
        assert other.inputs_scored == 1
    half = load_model(str(models("llama")), dtype="bfloat16")
    assert not np.array_equal(trials_of(half, store).probabilities([(0, 1)], [5]), first)


def test_an_interrupted_trial_continues(llama: Engine, tmp_path: Path) -> None:
    sets, asked, store = list(permutations(range(4), 2)), [4, 5], Store(tmp_path)
    whole, begun = trials_of(Failing(llama.model, 100)), trials_of(Failing(llama.model, 4), store)
    expected = whole.probabilities(sets, asked)
    with pytest.raises(KeyboardInterrupt):
        begun.probabilities(sets, asked)
    rest = trials_of(Failing(llama.model, 100), store)
    assert rest.probabilities(sets, asked).tolist() == expected.tolist()
    assert begun.sets_read + rest.sets_read == whole.sets_read == 12
    assert 0 < begun.sets_read < 12


def test_a_set_that_is_too_long_is_refused_before_anything_is_read(llama: Engine) -> None:
    rows = [*(Query(" ".join([word] * 50), LABELS, "positive") for word in ("long", "same")), *ROWS]
    trials = EngineTrials(llama, rows, Template(TEMPLATE), LABELS)
    with pytest.raises(InputError, match=r"a set of 3 demonstrations and a query .* holds 512 .* use fewer shots"):
        trials.probabilities([(2, 3), (0, 1, 2)], [0])
    assert trials.sets_read == 0


def test_scores_that_are_not_finite_are_refused(llama: Engine) -> None:
    with pytest.raises(DeepThinkError, match="the score of candidate 1 is -inf"):
        trials_of(Infinite(llama.model)).probabilities([(0,)], [1])
