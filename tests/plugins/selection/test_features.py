"""Hidden states and probabilities of rows, against a plain forward pass, and from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Loaded

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.engine.base import Observation
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Event, Progress
from deepthink_cli.io.cache import Store
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.plugins.selection import readers as features
from deepthink_cli.plugins.selection.readers import Observer

TEMPLATE = Template("Review: {text}\nSentiment: {label}")
LABELS = ("negative", "very positive")
WORDS = ["the film", "the film is warm and wise", "the plot", "dull", "a tender, moving and very long film", "the end"]
QUERIES = [Query(text, LABELS, LABELS[number % 2]) for number, text in enumerate(WORDS)]


def plain(engine: BatchedEngine, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of the output embedding (S, W) and the log-probabilities (S, V) of one plain pass."""
    seen: list[torch.Tensor] = []
    hook = engine.model.network.get_output_embeddings().register_forward_pre_hook(
        lambda _, arguments: seen.append(arguments[0])
    )
    with torch.inference_mode():
        logits = engine.model.network(input_ids=torch.tensor([list(ids)]), use_cache=False).logits
    hook.remove()
    return seen[0][0].float(), logits[0].float().log_softmax(-1)


@pytest.fixture(params=["llama", "gpt2", "gemma2"])
def engine(request: pytest.FixtureRequest, loaded: Loaded) -> BatchedEngine:
    """Tiny models, with special tokens before a text and without."""
    return loaded(request.param)


@pytest.mark.parametrize("padded", [False, True])
def test_features_are_those_of_a_plain_pass_over_the_prompt_alone(engine: BatchedEngine, padded: bool) -> None:
    used = PaddedEngine(engine.model) if padded else engine
    observed = Observer(used, TEMPLATE, QUERIES)(QUERIES)
    special = special_ids(engine.tokenizer)
    for number, query in enumerate(tokenize_queries(engine.tokenizer, TEMPLATE, QUERIES)):
        sums = []
        for answer in query.answers:
            states, logs = plain(engine, [*special, *query.prefix, *answer])
            start = len(special) + len(query.prefix)
            sums.append(sum(float(logs[start - 1 + place, token]) for place, token in enumerate(answer)))
        expected = np.exp(np.array(sums)) / np.exp(np.array(sums)).sum()
        assert observed.probabilities[number] == pytest.approx(expected, abs=1e-4)
        assert observed.hidden[number] == pytest.approx(states[start - 1].numpy(), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_own_tokens_are_those_after_what_all_rows_begin_with(
    engine: BatchedEngine, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "CHUNK", chunk)
    observed = Observer(engine, TEMPLATE, QUERIES, every_token=True)(QUERIES)
    special = special_ids(engine.tokenizer)
    prefixes = [query.prefix for query in tokenize_queries(engine.tokenizer, TEMPLATE, QUERIES)]
    shared = next(n for n in range(99) if len({prefix[n] for prefix in prefixes}) > 1)
    for number, prefix in enumerate(prefixes):
        states, _ = plain(engine, [*special, *prefix])
        assert observed.tokens[number] == pytest.approx(states[len(special) + shared :].numpy(), rel=1e-3, abs=1e-4)
        assert (observed.hidden[number] == observed.tokens[number][-1]).all()


def test_rows_with_different_candidates_have_no_probabilities(loaded: Loaded) -> None:
    queries = [QUERIES[0], Query("dull", ("good", "bad"), "bad")]
    observed = Observer(loaded("llama"), TEMPLATE, queries)(queries)
    assert observed.probabilities is None
    assert len(observed.hidden) == 2


@pytest.mark.parametrize("every_token", [False, True])
def test_an_interrupted_observation_continues_from_the_cache(
    every_token: bool, loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "CHUNK", 2)
    engine, store = loaded("llama"), Store(tmp_path)
    whole = Observer(engine, TEMPLATE, QUERIES, every_token)(QUERIES)

    def interrupt(event: Event) -> None:
        if event == Progress("reading rows", 4, 6):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Observer(engine, TEMPLATE, QUERIES, every_token, store)(QUERIES, interrupt)
    continued = Observer(engine, TEMPLATE, QUERIES, every_token, store)(QUERIES)
    assert (whole.read, continued.read) == (6, 2)
    assert (continued.hidden == whole.hidden).all()
    again = Observer(engine, TEMPLATE, QUERIES, every_token, store)(QUERIES)
    assert again.read == 0
    assert again.probabilities is not None
    assert (again.probabilities == whole.probabilities).all()
    if every_token:
        assert again.tokens is not None
        assert whole.tokens is not None
        assert all((left == right).all() for left, right in zip(again.tokens, whole.tokens, strict=True))


def test_another_model_or_another_template_is_not_served_from_the_cache(loaded: Loaded, tmp_path: Path) -> None:
    store = Store(tmp_path)
    Observer(loaded("llama"), TEMPLATE, QUERIES, store=store)(QUERIES)
    assert Observer(loaded("gpt2"), TEMPLATE, QUERIES, store=store)(QUERIES).read == len(QUERIES)
    other = Template("{text} It was {label}")
    assert Observer(loaded("llama"), other, QUERIES, store=store)(QUERIES).read == len(QUERIES)


def test_a_damaged_cache_is_read_again(loaded: Loaded, tmp_path: Path) -> None:
    store = Store(tmp_path)
    Observer(loaded("llama"), TEMPLATE, QUERIES, store=store)(QUERIES)
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:50])
    assert Observer(loaded("llama"), TEMPLATE, QUERIES, store=store)(QUERIES).read == len(QUERIES)


def test_values_that_are_not_finite_name_the_row(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, observe = loaded("llama"), BatchedEngine.observe

    def spoilt(*arguments: Any) -> list[Observation]:
        observations = observe(*arguments)
        observations[1] = replace(observations[1], hidden=observations[1].hidden * float("nan"))
        return observations

    monkeypatch.setattr(BatchedEngine, "observe", spoilt)
    queries = [Query(query.text, query.candidates, query.gold, f"rows.jsonl:{n}") for n, query in enumerate(QUERIES)]
    with pytest.raises(DeepThinkError, match=r"rows.jsonl:1: its scores or hidden states are not finite"):
        Observer(engine, TEMPLATE, queries)(queries)
