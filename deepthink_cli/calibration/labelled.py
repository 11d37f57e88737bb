"""Corrections that are fitted to rows after memories: those that memories store, and those of the rows of a run.

The rows have true labels, but for a bias that needs none. Without rows, a head is fitted to the demonstrations, each
input left out in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.bounded import cross_validated, held_out
from deepthink_cli.calibration.calibrator import corrections, estimated, log_probabilities
from deepthink_cli.calibration.discriminants import Unlabelled
from deepthink_cli.calibration.registry import FEWEST, Calibration
from deepthink_cli.corrections import Calibrated, HeldOut, UnlabelledInputs
from deepthink_cli.data.examples import DemonstrationSet, Query, Skipped
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Progress, Tell
from deepthink_cli.io.text import json_sha256
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
from deepthink_cli.scoring.heads import LinearHead, observed_layers
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, predictions
from deepthink_cli.scoring.prediction import Correction, Prediction
from deepthink_cli.scoring.scoring import Scoring

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats

OWN_ROWS = "the demonstrations"
LEAST = 2  # inputs of a label: each is judged by the others


def by_memory(rows: Iterable[Prediction]) -> list[list[Prediction]]:
    """The rows after each memory, in the order of the iterations; empty without rows."""
    found: dict[int, list[Prediction]] = {}
    for each in rows:
        found.setdefault(each.iteration, []).append(each)
    return [of_memory for _, of_memory in sorted(found.items())]


def states_of(rows: Sequence[Prediction]) -> Floats | None:
    """The hidden states (n, L, W) of n rows; None if they have none."""
    import numpy as np

    states = [each.states for each in rows if each.states is not None]
    return np.stack(states) if states else None


def observed(
    engine: Engine, memories: Sequence[Memory], rows: Iterable[Query | Skipped], scoring: Scoring, states: bool = True
) -> Iterator[Prediction | Skipped]:
    """Each row after every memory, with the hidden `states` that predict the label's first token."""
    layers = observed_layers(len(memories[0].keys)) if states else ()
    parts = predictions(engine, [memories], rows, size=EVALUATED, scoring=scoring, skip=UNSCORABLE, layers=layers)
    return chain.from_iterable(parts)


def observed_demonstrations(
    engine: Engine, provenance: Provenance, kept: Collection[int], scoring: Scoring, tell: Tell
) -> Iterator[Prediction | Skipped]:
    """Each demonstration, as in `observed`, after memories of the other inputs' demonstrations.

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
        rest = tokenize_demonstrations(engine.tokenizer, replace(whole, examples=examples))
        origin = replace(provenance, demonstrations=rest)
        memories = [
            replace(memory, provenance=origin) for memory in think(engine, rest, method) if memory.iteration in kept
        ]
        solved = [(place + 1, read.examples[place]) for place in own]
        queries = [Query(each.text, read.labels, each.label, where=f"demonstration {n}") for n, each in solved]
        yield from observed(engine, memories, queries, scoring)
        tell(Progress("calibrating", number + 1, inputs))


def check_labelled(method: Calibration, rows: Sequence[Query], demonstrations: DemonstrationSet, source: str) -> None:
    """Raise InputError, naming the `source` of labelled rows, for rows to which a calibration cannot be fitted."""
    if not method.of_states and len(rows) < FEWEST:
        raise InputError(f"{source}: {method.name} needs {FEWEST}, and there are {len(rows)}; give more")
    labels = demonstrations.labels
    gold, groups = [str(row.gold) for row in rows], input_groups(rows, demonstrations.template, labels)
    _check_inputs(method, gold, groups, labels, source)


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
    _check_inputs(method, gold, demonstrations.groups, demonstrations.labels, OWN_ROWS)


def _check_inputs(
    method: Calibration, gold: Sequence[str], groups: Sequence[int], labels: Iterable[str], source: str
) -> None:
    """Raise InputError for a label of too few inputs; `groups` are the numbers of the rows' inputs."""
    counts = Counter(label for label, _ in {*zip(gold, groups, strict=True)})
    for label in labels:
        if counts[label] < LEAST:
            found = {0: "no row has", 1: "only one input has"}[counts[label]]
            way = "give a file of rows" if source == OWN_ROWS else "give more"
            raise InputError(f"{source}: {found} the label {label!r}; {method.name} needs {LEAST} of each, {way}")


class LabelledRows:
    """Rows with true labels after one memory, to which corrections are fitted, and more rows without labels."""

    def __init__(
        self, rows: Sequence[Prediction], demonstrations: TokenizedDemonstrations, unlabelled: Sequence[Prediction] = ()
    ) -> None:
        self.rows, self.states, self.labels = rows, states_of(rows), demonstrations.labels
        self.queries = [each.query for each in rows]
        self.gold = [self.labels.index(str(query.gold)) for query in self.queries]
        self.groups = input_groups(self.queries, demonstrations.template, self.labels)
        self.logs = log_probabilities(rows, self.labels)
        states = states_of(unlabelled)
        self.more = None if states is None else Unlabelled(states, log_probabilities(unlabelled, self.labels)[:, 0])

    def head(self, method: Calibration) -> LinearHead:
        """The head of a calibration by hidden states."""
        return method.fitted(self.logs[:, 0], self.gold, self.groups, self.states, self.more)

    def held_out(self, method: Calibration) -> HeldOut:
        """The probabilities of the labels that a calibration gives to rows of other folds."""
        return held_out(method, self.logs[:, 0], self.gold, self.groups, self.states, self.more)

    def corrected(self, method: Calibration, rows: Sequence[Prediction] | None) -> list[Correction]:
        """The corrections of other rows, or of these rows, each by the rows of other folds."""
        count, bias = len(self.queries), None
        if rows is None:
            sums, means = (
                cross_validated(method, self.logs[:, kind], self.gold, self.groups, self.states) for kind in (0, 1)
            )
            return corrections(self.rows, self.labels, sums, means, bias, count, "rows")
        logs = log_probabilities(rows, self.labels)
        if method.of_states:
            sums = means = self.head(method).scores(states_of(rows), logs[:, 0])
        else:
            found = estimated(method, self.labels, self.logs, self.gold)
            (sums, means), bias = (logs - found.logs).swapaxes(0, 1), found.logs[0]
        return corrections(rows, self.labels, sums, means, bias, count, "rows")


def calibrated_by_rows(
    method: Calibration,
    rows: Sequence[Sequence[Prediction]],
    memories: Sequence[Memory],
    source: str,
    scoring: Scoring,
    unlabelled: Sequence[Sequence[Prediction]] = (),
    source_of_more: str = "",
) -> Calibrated:
    """The correction that a calibration estimates from rows after T = 1 and the `memories` that will be kept.

    `source` names the file of the rows; `unlabelled` are more rows after the same memories, of `source_of_more`, which
    a head names if they have a part in it. Raises InputError for too few rows, or for too few inputs of a label.
    """
    demonstrations = memories[0].origin.demonstrations
    labels, queries = demonstrations.labels, [each.query for each in rows[0]] if rows else []
    method.check_count(len(queries))
    if method.of_states:
        check_labelled(method, queries, demonstrations, source)
    present = {query.gold for query in queries}
    if method.labelled and (absent := [label for label in labels if label not in present]):
        raise InputError(f"{source}: no row has the label {absent[0]!r}; {method.name} needs rows of every label")
    pairs = zip(rows, unlabelled or [()] * len(rows), strict=True) if method.labelled else ()
    fitted_to = [LabelledRows(each, demonstrations, more) for each, more in pairs]
    judged = fitted_to[-1].held_out(method) if fitted_to else None
    count, digest = len(queries), digest_of(queries, method.labelled)
    if method.of_states:
        layers = observed_layers(len(memories[0].keys))
        found = {str(each.rows[0].iteration): each.head(method) for each in fitted_to}
        heads, more = {number: head.stored(layers, labels) for number, head in found.items()}, None
        used = scoring.correctable if any(head.of_scores for head in heads.values()) else scoring.of_states
        if any(head.joined for head in found.values()):
            asked = [each.query for each in unlabelled[0]]
            more = UnlabelledInputs(len(asked), digest_of(asked, labelled=False), source_of_more)
        return Calibrated(method.name, used, {}, count, digest, source, heads, judged, more)
    gold = fitted_to[0].gold if fitted_to else None
    biases = {
        str(each[0].iteration): estimated(method, labels, log_probabilities(each, labels), gold).stored for each in rows
    }
    return Calibrated(method.name, scoring.correctable, biases, count, digest, source, held_out=judged)


def digest_of(rows: Sequence[Query], labelled: bool) -> str:
    """The digest of the rows' list as canonical JSON, with pairs of text and label if they are `labelled`."""
    texts: list[Any] = [each.text if isinstance(each.text, str) else dict(each.text) for each in rows]
    return json_sha256([[text, row.gold] for text, row in zip(texts, rows, strict=True)] if labelled else texts)
