"""Estimate the head of a memory from labelled rows, or from its demonstrations, each input left out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from deepthink_cli.calibration.bounded import held_out
from deepthink_cli.calibration.registry import Calibration
from deepthink_cli.calibration.stored import rows_digest
from deepthink_cli.corrections import Calibrated, Head
from deepthink_cli.data.examples import DemonstrationSet, Query, Skipped
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Progress, Tell
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import Provenance
from deepthink_cli.scoring.heads import observed_layers
from deepthink_cli.scoring.likelihood import observe_each
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, longest, planned
from deepthink_cli.scoring.prediction import Scores
from deepthink_cli.scoring.scoring import Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory

# A row with its scores and hidden states (L, W) by each memory.
Observed: TypeAlias = "tuple[Query, list[tuple[Scores, Tensor]]]"
OWN_ROWS = "the demonstrations"
LEAST = 2  # inputs of a label: each is judged by the others


def check_rows(
    method: Calibration, gold: Sequence[str], groups: Sequence[int], labels: Iterable[str], source: str
) -> None:
    """Raise InputError, naming the `source` of the rows, for a label of too few inputs.

    `gold` are the labels of the rows, `groups` the numbers of their inputs (`input_groups`).
    """
    counts = Counter(label for label, _ in {*zip(gold, groups, strict=True)})
    for label in labels:
        if counts[label] < LEAST:
            found = {0: "no row has", 1: "only one input has"}[counts[label]]
            way = "give a file of rows" if source == OWN_ROWS else "give more"
            raise InputError(f"{source}: {found} the label {label!r}; {method.name} needs {LEAST} of each, {way}")


def check_demonstrations(method: Calibration, provenance: Provenance, memory: str) -> None:
    """Raise InputError, naming the memory, if its demonstrations cannot be left out one by one."""
    demonstrations, technique = provenance.demonstrations, provenance.technique
    one_each = len(demonstrations.parts) == len(demonstrations.examples)  # composed of single demonstrations
    if not one_each and (demonstrations.parts or technique is not None):
        made = "composed of several demonstrations each" if demonstrations.parts else f"made by {technique}"
        raise InputError(
            f"{memory}: {made}, whose demonstrations cannot be left out one by one; give {option('calibrate')} "
            f"{method.name} a file of labelled rows"
        )
    gold = [each.label for each in demonstrations.examples]
    check_rows(method, gold, demonstrations.groups, demonstrations.labels, OWN_ROWS)


def observed(
    engine: Engine, memories: Sequence[Memory], rows: Iterable[Query | Skipped], scoring: Scoring
) -> Iterator[Observed | Skipped]:
    """Each row with its scores and its hidden states, which predict the label's first token, after every memory."""
    layers = observed_layers(len(memories[0].keys))
    placed, last = [engine.place(memory) for memory in memories], longest(memories).provenance
    assert last is not None
    for chunk in planned(engine, last.demonstrations, rows, size=EVALUATED, scoring=scoring, skip=UNSCORABLE):
        each = (observe_each(engine, memory, chunk.plan, layers, scoring) for memory in placed)
        by_memory = [zip(scores, states, strict=True) for scores, states in each]
        found = zip(chunk.queries, zip(*by_memory, strict=True), strict=True)
        for row in chunk.rows:
            query, measured = (row, ()) if isinstance(row, Skipped) else next(found)
            yield query if isinstance(query, Skipped) else (query, list(measured))


def observed_demonstrations(
    engine: Engine, provenance: Provenance, kept: Collection[int], scoring: Scoring, tell: Tell
) -> Iterator[Observed | Skipped]:
    """Each demonstration with its scores and hidden states after memories of the other inputs' demonstrations.

    The memories are made as the given memory was; their iterations are `kept`. K inputs cost K times its readings.
    Raises as `think`.
    """
    from deepthink_cli.thinking import think

    read = provenance.demonstrations
    whole = DemonstrationSet(read.examples, read.template, read.labels, read.chat, apart=bool(read.parts))
    method, inputs = replace(provenance.method, iterations=max(kept)), max(read.groups) + 1
    for number in range(inputs):
        own = [place for place, group in enumerate(read.groups) if group == number]
        examples = tuple(example for place, example in enumerate(read.examples) if place not in own)
        others = replace(whole, examples=examples)
        rest = tokenize_demonstrations(engine.tokenizer, others)
        origin = replace(provenance, demonstrations=rest)
        memories = [
            replace(memory, provenance=origin) for memory in think(engine, rest, method) if memory.iteration in kept
        ]
        solved = [(place + 1, read.examples[place]) for place in own]
        queries = [Query(each.text, read.labels, each.label, where=f"demonstration {n}") for n, each in solved]
        yield from observed(engine, memories, queries, scoring)
        tell(Progress("calibrating", number + 1, inputs))


def head_correction(
    method: Calibration,
    rows: Sequence[Observed],
    memories: Sequence[Memory],
    source: str,
    scoring: Scoring,
) -> Calibrated:
    """The correction by the head that a calibration estimates from rows, which were observed after each of `memories`.

    The memories are T = 1 and the kept iterations. Raises InputError, naming the `source` of the rows, for a label of
    too few inputs.
    """
    import numpy as np

    assert memories[0].provenance is not None
    demonstrations, layers = memories[0].provenance.demonstrations, observed_layers(len(memories[0].keys))
    iterations = [memory.iteration for memory in memories]
    queries, labels = [query for query, _ in rows], demonstrations.labels
    gold = [str(query.gold) for query in queries]
    groups = input_groups(queries, demonstrations.template, labels)
    check_rows(method, gold, groups, labels, source)
    places, heads, judged = [labels.index(label) for label in gold], dict[str, Head](), None
    for number, iteration in enumerate(iterations):
        scores, states = zip(*(measured[number] for _, measured in rows), strict=True)
        named = [dict(zip(row.candidates, each.sums, strict=True)) for row, each in zip(queries, scores, strict=True)]
        logs = np.array([[each[label] for label in labels] for each in named])
        states_NLW = np.stack([state.numpy() for state in states])
        head = method.head(states_NLW, logs, places, groups)
        heads[str(iteration)] = head.stored(layers, labels)
        if iteration == max(iterations):
            judged = held_out(method, logs, places, groups, states_NLW)
    used = scoring.correctable if any(head.of_scores for head in heads.values()) else scoring.of_states
    return Calibrated(method.name, used, {}, len(rows), rows_digest(queries, labelled=True), source, heads, judged)
