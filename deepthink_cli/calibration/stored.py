"""The correction that a memory stores: estimated once, from texts or rows, and used in every labelling."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.basis import check_calibrations
from deepthink_cli.calibration.calibrator import TextBiases
from deepthink_cli.calibration.registry import NONE, STORED
from deepthink_cli.corrections import Calibrated, StoredBias
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.text import canonical_json
from deepthink_cli.provenance import TokenizedDemonstrations
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
    demonstrations = memories[0].origin.demonstrations
    texts = TextBiases(name, engine, [[engine.place(memory) for memory in memories]], demonstrations, scoring)
    biases = {str(t): stored_bias(bias) for (t, _), bias in sorted(texts.of([demonstrations.labels]).items())}
    digest = digest_of(dict(text) if not isinstance(text, str) else text for text in texts.inputs.texts)
    count = len(texts.inputs.texts)
    return Calibrated(name, scoring.correctable, biases, count, digest)


def stored_bias(bias: Bias) -> StoredBias:
    """A bias as a file holds it, by label."""
    return StoredBias(*(dict(zip(bias.candidates, kind.tolist(), strict=True)) for kind in bias.logs))


def digest_of(inputs: Iterable[object]) -> str:
    """Digest of the inputs of an estimate, as canonical JSON."""
    return hashlib.sha256(canonical_json(list(inputs)).encode()).hexdigest()
