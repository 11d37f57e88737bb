"""Calibrations: their interface, their names, as `--calibrate` takes them, and the option of a stored one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deepthink_cli.errors import InputError, option
from deepthink_cli.options import METHOD, Flag, Options, named_by
from deepthink_cli.registry import Registry, instance_of, loaded
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from deepthink_cli.calibration.discriminants import Unlabelled
    from deepthink_cli.scoring.heads import LinearHead
    from deepthink_cli.scoring.softmax import Floats


Basis = Literal["content-free", "domain", "premise", "batch", "labelled"]
Estimate = Callable[..., Any]
MOST_UNLABELLED = 1_000  # rows without labels: each takes a pass, and the fits take seconds
FEWEST = 20  # rows for a bias; among fewer, each row changes the labels of the others much


@dataclass(frozen=True)
class Calibration:
    """A calibration, by its name in `--calibrate`.

    `basis` are the inputs from which the bias is estimated: fixed texts without content, random words of the
    demonstrations, a prompt without the input, the inputs themselves, or rows with their true labels. `estimate` turns
    the normalised log-probabilities (m, C) of these inputs into log b (C,); with true labels, it also takes their
    places (m,). It is a function, or the place of one (`module:function`). `own_candidates`: the calibration is defined
    if every query has candidates of its own. `averaged`: b is a mean over the inputs, so that the estimates of several
    batches can be averaged.

    `of_states`: there is no bias, but a head. `estimate` turns hidden states (m, L, W) of rows, the log-probabilities
    (m, C) of their labels, the places (m,) of their true labels, and the numbers (m,) of their inputs into a
    `LinearHead`. With `takes_unlabelled`, it also takes rows without labels, or None.
    """

    name: str
    estimate: Estimate | str
    basis: Basis
    summary: str
    source: str
    own_candidates: bool = False
    averaged: bool = False
    of_states: bool = False
    takes_unlabelled: bool = False

    def bias(self, logs: Floats, gold: Sequence[int] | None = None) -> Floats:
        """log b (C,), from the log-probabilities (m, C) of the basis.

        `gold` (m,) are the places of the true labels, for a calibration that needs them.
        """
        found: Floats = loaded(self.estimate)(logs) if gold is None else loaded(self.estimate)(logs, gold)
        return found

    def fitted(
        self,
        scores: Any,
        gold: Sequence[int] | None = None,
        groups: Sequence[int] = (),
        states: Floats | None = None,
        unlabelled: Unlabelled | None = None,
    ) -> LinearHead:
        """The correction by rows or texts with these scores (m, C) in nats, as a linear function that scores labels.

        `gold` (m,) are the places of the true labels, for a calibration that needs them; a calibration `of_states` also
        needs the numbers (m,) of the inputs, and the hidden states (m, L, W). `unlabelled` are more rows, for a
        calibration that takes them.
        """
        import numpy as np

        from deepthink_cli.scoring.heads import LinearHead

        if not self.of_states:
            bias = self.bias(log_softmax(scores), gold)
            return LinearHead(np.zeros((len(bias), 0, 0)), -bias, 1.0)
        more = () if unlabelled is None else (unlabelled,)
        found: LinearHead = loaded(self.estimate)(states, scores, gold, groups, *more)
        return found

    def check_count(self, rows: int) -> None:
        """Raise InputError for too few rows, if the bias is estimated from rows.

        After a correction by a single row, for instance, its labels are always equally likely.
        """
        if not self.from_rows or self.of_states or rows >= FEWEST:
            return
        raise InputError(
            f"{option('calibrate')} {self.name}: is estimated from {FEWEST} rows or more, not from {rows}; store the "
            "bias of other rows in the memory with deepthink calibrate MEMORY ROWS, or use contextual"
        )

    @property
    def from_rows(self) -> bool:
        """Whether the bias is estimated from rows, which must have the same labels."""
        return self.basis in ("batch", "labelled")

    @property
    def labelled(self) -> bool:
        """Whether the bias is estimated from rows with their true labels."""
        return self.basis == "labelled"


_HERE = "deepthink_cli.calibration"
NONE, STORED = "none", "stored"  # in `--calibrate`: no correction, and the memory's own; no calibrations
HEAD = "head"
THRESHOLDS = "thresholds"  # in `deepthink calibrate`: a threshold for each label, for rows with several labels
_ALL = (
    Calibration(
        "contextual",
        f"{_HERE}.estimates:log_mean",
        "content-free",
        "labels after the inputs 'N/A', '[MASK]' and an empty one",
        "Zhao et al. 2021, arXiv 2102.09690",
        own_candidates=True,
        averaged=True,
    ),
    Calibration(
        "domain",
        f"{_HERE}.estimates:log_mean",
        "domain",
        "labels after 20 texts of random words from the demonstrations",
        "Fei et al. 2023, arXiv 2305.19148",
        own_candidates=True,
        averaged=True,
    ),
    Calibration(
        "batch",
        f"{_HERE}.estimates:log_mean",
        "batch",
        "the mean probability of each label over the inputs",
        "Zhou et al. 2023, arXiv 2309.17249",
        averaged=True,
    ),
    Calibration(
        "pmi",
        f"{_HERE}.estimates:log_mean",
        "premise",
        "labels after the end of the template alone",
        "Holtzman et al. 2021, arXiv 2104.08315",
        own_candidates=True,
    ),
    Calibration(
        "fitted",
        f"{_HERE}.estimates:log_fitted",
        "labelled",
        "the bias without which the true labels of rows are the likeliest (deepthink calibrate, tune)",
        "Guo et al. 2017, arXiv 1706.04599",
    ),
    Calibration(
        "fitted-slope",
        f"{_HERE}.estimates:log_fitted_with_slope",
        "labelled",
        "the same with a slope of the scores, fitted together with the bias",
        "Guo et al. 2017, arXiv 1706.04599",
    ),
    Calibration(
        HEAD,
        f"{_HERE}.discriminants:discriminants",
        "labelled",
        "a classifier of hidden states of several layers, joined with the scores (deepthink calibrate, tune)",
        "Friedman 1989, Journal of the American Statistical Association 84(405); Wolpert 1992, Neural Networks 5(2)",
        of_states=True,
        takes_unlabelled=True,
    ),
)


def _check(name: str, value: Any) -> Calibration:
    found = instance_of(Calibration)(name, value)
    if found.name != name:
        raise ValueError(f"a calibration with another name, {found.name!r}")
    return found


CALIBRATIONS: Registry[Calibration] = Registry("calibrations", {each.name: each for each in _ALL}, _check)


def choices() -> tuple[str, ...]:
    """`none`, and the calibrations that need no true labels, which can be estimated from any inputs."""
    own = (name for name in CALIBRATIONS.own if not CALIBRATIONS[name].labelled)
    return (NONE, *own, *CALIBRATIONS.added)


def calibration(name: str, labelled: bool = True) -> Calibration:
    """The calibration of this name; raises InputError for an unknown name.

    Unless rows are `labelled`, also raises InputError for a calibration that needs true labels.
    """
    if name not in CALIBRATIONS:
        usable = (NONE, *(other for other, each in CALIBRATIONS.items() if labelled or not each.labelled))
        raise InputError.of("calibrate", name, f"use {', '.join(usable)}, or several separated by commas")
    found = CALIBRATIONS[name]
    if found.labelled and not labelled:
        raise InputError.of(
            "calibrate", name, "needs rows with true labels: store it with deepthink calibrate MEMORY ROWS"
        )
    return found


def calibrations(text: str | None, stored: bool = False, labelled: bool = False) -> tuple[str, ...]:
    """The names in a list separated by commas; empty for None. With `stored`, `stored` is a name, too.

    Raises InputError for an unknown or repeated name, and for a calibration that needs true labels unless the rows are
    `labelled`.
    """
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    for name in names:
        if name != NONE and not (stored and name == STORED):
            calibration(name, labelled)
        if names.count(name) > 1:
            raise InputError.of("calibrate", text, f"{name} is duplicated; name each once")
    return names


def from_rows(names: Iterable[str]) -> list[str]:
    """The names of calibrations whose bias is estimated from the rows themselves."""
    return [name for name in names if name not in (NONE, STORED) and calibration(name).from_rows]


def of_labelled(names: Iterable[str]) -> list[Calibration]:
    """The calibrations among these names that are fitted to rows with true labels."""
    return [calibration(name) for name in names if name not in (NONE, STORED) and calibration(name).labelled]


def from_texts(names: Iterable[str]) -> list[str]:
    """The names of calibrations whose bias is estimated from texts that are scored through the memory."""
    return [name for name in names if name not in (NONE, STORED) and not calibration(name).from_rows]


_TEXTS = ", ".join(from_texts(CALIBRATIONS.own))


def _check_stored(name: str) -> None:
    if name not in (NONE, THRESHOLDS, *CALIBRATIONS):
        usable = ", ".join((NONE, *CALIBRATIONS, THRESHOLDS))
        raise InputError.of("calibrate", name, f"a memory stores one of {usable}; {HEAD} stores {THRESHOLDS}, too")


class CorrectionOptions(Options):
    """The calibration whose bias is stored with a memory; None if none is named."""

    calibrate: Annotated[
        Annotated[str, named_by(_check_stored)] | None,
        Flag(
            METHOD,
            f"Store a correction of the scores for a bias toward some labels: {_TEXTS}. Others need rows: deepthink "
            "calibrate.",
            "NAME",
            variable=False,
        ),
    ] = None

    @property
    def of_texts(self) -> str | None:
        """The calibration, if one is named; raises InputError for a calibration that is estimated from rows."""
        if self.calibrate in (None, NONE):
            return None
        if self.calibrate == THRESHOLDS or not from_texts([str(self.calibrate)]):
            raise InputError.of(
                "calibrate",
                self.calibrate,
                f"use {_TEXTS} here, or run deepthink calibrate MEMORY ROWS when the memory is there",
            )
        return self.calibrate
