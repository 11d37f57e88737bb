"""Queries that attend only to their nearest demonstrations in a composed memory (`--nearest K`).

Nearness is BM25 over token ids. It needs no pass of the model, and the template's words, which all demonstrations have,
hardly count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import log
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from deepthink_cli.errors import InputError, option
from deepthink_cli.options import METHOD, Flag
from deepthink_cli.scoring.step import Step

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from deepthink_cli.model.tokens import TokenizedQuery
    from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
    from deepthink_cli.scoring.prediction import Prediction

K1, B = 1.2, 0.75  # BM25's usual parameters


class Nearest(Step):
    """A query attends only to its K nearest demonstrations, or to all if there are at most K."""

    source: ClassVar[str] = "Robertson and Zaragoza 2009, section 3.4"
    attends: ClassVar[bool] = True

    nearest: Annotated[
        int | None,
        Field(ge=1),
        Flag(
            METHOD,
            "Let each input attend to the K demonstrations alone that are nearest to it, in a composed memory.",
            "K",
            hint="a number of demonstrations, 1 or more",
        ),
    ] = None

    def check(self, memory: Provenance, name: str) -> None:
        """Refuse demonstrations that were read together."""
        if not memory.demonstrations.parts:
            raise InputError.of(
                "nearest",
                self.nearest,
                f"the demonstrations of {name} were read together; make a memory with deepthink think "
                f"{option('technique')} composed, or omit it",
            )

    def attended(
        self, demonstrations: TokenizedDemonstrations, queries: Sequence[TokenizedQuery]
    ) -> list[tuple[int, ...]] | None:
        """The nearest parts; of equally near parts, the first."""
        import numpy as np

        if self.nearest is None or self.nearest >= len(demonstrations.parts):
            return None
        nearness = bm25(demonstrations.texts, [query.prefix for query in queries])
        order = np.argsort(-nearness, axis=1, kind="stable")
        return [tuple(sorted(places)) for places in order[:, : self.nearest].tolist()]

    def described(self) -> str:
        """How many demonstrations a query attends to."""
        return f"each query attends to its {self.nearest} nearest demonstrations"

    def of_row(self, prediction: Prediction) -> Mapping[str, Any]:
        """The places of the demonstrations that the row attends to, unless it attends to all."""
        return {"nearest": list(prediction.attended)} if prediction.attended else {}


def bm25(texts: Sequence[Sequence[int]], queries: Sequence[Sequence[int]]) -> NDArray[float64]:
    """The nearness of every text to every query, (queries, texts), by the tokens t of a query that occur in the text d.

        sum_t ln(1 + (n - n_t + 1/2) / (n_t + 1/2)) f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))

    n_t of the n texts have the token t, which occurs f times in d (Robertson and Zaragoza 2009, section 3.4). The
    logarithm is Lucene's weight of a token, which is never negative. A token counts once, however often a query has it.
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
