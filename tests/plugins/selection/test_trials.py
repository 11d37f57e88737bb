"""Trials of demonstrations by an engine: what they give, and that they are cached."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, read
from helpers.chats import write_chat_model
from safetensors.torch import load_file, save_file
from tokenizers import processors

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
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.plugins.selection.trials import EngineTrials
from deepthink_cli.selection.store import Store

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


def test_zero_shot_is_after_nothing_if_the_tokenizer_adds_no_special_tokens(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models("llama")))
    nothing = processors.TemplateProcessing(single="$A")
    monkeypatch.setattr(engine.tokenizer.backend_tokenizer, "post_processor", nothing)  # later tests share it
    trials = trials_of(engine)
    zero_shot, one_shot = trials.probabilities([(), (1,)], [0, 5])
    queries = tokenize_queries(engine.tokenizer, Template(TEMPLATE), [ROWS[0], ROWS[5]])
    observed = engine.observe(None, engine.plan(queries))
    assert zero_shot == pytest.approx(probabilities([each.sums for each in observed]), abs=1e-6)
    assert one_shot == pytest.approx(by_thinking(engine, [1], [0, 5]), abs=1e-5)
    assert (trials.sets_read, trials.inputs_scored) == (1, 4)


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


def test_the_words_of_the_template_before_a_text_are_read_in_the_pass_of_the_sets(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, passes, whole = load_model(str(models("llama"))), list[list[Reading]](), PackedEngine.read_pass

    def recorded(self: PackedEngine, readings: Sequence[Reading]) -> list[Memory]:
        passes.append(list(readings))
        return whole(self, readings)

    monkeypatch.setattr(PackedEngine, "read_pass", recorded)
    trials_of(engine).probabilities(SETS, [5, 2, 0])
    shared = engine.plan(tokenize_queries(engine.tokenizer, Template(TEMPLATE), ROWS)).shared
    assert len(shared) > 1
    assert [[reading.token_ids[-len(shared) :] for reading in each] for each in passes] == [[shared] * len(SETS)]


def test_cached_results_are_identical(llama: Engine, tmp_path: Path) -> None:
    first, second = (trials_of(llama, Store(tmp_path)) for _ in range(2))
    assert first.probabilities(SETS, [5, 2]).tolist() == second.probabilities(SETS, [5, 2]).tolist()
    assert (second.sets_read, second.inputs_scored) == (0, 0)
    second.probabilities(SETS[:1], [5, 1])  # other rows
    assert second.inputs_scored == 2


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


def test_another_byte_anywhere_in_the_weights_is_tried_again(llama: Engine, models: Models, tmp_path: Path) -> None:
    edited = shutil.copytree(models("llama"), tmp_path / "edited")
    weights = load_file(edited / "model.safetensors")
    largest = max(weights.values(), key=torch.numel)
    largest.view(-1)[largest.numel() // 4] += 1.0
    save_file(weights, edited / "model.safetensors", {"format": "pt"})
    engine, store = load_model(str(edited)), Store(tmp_path / "cache")
    trials_of(llama, store).probabilities([(0, 1)], [5])
    other = trials_of(engine, store)
    other.probabilities([(0, 1)], [5])
    assert other.inputs_scored == 1


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
