"""Label rows with a loaded model: what `predict` does in this process, and what each of its workers does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from deepthink_cli.artifact.opening import OpenedMemory, check_memories, load_both
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import ScoreName
from deepthink_cli.scoring.pipeline import ANYTHING, CHUNK, NOTHING, Part, predictions
from deepthink_cli.scoring.probe import Probed, probe

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


class LabelRows(Protocol):
    """Yields the predictions of rows, in order and a chunk at a time; tells the progress, counted on, of each."""

    def __call__(self, rows: Iterator[Query | Skipped], *, progress: Progress, tell: Tell) -> Iterator[Part]: ...


class RowLabeller:
    """A memory, or an ensemble, with its model.

    Predictions are corrected by those of the calibrations that are not estimated from rows. With `skip`, a row that
    cannot be scored is replaced by the reason; otherwise it raises, as in `predictions`.
    """

    def __init__(
        self,
        memory: OpenedMemory,
        others: Sequence[OpenedMemory],
        spec: ModelSpec,
        calibrate: Sequence[str] = (),
        score: ScoreName = "sum",
        skip: bool = False,
        tell: Tell = silent,
    ) -> None:
        self.spec, self.score, self.skip = spec, score, skip
        started = time.perf_counter()
        self.engine, memories = load_both(memory, spec, tell)
        self.members = [memories, *members_of(others, self.engine, tell)]
        self.loading = time.perf_counter() - started
        by_rows = from_rows(calibrate)
        names = [name for name in calibrate if name not in by_rows]
        self.calibrator = Calibrator(self.engine, self.members, names, score)

    def __call__(
        self,
        rows: Iterable[Query | Skipped],
        *,
        size: int = CHUNK,
        flush: bool = False,
        progress: Progress | None = None,
        tell: Tell = silent,
    ) -> Iterator[Part]:
        """Yield the predictions of every `size` rows; with `flush`, a chunk also ends where no row follows at once."""
        raw = predictions(
            self.engine,
            self.members,
            rows,
            size=size,
            flush=flush,
            score=self.score,
            skip=self._skipped,
            tell=tell,
            progress=progress,
        )
        return self.calibrator.corrected(raw)

    def probed(
        self,
        rows: Iterator[Query | Skipped],
        *,
        count: int,
        measured: Callable[[Probed], None],
        progress: Progress,
        tell: Tell,
    ) -> Iterator[Part]:
        """Yield the predictions of a sample of `count` rows; `measured` gets what it says of all (`probe`)."""
        result, answers = probe(
            self.engine,
            self.members,
            rows,
            count,
            lambda sample: chain.from_iterable(self(sample)),
            score=self.score,
            skip=self._skipped,
            loading=self.loading,
        )
        measured(result)
        yield answers

    @property
    def _skipped(self) -> Collection[str]:
        """The reasons for which rows are skipped."""
        return ANYTHING if self.skip else NOTHING


def members_of(others: Sequence[OpenedMemory], engine: Engine, tell: Tell) -> list[list[Memory]]:
    """The iterations of each memory, checked against the loaded model as `load_both` checks the first one."""
    members = []
    for other in others:
        memories = other.read_by(engine)
        check_memories(other, memories, engine, tell)
        members.append(memories)
    return members
