"""Estimate the centroids of a memory: from labelled rows, or from its own demonstrations, each left out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import CENTROID
from deepthink_cli.calibration.stored import recorded, rows_digest
from deepthink_cli.corrections import Calibrated
from deepthink_cli.data.examples import DemonstrationSet, Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Progress, Tell
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import Provenance
from deepthink_cli.scoring.centroids import centroids_of
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, longest, planned
from deepthink_cli.scoring.prediction import observe_each

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory

    Observed = tuple[Query, list[Tensor]]  # a row, and its hidden state (W,) after each memory

OWN_ROWS = "the demonstrations"
_LEAST = 2  # rows of a label: the mean of one is no mean


def check_rows(counts: Counter[str], labels: Iterable[str], source: str) -> None:
    """Raise InputError, naming where the rows are from, for a label of too few of them."""
    for label in labels:
        if counts[label] < _LEAST:
            found = {0: "no row has", 1: "only one row has"}[counts[label]]
            way = "give a file of rows" if source == OWN_ROWS else "give more"
            raise InputError(f"{source}: {found} the label {label!r}; {CENTROID} needs {_LEAST} of each, {way}")


def check_demonstrations(provenance: Provenance, memory: str) -> None:
    """Raise InputError, naming the memory, if its demonstrations cannot be left out one by one."""
    demonstrations, technique = provenance.demonstrations, provenance.technique
    one_each = len(demonstrations.parts) == len(demonstrations.examples)  # composed of single demonstrations
    if not one_each and (demonstrations.parts or technique is not None):
        made = "composed of several demonstrations each" if demonstrations.parts else f"made by {technique}"
        raise InputError(
            f"{memory}: {made}, whose demonstrations cannot be left out one by one; give {option('calibrate')} "
            f"{CENTROID} a file of labelled rows"
        )
    check_rows(Counter(each.label for each in demonstrations.examples), demonstrations.labels, OWN_ROWS)


def observed(
    engine: Engine, memories: Sequence[Memory], rows: Iterable[Query | Skipped], score: ScoreName
) -> Iterator[Observed | Skipped]:
    """Each row with its hidden state after every memory: that from which the label's first token is predicted."""
    placed, last = [engine.place(memory) for memory in memories], longest(memories).provenance
    assert last is not None
    for chunk in planned(engine, last.demonstrations, rows, size=EVALUATED, score=score, skip=UNSCORABLE):
        by_memory = [observe_each(engine, memory, chunk.plan)[1] for memory in placed]
        found = zip(chunk.queries, zip(*by_memory, strict=True), strict=True)
        for row in chunk.rows:
            query, states = (row, ()) if isinstance(row, Skipped) else next(found)
            yield query if isinstance(query, Skipped) else (query, list(states))


def observed_demonstrations(
    engine: Engine, provenance: Provenance, kept: Collection[int], score: ScoreName, tell: Tell
) -> Iterator[Observed | Skipped]:
    """Each demonstration with its hidden states after memories of the others, at the iterations `kept`.

    K demonstrations cost K times the readings of the memory. The others are read as all were; raises as `think`.
    """
    from deepthink_cli.thinking import think

    read = provenance.demonstrations
    whole = DemonstrationSet(read.examples, read.template, read.labels, read.chat, apart=bool(read.parts))
    method, count = replace(provenance.method, iterations=max(kept)), len(read.examples)
    for place, example in enumerate(read.examples):
        others = replace(whole, examples=read.examples[:place] + read.examples[place + 1 :])
        rest = replace(tokenize_demonstrations(engine.tokenizer, others), query_copies=read.query_copies)
        origin = replace(provenance, demonstrations=rest)
        memories = [
            replace(memory, provenance=origin) for memory in think(engine, rest, method) if memory.iteration in kept
        ]
        query = Query(example.text, read.labels, example.label, where=f"demonstration {place + 1}")
        yield from observed(engine, memories, [query], score)
        tell(Progress("calibrating", place + 1, count))


def centroid_correction(
    rows: Sequence[Observed],
    iterations: Sequence[int],
    labels: tuple[str, ...],
    source: str,
    score: ScoreName,
    reread: int,
) -> Calibrated:
    """The correction by the centroids of rows, whose states are after the memories of these iterations.

    Raises InputError, naming the `source` of the rows, for a label of too few of them.
    """
    queries = [query for query, _ in rows]
    gold = [str(query.gold) for query in queries]
    check_rows(Counter(gold), labels, source)
    of_iterations = zip(*(states for _, states in rows), strict=True)
    centroids = {
        str(iteration): centroids_of(states, gold, labels)
        for iteration, states in zip(iterations, of_iterations, strict=True)
    }
    digest = rows_digest(queries, labelled=True)
    return Calibrated(CENTROID, score, {}, len(rows), digest, source, recorded(reread), centroids)
