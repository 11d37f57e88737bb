"""What a worker does with messages: it opens a subject, and does units of it.

A unit of a run is a group of jobs of one task whose readings share a pass. Where there are fewer groups than
workers, several units read the same jobs, and each writes the rows of some. A worker gets jobs as they were prepared,
and reads their rows from its own files, which a digest of the rows checks.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from warnings import catch_warnings, simplefilter

import torch

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import described, load_model
from deepthink_cli.errors import (
    DeepThinkError,
    InputError,
    Naming,
    naming_options,
    out_of_memory,
    parameter,
    ran_out_of_memory,
)
from deepthink_cli.experiments.executors.base import (
    Died,
    Event,
    Failed,
    Finished,
    JobEvent,
    Message,
    Open,
    Opened,
    Subject,
    Unit,
)
from deepthink_cli.experiments.jobs import Job, Prepared, known, pending
from deepthink_cli.experiments.label_rows import ChunkWorker, RowLabels
from deepthink_cli.experiments.scorer import max_tokens_together, missing_rows, together, work
from deepthink_cli.io.cache import Store
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec


@dataclass(frozen=True)
class RunUnit(Unit):
    """Some jobs of one task of a run, or all of them if a method chooses their demonstrations with the model.

    The `jobs` are read together, and the rows of those that are `written` are made, except the rows with the keys
    `done`. With `samples`, rows come with the predictions of their inputs.
    """

    jobs: Sequence[Prepared]
    written: Sequence[Job]
    done: frozenset[str]
    samples: bool


class RunWorker:
    """A model, which does units of its runs."""

    def __init__(self, spec: ModelSpec, engine: Engine, store: Store | None) -> None:
        self.spec, self.engine, self.store = spec, engine, store

    def do(self, unit: Unit) -> Iterator[JobEvent]:
        """Make the missing rows of a unit."""
        assert isinstance(unit, RunUnit)
        for job in unit.jobs:
            job.run.spec = self.spec  # which is not sent
        groups, written = [known(unit.jobs)], unit.written
        if to_choose := pending(unit.jobs):
            written = [job for each in to_choose for job in each.jobs(self.engine, self.store)]
            groups = list(together(written, max_tokens_together(self.engine)))
        for group in groups:
            yield from work(self.engine, missing_rows(group, written, self.engine.identity, unit.done), unit.samples)


class MessageHandler:
    """Opens one subject at a time, which is kept for its units; what methods read of pools is cached in `store`."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.naming: Naming = parameter
        self.work: RunWorker | ChunkWorker | None = None

    def handle(self, message: Message) -> Iterator[Event]:
        """Do what a message asks; every error becomes the event `Failed` or `Died`."""
        if isinstance(message, Open):
            self.naming = message.naming
        with naming_options(self.naming):
            try:
                if isinstance(message, Open):
                    yield self._opened(message.subject)
                else:
                    assert self.work is not None
                    yield from self.work.do(message)
                    yield Finished()
            except InputError as error:
                yield Failed(error.problems)
            except DeepThinkError as error:
                yield Died(f"failed: {'; '.join(error.messages)}")
            except Exception as error:
                text = out_of_memory(error) if ran_out_of_memory(error) else f"{type(error).__name__}: {error}"
                yield Died(f"failed: {text}")

    def _opened(self, subject: Subject) -> Opened:
        if self.work is not None:
            self.work = None
            gc.collect()  # frees memory before the next model is loaded
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        with catch_warnings():
            simplefilter("ignore", RuntimeWarning)  # the warning is part of the answer
            if isinstance(subject, RowLabels):
                self.work = ChunkWorker(subject)
            else:
                assert isinstance(subject, ModelOptions)
                spec = open_model(subject)
                self.work = RunWorker(spec, load_model(spec), self.store)
        engine = self.work.engine
        return Opened(
            identity=engine.identity,
            most=max_tokens_together(engine),
            events=described(engine),
            package=version("deepthink-cli"),
            host=socket.gethostname(),
        )
