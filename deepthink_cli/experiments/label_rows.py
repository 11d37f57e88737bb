"""Label the rows of one file with workers: chunks go out as they are read, and come back in the order of the file.

This process reads and writes, and loads no weights; workers get rows, and open the memory and the model once. Chunks
are those of one process, and so are batches, rounding and bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deepthink_cli.artifact.opening import OpenedMemory, warn_of_dtype
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.experiments.executors.base import Done, Executor, Opened, RowsLabelled, Subject, Unit
from deepthink_cli.experiments.executors.scheduler import Client, Scheduler
from deepthink_cli.io.prefetch import chunks
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.pipeline import CHUNK, EVERY_REASON, NO_REASON, Part
from deepthink_cli.scoring.scoring import Scoring

_AHEAD = 2  # chunks for each worker that are read, or labelled out of order, and not yet given back


@dataclass(frozen=True)
class RowLabels:
    """What workers label rows with; `memories` are paths, of which all but the first are an ensemble with it.

    `digests` are those of the memories' files, which must be the same for every worker; `calibrate` are the
    calibrations in use, a stored one included.
    """

    memories: tuple[str, ...]
    digests: tuple[str | None, ...]
    iteration: str
    options: ModelOptions | None
    scoring: Scoring
    calibrate: tuple[str, ...]
    skip: bool

    @classmethod
    def of(cls, scorer: Scorer, options: ModelOptions | None, skip: bool) -> RowLabels:
        """What labels rows as a scorer does."""
        names, digests = zip(*((each.name, each.sha256) for each in scorer.memories), strict=True)
        iteration = ",".join(map(str, scorer.memory.iterations))
        return cls(names, digests, iteration, options, scorer.scoring, scorer.calibrate, skip)

    @property
    def name(self) -> str:
        """The path of the memory, for messages."""
        return self.memories[0]


@dataclass(frozen=True)
class ChunkUnit(Unit):
    """Chunk `number` of the rows that are labelled, from 0."""

    number: int
    rows: Sequence[Query | Skipped]


class ChunkWorker:
    """What a worker holds: the memories and their model, which label chunk after chunk."""

    def __init__(self, job: RowLabels) -> None:
        first, *others = job.memories
        scorer = Scorer.open(
            first, iteration=job.iteration, scoring=job.scoring, calibrate=job.calibrate, ensemble=others
        )
        if job.digests != tuple(each.sha256 for each in scorer.memories):
            raise InputError(f"{first}: a worker has another file of this name; give all the same files")
        self.label = scorer.load(scorer.find(job.options, silent), silent)
        self.engine, self.skip = self.label.engine, EVERY_REASON if job.skip else NO_REASON

    def do(self, unit: Unit) -> Iterator[RowsLabelled]:
        """Label a chunk; an error of its rows, which another worker would meet, too, is part of what is yielded."""
        assert isinstance(unit, ChunkUnit)
        try:
            (part,) = self.label(unit.rows, skip=self.skip)
        except DeepThinkError as error:
            yield RowsLabelled([], error.problems, isinstance(error, InputError))
        else:
            yield RowsLabelled(part)


def divided(
    executor: Executor,
    scorer: Scorer,
    job: RowLabels,
    rows: Iterator[Query | Skipped],
    *,
    progress: Progress,
    tell: Tell,
) -> Iterator[Part]:
    """Yield the predictions of every `CHUNK` rows of a file by the workers of an executor, in order.

    Raises the error of a row after the chunks before it, and DeepThinkError for chunks that workers died of.
    """
    assert progress.total is not None
    chunks = -(-(progress.total - progress.done) // CHUNK)
    driver = RowsClient(job, scorer.memories, rows, _AHEAD * executor.workers, tell)
    scheduler = Scheduler(executor, driver, {job: chunks}, tell)
    for _ in scheduler.steps():
        for part in driver.ready():
            progress = replace(progress, done=min(progress.done + CHUNK, progress.total))
            tell(progress)
            yield part
    scheduler.raise_failures()


class RowsClient(Client):
    """Tells the scheduler of the chunks of a file's rows, and keeps their predictions.

    At most `most` chunks are read, or labelled out of order, beyond those that are given back.
    """

    def __init__(
        self, job: RowLabels, memories: Sequence[OpenedMemory], rows: Iterator[Query | Skipped], most: int, tell: Tell
    ) -> None:
        self.job, self.memories, self.most, self.tell = job, memories, most, tell
        self.chunks = enumerate(chunks(rows, CHUNK))
        self.queue = deque[Unit]()
        self.labelled: dict[int, RowsLabelled] = {}
        self.read = self.given_back = 0

    def units(self, subject: Subject, opened: Opened) -> deque[Unit]:
        """The first chunks; others follow as chunks are given back. Warns as one process does of its own model."""
        for memory in self.memories:
            warn_of_dtype(memory, opened.identity.dtype, self.tell)
        self._read_ahead()
        return self.queue

    def happened(self, unit: Unit, event: Done) -> None:
        """Keep the predictions of a chunk until it is its turn."""
        assert isinstance(unit, ChunkUnit)
        assert isinstance(event, RowsLabelled)
        self.labelled[unit.number] = event

    def ready(self) -> Iterator[Part]:
        """The chunks whose turn it is, in order; raises the error of a row in its turn."""
        while (event := self.labelled.pop(self.given_back, None)) is not None:
            if event.problems:
                raise (InputError if event.is_input else DeepThinkError)(*event.problems)
            yield event.part
            self.given_back += 1
            self._read_ahead()

    def _read_ahead(self) -> None:
        while self.read < self.given_back + self.most and (chunk := next(self.chunks, None)) is not None:
            number, rows = chunk
            first = next((row.where for row in rows if isinstance(row, Query)), "rows that cannot be read")
            self.queue.append(ChunkUnit(self.job, f"{len(rows)} rows from {first}", number, rows))
            self.read += 1
