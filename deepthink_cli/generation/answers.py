"""Generate the free answers to a task's rows, and judge them by the task's judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.decoding import Decoding
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.generation.generation import Generation, generate_or_skip
from deepthink_cli.model.tokens import Written
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.format import Free
from deepthink_cli.tasks.judges import judge_of

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def answered(
    engine: Engine,
    memories: Sequence[Memory],
    free: Free,
    queries: Iterable[Query | Skipped],
    written: Written | None = None,
    tell: Tell = silent,
    progress: Progress | None = None,
) -> Iterator[Prediction | Skipped]:
    """Yield every query's answers, one by each memory, in order: greedily generated, and judged by the task's judge.

    A prediction's `label` is the answer found in the generated `text`; the `gold` of its query is the compared part of
    the true answer; there are no scores. `written` writes the queries. Rows that are too long are skipped. `tell` is
    called with the `progress` after every row, as in `scoring.pipeline`.
    """
    stop = None if free.stop is None else tuple(free.stop)
    decoding = Decoding(max_new_tokens=free.max_new_tokens, stop=stop)
    for each in chain.from_iterable(generate_or_skip(engine, memories, queries, decoding, written=written)):
        yield each if isinstance(each, Skipped) else judged(free, each)
        if progress is not None and (isinstance(each, Skipped) or each.iteration == memories[-1].iteration):
            progress = replace(progress, done=progress.done + 1)
            tell(progress)


def judged(free: Free, generation: Generation) -> Prediction:
    """A generated answer as a prediction; it is right if its label is the true answer."""
    query, gold = generation.query, generation.query.gold
    assert gold is not None
    gold, label = judge_of(free).answers(free, gold, generation.text, query.fields or {})
    return Prediction(
        query=replace(query, gold=gold),
        iteration=generation.iteration,
        label=label,
        probability=1.0,
        scores={},
        label_mean_per_token=label,
        tied=False,
        means={},
        text=generation.text,
    )
