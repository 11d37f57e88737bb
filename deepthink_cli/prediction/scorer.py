"""Memories that answer together: every refusal that needs no model, then the model, then predictions of rows.

`predict`, `eval`, `serve`, `diff`, workers and scikit-learn open a `Scorer`, load it, and label rows by it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deepthink_cli.artifact.opening import OpenedMemory, check_memories, find_its_model, opened, with_first_reading
from deepthink_cli.calibration.basis import BasisInputs, check_calibrations, check_inputs
from deepthink_cli.calibration.calibrator import Calibrator, own_candidates
from deepthink_cli.calibration.notes import CheckRow, in_use, of_labels
from deepthink_cli.calibration.registry import NONE, calibrations, from_rows, from_texts
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import load
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.multilabel import has_several
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.extended_labels import check_labels, other_score
from deepthink_cli.scoring.inputs import CheckedRows, check_tokens
from deepthink_cli.scoring.likelihood import check_fits
from deepthink_cli.scoring.pipeline import CHUNK, NO_REASON, Part, predictions
from deepthink_cli.scoring.scoring import PLAIN, Scoring

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.memory import Memory


class LabelRows(Protocol):
    """Yields the predictions of rows, in order and a chunk at a time; tells the updated progress after each chunk."""

    def __call__(self, rows: Iterator[Query | Skipped], *, progress: Progress, tell: Tell) -> Iterator[Part]: ...


@dataclass(frozen=True)
class Scorer:
    """A memory, the `others` of its ensemble, the scoring, and the calibrations in use. Made by `open`.

    An ensemble compares the means of its members' log-probabilities.
    """

    memory: OpenedMemory
    others: tuple[OpenedMemory, ...] = ()
    scoring: Scoring = PLAIN
    calibrate: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        memory: str | Path | OpenedMemory | Memory | Sequence[Memory],
        *,
        iteration: int | str = "last",
        scoring: Scoring = PLAIN,
        calibrate: Sequence[str] = (),
        ensemble: Sequence[str | Path | OpenedMemory] = (),
    ) -> Scorer:
        """Open the memories. Without calibrations, the correction that they store is in use.

        Raises InputError as `open_memory` does, for steps and calibrations that a memory does not support, and for an
        ensemble whose memories differ in model, template, labels or iterations.
        """
        memory, problems = opened(memory, iteration), Problems()
        calibrate = calibrations(calibrate, stored=True) if isinstance(calibrate, str) else calibrate
        problems.tried(scoring.check, memory.provenance, memory.name)
        problems.tried(check_calibrations, calibrate, memory.provenance.demonstrations, memory.name)
        others = problems.tried(open_ensemble, memory, ensemble, iteration, scoring)
        names = problems.tried(in_use, tuple(calibrate), [memory, *(others or ())], scoring)
        problems.raise_any()
        return cls(memory, others, scoring, names)

    @property
    def memories(self) -> tuple[OpenedMemory, ...]:
        """All memories."""
        return (self.memory, *self.others)

    @property
    def demonstrations(self) -> TokenizedDemonstrations:
        """The demonstrations of the first memory, whose template and labels all memories have."""
        return self.memory.provenance.demonstrations

    @property
    def gives_several(self) -> bool:
        """Whether a row may get several labels."""
        return has_several(self.memory.provenance)

    def find(self, options: ModelOptions | None, tell: Tell) -> ModelSpec:
        """Find the model, without its weights; raises InputError for another model, and for texts too long for it."""
        spec = find_its_model(self.memory, options, tell)
        check_inputs(self.calibrate, self.demonstrations, spec, self.scoring)
        return spec

    def check_tokens(self, spec: ModelSpec, source: str | RowSource, checked: CheckedRows | None) -> None:
        """Raise InputError for rows of a file that the model does not hold, after any of the memories."""
        if not any(step.only_of_rows for step in self.scoring.steps):  # they may make rows fit
            for each in self.memories:
                check_tokens(each.provenance.demonstrations, spec, source, checked, self.scoring)

    def check_labels(self, tokenizer: PreTrainedTokenizerBase, tell: Tell) -> None:
        """Warn of label words that the scoring never chooses, unless the first calibration gives the label.

        Raises InputError if the label words cannot be tokenised for this score.
        """
        if self.scoring.prefers_short:
            demonstrations, other = self.demonstrations, other_score(self.scoring)
            example, told = demonstrations.examples[0], tell if "".join(self.calibrate[:1]) in ("", NONE) else silent
            labels = demonstrations.labels or (example.label,)
            check_labels(tokenizer, demonstrations, self.scoring, example.text, labels, told, options=other)

    def row_check(self, model: ModelSpec | Engine, same_labels: bool = False) -> CheckRow:
        """A function that raises InputError, naming the row, for candidates that a calibration does not support.

        With `same_labels`, all candidates must be labels of the memory.
        """
        demonstrations, limits = self.demonstrations, model.limits
        labels, named = set(demonstrations.labels), model.id if isinstance(model, ModelSpec) else model.identity.id
        texts = [
            BasisInputs(name, model.tokenizer, demonstrations, self.scoring) for name in from_texts(self.calibrate)
        ]

        def check(query: Query) -> None:
            if set(query.candidates) == labels:
                return
            if same_labels and not set(query.candidates) <= labels:
                reason = "has candidates of its own, which are no columns of a table; write .jsonl"
                raise InputError(f"{query.where}: {reason}")
            for name in of_labels(self.calibrate):
                raise own_candidates(name, query.where)
            try:
                for inputs in texts:
                    for tokenized in inputs([query.candidates])[1]:
                        check_fits(limits, named, demonstrations, tokenized)
            except InputError as error:
                raise InputError(*(f"{query.where}: {message}" for message in error.messages)) from error

        return check

    def load(self, model: ModelSpec | Engine, tell: Tell) -> Loaded:
        """Load the memories, and the model's weights unless it is loaded; warns of a different compute dtype.

        Raises InputError for memories that do not fit the model.
        """
        started = time.perf_counter()
        members: list[list[Memory]] = []
        engine = load(model, tell) if isinstance(model, ModelSpec) else model
        for each in self.memories:
            members.append(each.read_by(engine))
            check_memories(each, members[-1], engine, tell)
        return Loaded(self, engine, members, started)


class Loaded:
    """The memories of a scorer with their model; `members` has the iterations of each memory.

    Predictions are corrected by the calibrations that are not estimated from rows. `started` is the time of loading.
    """

    def __init__(
        self, scorer: Scorer, engine: Engine, members: Sequence[Sequence[Memory]], started: float | None = None
    ) -> None:
        self.scorer, self.engine, self.members = scorer, engine, members
        self.started = time.perf_counter() if started is None else started
        self.loading = time.perf_counter() - self.started
        by_rows = from_rows(scorer.calibrate)
        names = [name for name in scorer.calibrate if name not in by_rows]
        self.calibrator = Calibrator(names, scorer.demonstrations.labels, engine, members, scorer.scoring)

    def with_first_reading(self) -> Loaded:
        """The same memories with plain in-context learning (T = 1), which is read again where it was not kept."""
        members = [with_first_reading(self.engine, member) for member in self.members]
        return Loaded(self.scorer, self.engine, members, self.started)

    def __call__(
        self,
        rows: Iterable[Query | Skipped],
        *,
        size: int = CHUNK,
        flush: bool = False,
        skip: Collection[str] = NO_REASON,
        layers: Sequence[int] = (),
        progress: Progress | None = None,
        tell: Tell = silent,
    ) -> Iterator[Part]:
        """Yield the predictions of every `size` rows, with the arguments of `scoring.pipeline.predictions`.

        After each chunk, `tell` is called with the updated `progress`.
        """
        scoring, last = self.scorer.scoring, self.members[0][-1].iteration
        raw = predictions(
            self.engine, self.members, rows, size=size, flush=flush, scoring=scoring, skip=skip, layers=layers
        )
        for part in self.calibrator.corrected(raw):
            if progress is not None:
                done = sum(isinstance(row, Skipped) or row.iteration == last for row in part)
                progress = replace(progress, done=progress.done + done)
                tell(progress)
            yield part


def open_ensemble(
    memory: OpenedMemory, ensemble: Sequence[str | Path | OpenedMemory], iteration: int | str, scoring: Scoring
) -> tuple[OpenedMemory, ...]:
    """The memories that are averaged with `memory`; raises InputError, all at once, for those that do not fit it."""
    others, problems = list[OpenedMemory](), Problems()
    if ensemble and has_several(memory.provenance):
        raise InputError.of("ensemble", None, f"the rows of {memory.name} may have several labels; omit it")
    for each in ensemble:
        with problems.collected():
            other = opened(each, iteration)
            scoring.check(other.provenance, other.name)
            _check_together(memory, other)
            if other.sha256 is not None and other.sha256 in {named.sha256 for named in (memory, *others)}:
                raise InputError.of("ensemble", other.name, "the same memory as another one; name each once")
            others.append(other)
    problems.raise_any()
    return tuple(others)


def _check_together(memory: OpenedMemory, other: OpenedMemory) -> None:
    """Raise InputError, naming the difference, unless both have one model, template, labels and iterations."""
    ours, theirs = memory.provenance.demonstrations, other.provenance.demonstrations
    different = [
        *memory.provenance.model.differences(other.provenance.model),
        *(["template"] if ours.template != theirs.template else []),
        *(["labels"] if set(ours.labels) != set(theirs.labels) else []),
        *(["label words"] if ours.words != theirs.words else []),
        *(["chat"] if ours.chat != theirs.chat else []),
    ]
    if different:
        raise InputError.of(
            "ensemble",
            other.name,
            f"differs from {memory.name} in its {' and '.join(different)}; use memories of one model with the "
            "same template and labels",
        )
    if other.iterations != memory.iterations:
        raise InputError.of(
            "ensemble",
            other.name,
            f"its iterations are {_listed(other)}, those of {memory.name} {_listed(memory)}; choose one that "
            f"all have with {option('iteration')}",
        )


def _listed(memory: OpenedMemory) -> str:
    return ", ".join(map(str, memory.iterations))
