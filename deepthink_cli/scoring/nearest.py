"""Queries that attend to the demonstrations of a composed memory that are nearest to them (`--nearest K`).

Nearness is BM25 over token ids: it needs no pass of the model, and the words of the template, which all demonstrations
have, hardly count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from deepthink_cli.model.tokens import TokenizedQuery

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from deepthink_cli.engine.base import Past
    from deepthink_cli.memory import Memory
    from deepthink_cli.provenance import TokenizedDemonstrations

K1, B = 1.2, 0.75  # of BM25


def nearest_parts(demonstrations: TokenizedDemonstrations, queries: Sequence[TokenizedQuery]) -> list[tuple[int, ...]]:
    """The places of each query's nearest parts of the demonstrations, ascending; none if it attends to all.

    Of parts that are equally near, the first ones are chosen.
    """
    import numpy as np

    if demonstrations.nearest is None:
        return [()] * len(queries)
    nearness = bm25(demonstrations.texts, [query.prefix for query in queries])
    order = np.argsort(-nearness, axis=1, kind="stable")
    return [tuple(sorted(places)) for places in order[:, : demonstrations.nearest].tolist()]


def bm25(texts: Sequence[Sequence[int]], queries: Sequence[Sequence[int]]) -> NDArray[float64]:
    """How near every text is to every query, (queries, texts), by the tokens t of a query that occur in the text d.

        sum_t ln(1 + (n - n_t + 1/2) / (n_t + 1/2)) f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))

    n_t of the n texts have the token, f times this one (Robertson and Zaragoza 2009, section 3.4). The weight of a
    token, the logarithm, is that of Lucene, which is never negative; a token counts once, however often a query has it.
    """
    import numpy as np

    counts = [Counter(text) for text in texts]
    texts_with, mean = Counter(chain.from_iterable(counts)), fmean(map(len, texts))
    scale = K1 * (1 - B + B * np.array([len(text) for text in texts]) / mean)
    by_token: dict[int, NDArray[float64]] = {}
    for token, number in texts_with.items():
        frequency = np.array([count[token] for count in counts])
        weight = log(1 + (len(texts) - number + 0.5) / (number + 0.5))
        by_token[token] = weight * frequency * (K1 + 1) / (frequency + scale)
    return np.array(
        [
            sum((by_token[token] for token in dict.fromkeys(query) if token in by_token), np.zeros(len(texts)))
            for query in queries
        ]
    )


def nearest_of(memory: Memory, queries: Sequence[TokenizedQuery]) -> list[tuple[int, ...]]:
    """The places of each query's nearest parts of a memory, as `nearest_parts`."""
    if memory.provenance is None:
        return [()] * len(queries)
    return nearest_parts(memory.provenance.demonstrations, queries)


def pasts_of(memory: Memory, chosen: Sequence[tuple[int, ...]]) -> list[Past]:
    """What each query attends to: the parts of the memory at these places, or all of it if there are none."""
    parts = memory.parts
    return [tuple(parts[place] for place in places) or (memory,) for places in chosen]
