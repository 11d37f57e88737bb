"""Messages of predict and eval about calibrations: not supported, the estimated bias, and where one would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from deepthink_cli.calibration.calibrator import own_candidates
from deepthink_cli.calibration.registry import STORED, calibration, from_rows
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.scoring.inputs import CheckedRows
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.softmax import shares

CheckRow = Callable[[Query], None]
ANSWERS, SHARE = 20, 0.9  # one label has this share of at least so many answers,
EXCESS = 0.1  # and exceeds its share of the true labels, where they are known, by this;
LARGE = 0.2  # or any share exceeds it by this
FIRST = 256  # the rows of a stream after which the user is warned
_SHOWN = 6  # labels in a note


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
        tell(_still(label, share, corrected, rows) if corrected else _warning(label, share, memory, rows))


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
        if not self.done and (most := _one_label(self.answers)) is not None:
            self.tell(_warning(*most, self.memory))
        self.done = True


def _one_label(answers: Counter[str]) -> tuple[str, float] | None:
    """The label that has nearly all answers, and its share."""
    total = answers.total()
    if total < ANSWERS:
        return None
    ((label, count),) = answers.most_common(1)
    return (label, count / total) if count >= SHARE * total else None


def _still(label: str, share: float, corrected: Sequence[str], rows: str) -> Warn:
    others = ",".join(name for name in ("contextual", "domain", "batch") if name not in corrected)
    advice = f"; compare {option('calibrate')} {others}" if others else ""
    return Warn(f"{100 * share:.0f} % of the answers are {label!r} after {corrected[0]} calibration{rows}{advice}")


def _warning(label: str, share: float, memory: str | None, rows: str = "") -> Warn:
    stored = "" if memory is None else f", or store a correction with deepthink calibrate {memory}"
    return Warn(f"{100 * share:.0f} % of the answers are {label!r}{rows}: try {option('calibrate')} batch{stored}")
