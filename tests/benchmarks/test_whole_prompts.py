"""The benchmark of GPUs compares with scores of whole prompts, which are right whatever the batch."""

from __future__ import annotations

import pytest
from conftest import Loaded

from deepthink_cli.engine.base import Reading
from gpu import by_transformers
from shapes import memory_ids, workload


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("cached", [False, True])
def test_padded_batches_by_transformers_score_as_after_the_memory(family: str, cached: bool, loaded: Loaded) -> None:
    engine = loaded(family)
    words = engine.model.network.config.vocab_size
    ids, queries = memory_ids(words, 30), workload(words, 7, candidate_tokens=1)
    (memory,) = engine.read([Reading(tuple(ids))])
    (expected,) = engine.score([memory], engine.plan(queries))
    assert by_transformers(engine, ids, queries, batch=3, cached=cached) == [
        pytest.approx(row, abs=1e-4) for row in expected
    ]
