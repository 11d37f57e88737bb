"""Models and memories that are kept between fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepthink_cli import DemonstrationSet, Gate, Method, ModelOptions, think, tokenize_demonstrations
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.plugins.sklearn.kept_models import ThinkingCache
from deepthink_cli.provenance import TokenizedDemonstrations

Directory = Callable[[str], Path]


@pytest.fixture
def options(models: Directory) -> ModelOptions:
    return ModelOptions.checked(model=str(models("llama")), device="cpu")


@pytest.fixture
def demonstrations(llama: Engine, reviews: DemonstrationSet) -> TokenizedDemonstrations:
    return tokenize_demonstrations(llama.tokenizer, reviews)


def test_the_cached_memories_are_those_of_think(
    llama: Engine, options: ModelOptions, demonstrations: TokenizedDemonstrations
) -> None:
    cache, method = ThinkingCache(), Method(3, Gate(0.1, 0.9))
    cache.memories(options, demonstrations, Method(2, Gate(0.1, 0.9)))
    cached, expected = cache.memories(options, demonstrations, method), list(think(llama, demonstrations, method))
    for one, two in zip(cached, expected, strict=True):
        assert (one.provenance, one.drift, one.iteration) == (two.provenance, two.drift, two.iteration)
        assert all((left == right).all() for left, right in zip(one.keys, two.keys, strict=True))


def test_a_model_is_loaded_once_and_removed_when_others_are_used(models: Directory, options: ModelOptions) -> None:
    cache = ThinkingCache(models=1)
    first = cache.engine(options)
    assert cache.engine(options.model_copy()) is first
    cache.engine(ModelOptions.checked(model=str(models("gpt2")), device="cpu"))
    assert cache.engine(options) is not first


def test_memories_beyond_the_limit_are_read_again(
    options: ModelOptions, demonstrations: TokenizedDemonstrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = ThinkingCache(limit=1), ThinkingCache()
    for cache, kept in ((small, False), (large, True)):
        first = cache.memories(options, demonstrations, Method(2, Gate(0.1)))
        cache.memories(options, demonstrations, Method(2, Gate(0.2)))
        again = cache.memories(options, demonstrations, Method(2, Gate(0.1)))
        assert (again[1].keys[0] is first[1].keys[0]) == kept
        cache.clear()
        assert cache.memories(options, demonstrations, Method(2, Gate(0.1)))[1].keys[0] is not first[1].keys[0]


def test_a_failed_reading_is_tried_again(options: ModelOptions, demonstrations: TokenizedDemonstrations) -> None:
    cache = ThinkingCache()
    cache.memories(options, demonstrations, Method(1))
    engine = cache.engine(options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(engine), "read", _fail)
        with pytest.raises(DeepThinkError, match="out of memory"):
            cache.memories(options, demonstrations, Method(2))
    assert len(cache.memories(options, demonstrations, Method(2))) == 2


def _fail(*_: object) -> None:
    raise DeepThinkError("out of memory")
