"""Scoring by lm-evaluation-harness, on the same network: the whole prompt again for every candidate.

A memory of T = 1 is a plain reading, so its scores must be ours. The harness shares one pass among candidates
of one context that differ in their last token only; that is left on.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch

from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.model.tokens import TokenizedQuery
from shapes import stand_in_tokenizer

MISSING = (
    "the harness is not installed; run: pip install -c constraints.txt -e '.[benchmark]', or leave it out of --systems"
)


def installed() -> bool:
    """Whether lm-evaluation-harness can be imported."""
    return all(importlib.util.find_spec(name) for name in ("lm_eval", "accelerate"))


class Harness:
    """lm-evaluation-harness's transformers model around a network that is already there."""

    def __init__(self, model: LanguageModel, batch_size: int) -> None:
        logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns about being given a network
        from lm_eval.models.huggingface import HFLM

        most = model.limits.max_tokens() or 2**20
        self.inner: Any = HFLM(
            pretrained=model.network, tokenizer=stand_in_tokenizer(), batch_size=batch_size, max_length=most
        )

    @torch.inference_mode()
    def scores(self, memory_ids: Sequence[int], queries: Sequence[TokenizedQuery]) -> list[list[float]]:
        """The sum of log-probabilities of every query's candidates, after the demonstrations and the query."""
        requests = [
            ((str(number), str(candidate)), [*memory_ids, *query.prefix], list(answer))
            for number, query in enumerate(queries)
            for candidate, answer in enumerate(query.answers)
        ]
        found = iter(self.inner._loglikelihood_tokens(requests, disable_tqdm=True))
        return [[value for value, _ in islice(found, len(query.answers))] for query in queries]
