"""The correction that a memory stores: estimated once, from texts or rows, and used in every labelling."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.basis import check_calibrations
from deepthink_cli.calibration.bounded import held_out
from deepthink_cli.calibration.calibrator import TextBiases, estimated, log_probabilities
from deepthink_cli.calibration.registry import NONE, STORED, calibration
from deepthink_cli.corrections import Calibrated, StoredBias
from deepthink_cli.data.examples import Query
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.text import canonical_json
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring, as_options, check_stored

if TYPE_CHECKING:
    from deepthink_cli.calibration.calibrator import Bias
    from deepthink_cli.memory import Memory


def in_use(calibrate: Sequence[str], memories: Sequence[OpenedMemory], scoring: Scoring = PLAIN) -> tuple[str, ...]:
    """The calibrations that correct the scores of memories: the named calibrations, or the stored correction.

    Raises InputError, naming the memory, for a stored correction that some memories of an ensemble lack, or that was
    estimated by another scoring.
    """
    names = tuple(calibrate)
    if not names and any(memory.provenance.calibrated for memory in memories):
        names = (STORED,)
    if STORED in names:
        _check_stored(memories, scoring)
    return names


def _check_stored(memories: Sequence[OpenedMemory], scoring: Scoring) -> None:
    without, methods = f"or use {option('calibrate')} {NONE}", set[str]()
    for memory in memories:
        if (stored := memory.provenance.calibrated) is None:
            raise InputError(
                f"{memory.name}: stores no correction; store one with deepthink calibrate {memory.name}"
                f"{as_options(scoring.correctable)}, {without}"
            )
        used = scoring.of_states if stored.of_states else scoring.correctable
        how = "" if stored.source is None else f" ROWS {option('calibrate')} {stored.method}"
        check_stored(stored.scoring, used, "the correction", memory.name, f"{how}, {without}")
        methods.add(stored.method)
    if len(methods) > 1:
        names = " and ".join(sorted(methods))
        raise InputError.of("ensemble", None, f"the memories store corrections by {names}; store one kind, {without}")


def check_storable(name: str, demonstrations: TokenizedDemonstrations, memory: str) -> None:
    """Raise InputError if a memory without label words cannot store the correction, which is of labels."""
    if not demonstrations.labels:
        raise InputError(
            f"{option('calibrate')} {name}: {memory} has no label words, every row has candidates of its own; correct "
            f"them where they are labelled, with deepthink predict {option('calibrate')} contextual"
        )
    check_calibrations([name], demonstrations, memory)


def calibrated_by_texts(engine: Engine, memories: Sequence[Memory], name: str, scoring: Scoring = PLAIN) -> Calibrated:
    """The correction that a calibration estimates from texts, through T = 1 and the memories that will be kept.

    Raises InputError for texts that do not fit the tokenizer, and NotFiniteError for scores that are not finite.
    """
    assert memories[0].provenance is not None
    demonstrations = memories[0].provenance.demonstrations
    texts = TextBiases(name, engine, [[engine.place(memory) for memory in memories]], demonstrations, scoring)
    biases = {iteration: bias for (iteration, _), bias in texts.of([demonstrations.labels]).items()}
    digest = _digest(dict(text) if not isinstance(text, str) else text for text in texts.inputs.texts)
    count = len(texts.inputs.texts)
    return Calibrated(name, scoring.correctable, _stored(biases), count, digest)


def calibrated_by_rows(
    predictions: Iterable[Prediction],
    name: str,
    demonstrations: TokenizedDemonstrations,
    source: str,
    scoring: Scoring = PLAIN,
) -> Calibrated:
    """The correction that a calibration estimates from predictions of rows by T = 1 and the memories that will be kept.

    `source` names the file of the rows. Raises InputError for too few rows, and for labels that no row has if true
    labels are needed.
    """
    method, labels, by_iteration = calibration(name), demonstrations.labels, dict[int, list[Prediction]]()
    for each in predictions:
        by_iteration.setdefault(each.iteration, []).append(each)
    rows = [each.query for each in next(iter(by_iteration.values()), [])]
    method.check_count(len(rows))
    gold = [labels.index(str(row.gold)) for row in rows] if method.labelled else None
    if gold is not None and (absent := [label for place, label in enumerate(labels) if place not in gold]):
        raise InputError(f"{source}: no row has the label {absent[0]!r}; {name} needs rows of every label")
    biases = {
        iteration: estimated(method, labels, log_probabilities(each, labels), gold=gold)
        for iteration, each in by_iteration.items()
    }
    digest, judged = rows_digest(rows, method.labelled), None
    if gold is not None:
        logs = log_probabilities(by_iteration[max(by_iteration)], labels)[:, 0]
        judged = held_out(method, logs, gold, input_groups(rows, demonstrations.template, labels))
    return Calibrated(name, scoring.correctable, _stored(biases), len(rows), digest, source, held_out=judged)


def rows_digest(rows: Sequence[Query], labelled: bool) -> str:
    """Digest of the rows' texts, or of pairs of a text and its label."""
    texts = [row.text if isinstance(row.text, str) else dict(row.text) for row in rows]
    return _digest([[text, row.gold] for text, row in zip(texts, rows, strict=True)] if labelled else texts)


def with_correction(memories: Iterable[Memory], calibrated: Calibrated | None) -> list[Memory]:
    """The memories with a correction in their provenance, or without one."""
    corrected = []
    for memory in memories:
        assert memory.provenance is not None
        corrected.append(replace(memory, provenance=replace(memory.provenance, calibrated=calibrated)))
    return corrected


def _stored(biases: dict[int, Bias]) -> dict[str, StoredBias]:
    """The biases as a file holds them, by iteration and label."""
    return {
        str(iteration): StoredBias(*(dict(zip(bias.candidates, kind.tolist(), strict=True)) for kind in bias.logs))
        for iteration, bias in sorted(biases.items())
    }


def _digest(inputs: Iterable[object]) -> str:
    return hashlib.sha256(canonical_json(list(inputs)).encode()).hexdigest()
