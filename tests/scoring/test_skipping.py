"""A row that cannot be scored is replaced by the reason, and the others are scored as ever."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from deepthink_cli import DemonstrationSet, Memory, Method, Query, predict, think, tokenize_demonstrations
from deepthink_cli.data.examples import UNREADABLE, Skipped
from deepthink_cli.engine.base import Engine, ScoringPlan, Sums
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Progress
from deepthink_cli.scoring.likelihood import NotFiniteError
from deepthink_cli.scoring.pipeline import (
    EVERY_REASON,
    NO_REASON,
    NOT_FINITE,
    SAME_TOKENS,
    TOO_LONG,
    UNSCORABLE,
    predicted,
    predictions,
)
from deepthink_cli.scoring.prediction import Prediction

LABELS = ("positive", "negative")
GOOD = [Query("a warm film", LABELS, "positive", "row 1"), Query("far too long", LABELS, "negative", "row 2")]
NAN = Query("a film that overflows", LABELS, "positive", "overflows")
UNREAD = Skipped(("row 3: not JSON",))
BAD = [NAN, UNREAD, Query("fine " * 3000, LABELS, "positive", "row 4"), Query("a", ("yes", "yes"), "yes", "row 5")]


class Overflowing(PackedEngine):
    """Gives NaN for the row that is called `overflows`."""

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        sums = super().score(memories, plan)
        for of_memory in sums:
            for query, scores in zip(plan.queries, of_memory, strict=True):
                scores[0] = math.nan if query.where == "overflows" else scores[0]
        return sums


@pytest.fixture
def engine(llama: Engine) -> Engine:
    return Overflowing(llama.model)


@pytest.fixture
def memories(llama: Engine, reviews: DemonstrationSet) -> list[Memory]:
    return list(think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(2)))


def test_rows_keep_their_places(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [GOOD[0], *BAD, GOOD[1]], skip=EVERY_REASON)
    first, second, *bad, third, fourth = rows
    assert [each.reason for each in bad if isinstance(each, Skipped)] == [NOT_FINITE, UNREADABLE, TOO_LONG, SAME_TOKENS]
    assert bad[1] == UNREAD
    assert "overflows: the score of candidate 1 is nan" in bad[0].error
    good = [first, second, third, fourth]
    assert [(each.iteration, each.query) for each in good if isinstance(each, Prediction)] == [
        *((1, GOOD[0]), (2, GOOD[0]), (1, GOOD[1]), (2, GOOD[1])),
    ]


def test_a_chunk_of_bad_rows_has_no_predictions(engine: Engine, memories: list[Memory]) -> None:
    parts = list(predictions(engine, [memories], [*BAD, *GOOD], size=len(BAD), skip=EVERY_REASON))
    assert [len(predicted(part)) for part in parts] == [0, 4]


def test_other_rows_have_the_scores_they_have_alone(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [*BAD, *GOOD], skip=EVERY_REASON)
    alone = list(predict(engine, memories, GOOD))
    for row, expected in zip(predicted(rows), alone, strict=True):
        assert row.scores == pytest.approx(expected.scores, abs=1e-4)


def test_without_skipping_scores_that_are_not_finite_are_an_error(engine: Engine, memories: list[Memory]) -> None:
    for skip in (NO_REASON, UNSCORABLE):
        with pytest.raises(NotFiniteError, match="overflows: the score of candidate 1 is nan"):
            list(predictions(engine, [memories], [*GOOD, NAN], skip=skip))


def test_only_what_is_to_be_skipped_is(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [*BAD[1:], *GOOD], skip=UNSCORABLE)
    reasons = [row.reason for row in rows if isinstance(row, Skipped)]
    assert reasons == [UNREADABLE, TOO_LONG, SAME_TOKENS]
    for row, reason in zip(BAD[2:], ("too long", "same tokens"), strict=True):
        with pytest.raises(InputError, match=reason):
            list(predictions(engine, [memories], [row, *GOOD]))


def test_progress_counts_every_row_of_a_chunk(engine: Engine, memories: list[Memory]) -> None:
    told, start = list[Event](), Progress("scoring", 10, 16)
    rows = [*BAD, *GOOD]
    list(predictions(engine, [memories], rows, size=4, skip=EVERY_REASON, tell=told.append, progress=start))
    assert told == [Progress("scoring", 14, 16), Progress("scoring", 16, 16)]
