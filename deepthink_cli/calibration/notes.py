"""Messages about calibrations: what memories and rows do not support, the estimated bias, and where one would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.basis import check_calibrations
from deepthink_cli.calibration.calibrator import own_candidates
from deepthink_cli.calibration.registry import HEAD, NONE, STORED, calibration, from_rows
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.inputs import CheckedRows
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring, as_options, check_stored
from deepthink_cli.scoring.softmax import shares

CheckRow = Callable[[Query], None]
ANSWERS, SHARE = 20, 0.9  # one label has this share of at least so many answers,
EXCESS = 0.1  # and exceeds its share of the true labels, where they are known, by this;
LARGE = 0.2  # or any share exceeds it by this
FIRST = 256  # the rows of a stream after which the user is warned
_SHOWN = 6  # labels in a note


def in_use(calibrate: Sequence[str], memories: Sequence[OpenedMemory], scoring: Scoring = PLAIN) -> tuple[str, ...]:
    """The calibrations that correct the scores of memories: the named calibrations, or the stored correction.

    Raises InputError, naming the memory, for a stored correction that some memories of an ensemble lack, or that was
    estimated by another scoring.
    """
    names = tuple(calibrate)
    if not names and any(memory.provenance.calibrated for memory in memories):
        names = (STORED,)
    without, methods = f"or use {option('calibrate')} {NONE}", set[str]()
    for memory in memories if STORED in names else ():
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
        kinds = " and ".join(sorted(methods))
        raise InputError.of("ensemble", None, f"the memories store corrections by {kinds}; store one kind, {without}")
    return names


def check_storable(name: str, demonstrations: TokenizedDemonstrations, memory: str) -> None:
    """Raise InputError if a memory without label words cannot store the correction, which is of labels."""
    if not demonstrations.labels:
        raise InputError(
            f"{option('calibrate')} {name}: {memory} has no label words, every row has candidates of its own; correct "
            f"them where they are labelled, with deepthink predict {option('calibrate')} contextual"
        )
    check_calibrations([name], demonstrations, memory)


def check_supported(calibrate: Sequence[str], checked: CheckedRows | None) -> None:
    """Raise InputError for a calibration that cannot be estimated from these rows, or that a row does not support."""
    if checked is None:
        return
    check_count(calibrate, checked.count)
    for name in of_labels(calibrate):
        if checked.other_labels is not None:
            raise own_candidates(name, checked.other_labels)


def of_labels(calibrate: Sequence[str]) -> list[str]:
    """The calibrations whose bias is of the memory's labels, and of no other candidates."""
    return [name for name in calibrate if name == STORED or name in from_rows(calibrate)]


def check_count(calibrate: Sequence[str], rows: int) -> None:
    """Raise InputError for a calibration that cannot be estimated from so few rows."""
    for name in from_rows(calibrate):
        calibration(name).check_count(rows)


def skipping(rows: Iterable[Query | Skipped], check: CheckRow) -> Iterator[Query | Skipped]:
    """The rows; a row that the check refuses becomes `Skipped`."""
    for row in rows:
        try:
            if isinstance(row, Query):
                check(row)
        except InputError as error:
            yield Skipped(error.problems, fields=row.fields)
        else:
            yield row


def tell_of_bias(
    predictions: Sequence[Prediction], calibrate: Sequence[str], labels: tuple[str, ...], tell: Tell
) -> None:
    """Note the biases with which the last prediction was corrected, if its candidates are the labels."""
    for name in calibrate if predictions else ():
        correction = predictions[-1].calibrated.get(name)
        if correction is not None and set(correction.bias) == set(labels):
            biases = zip(correction.bias, shares(list(correction.bias.values())), strict=True)
            parts = [f"{label!r} {share:.1%}" for label, share in biases]
            text = ", ".join([*parts[:_SHOWN], *(["..."] if len(parts) > _SHOWN else [])])
            tell(Note(f"{name} calibration: bias of {correction.estimated_from}: {text}"))


def warn_of_one_label(
    confusion: Mapping[str, Mapping[str, int]], memory: str | None, tell: Tell, corrected: Sequence[str] = ()
) -> None:
    """Warn if a label has nearly all answers, or many more answers than rows.

    `confusion` is {true label: {answer: count}}. `memory` is a file that can store a correction, or None. `corrected`
    names the calibrations in use; the first of them gave the answers.
    """
    answers = sum((Counter(row) for row in confusion.values()), Counter[str]())
    if answers.total() < ANSWERS:
        return
    excess = {label: (answers[label] - sum(row.values())) / answers.total() for label, row in confusion.items()}
    label = max(excess, key=lambda each: excess[each])
    share = answers[label] / answers.total()
    if excess[label] >= (EXCESS if share >= SHARE else LARGE):
        rows = f", but only {100 * (share - excess[label]):.0f} % of the rows"
        if not corrected:
            tell(_warning(label, share, memory, rows))
            return
        others = ",".join(name for name in ("contextual", "domain", "batch") if name not in corrected)
        advice = f"; compare {option('calibrate')} {others}" if others else ""
        if corrected[0] == STORED:
            advice = f"; label some of these rows for deepthink calibrate MEMORY ROWS {option('calibrate')} {HEAD}"
        tell(Warn(f"{100 * share:.0f} % of the answers are {label!r} after {corrected[0]} calibration{rows}{advice}"))


class OneLabelWarning:
    """Warns once if one label has nearly all answers, by the last iteration: at the end, or early in a stream.

    `memory` is as in `warn_of_one_label`.
    """

    def __init__(self, labels: tuple[str, ...], memory: str | None, tell: Tell, streams: bool) -> None:
        self.labels, self.memory, self.tell, self.streams, self.done = set(labels), memory, tell, streams, False
        self.answers = Counter[str]()

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Count the answers of a chunk, whose last prediction is by the last iteration."""
        if not predictions:
            return
        last = predictions[-1].iteration
        same = (each for each in predictions if each.iteration == last and set(each.query.candidates) == self.labels)
        self.answers.update(each.label for each in same)
        if self.streams and self.answers.total() >= FIRST:
            self.end()

    def end(self) -> None:
        """Judge the answers so far, unless they were judged early."""
        total = self.answers.total()
        if not self.done and total >= ANSWERS:
            ((label, count),) = self.answers.most_common(1)
            if count >= SHARE * total:
                self.tell(_warning(label, count / total, self.memory))
        self.done = True


def _warning(label: str, share: float, memory: str | None, rows: str = "") -> Warn:
    stored = "" if memory is None else f", or store a correction with deepthink calibrate {memory}"
    return Warn(f"{100 * share:.0f} % of the answers are {label!r}{rows}: try {option('calibrate')} batch{stored}")
