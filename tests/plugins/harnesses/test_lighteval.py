"""lighteval: T = 1 is plain scoring of the same tokens, and demonstrations are read once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Models

pytest.importorskip("lighteval", reason="lighteval is not installed: its pins conflict with those of this package")

from lighteval.tasks.requests import Doc

from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.harnesses.lighteval import DeepThinkLighteval


def doc(text: str, label: int, **fields: Any) -> Any:
    query = f"Review: {text}\nSentiment:"
    return Doc(query=query, choices=[" negative", " positive"], gold_index=label, task_name="reviews", **fields)


def rows(shots: int, **fields: Any) -> list[Any]:
    shown = [doc("a warm film", 1), doc("a dull mess", 0)][:shots]
    return [doc(text, 0, fewshot_samples=shown, **fields) for text in ("far too long", "tender and wise", "so so")]


def model(folder: Path, arguments: str) -> DeepThinkLighteval:
    return DeepThinkLighteval(SimpleNamespace(model_name=f"{folder},{arguments}"))


@pytest.mark.parametrize("shots", [0, 2])
def test_one_reading_is_plain_scoring_of_the_same_tokens(shots: int, models: Models) -> None:
    ours: Any = model(models("llama"), "iterations=1")
    engine = ours.memories.engine
    for response in ours.loglikelihood(rows(shots)):
        answers = tuple(map(tuple, response.output_tokens))
        plan = engine.plan([TokenizedQuery(tuple(response.input_tokens), answers)])
        (expected,) = engine.observe(None, plan, greedy=True)
        assert response.logprobs == pytest.approx(expected.sums, abs=1e-4)
        assert response.argmax_logits_eq_gold == list(expected.greedy)


def test_demonstrations_are_read_once_and_change_the_scores(models: Models) -> None:
    once, often = model(models("llama"), "iterations=1"), model(models("llama"), "iterations=4,eta=0.3")
    plain, thought = once.loglikelihood(rows(2)), often.loglikelihood(rows(2))
    assert often.memories.readings == 1
    assert [each.logprobs for each in plain] != [each.logprobs for each in thought]


def test_texts_are_written_after_the_demonstrations(models: Models) -> None:
    ours = model(models("llama"), "iterations=2")
    written = ours.greedy_until(rows(2, generation_size=4, stop_sequences=["\n"]))
    assert [len(each.output_tokens[0]) for each in written] == pytest.approx([4, 4, 4], abs=4)
    assert all("\n" not in each.text[0] for each in written)


def test_the_pipeline_finds_a_store_of_answers_which_keeps_nothing(models: Models) -> None:
    path = models("llama")
    before = sorted(path.parent.rglob("*"))
    ours: Any = model(path, "iterations=1")
    ours._cache._init_registry(registry=None)
    ours.loglikelihood(rows(2))
    assert sorted(path.parent.rglob("*")) == before
