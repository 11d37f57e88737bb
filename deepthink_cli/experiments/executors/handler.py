"""What a worker does with messages: it opens a subject, and does units of it."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from warnings import catch_warnings, simplefilter

import torch

from deepthink_cli.engine.opening import load_model
from deepthink_cli.errors import (
    DeepThinkError,
    InputError,
    Naming,
    Problem,
    naming_options_everywhere,
    out_of_memory,
    parameter,
    ran_out_of_memory,
)
from deepthink_cli.experiments.executors.base import (
    Event,
    Failed,
    Finished,
    Message,
    Open,
    Opened,
    Subject,
    this_version,
)
from deepthink_cli.experiments.label_rows import ChunkWorker, RowLabels
from deepthink_cli.experiments.scorer import max_tokens_together
from deepthink_cli.experiments.units import RunWorker
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.store import Store


class MessageHandler:
    """Opens one subject at a time, which is kept for its units; what methods read of pools is cached in `store`."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.naming: Naming = parameter
        self.work: RunWorker | ChunkWorker | None = None

    def handle(self, message: Message) -> Iterator[Event]:
        """Do what a message asks; every error becomes the event `Failed`."""
        if isinstance(message, Open):
            self.naming = message.naming
        try:
            with naming_options_everywhere(self.naming):
                if isinstance(message, Open):
                    yield self._opened(message.subject)
                else:
                    assert self.work is not None
                    yield from self.work.do(message)
                    yield Finished()
        except DeepThinkError as error:
            yield Failed(error.problems, isinstance(error, InputError))
        except Exception as error:
            text = out_of_memory(error) if ran_out_of_memory(error) else f"{type(error).__name__}: {error}"
            yield Failed((Problem(text),), False)

    def _opened(self, subject: Subject) -> Opened:
        if self.work is not None:
            self.work = None
            gc.collect()  # frees memory before the next model is loaded
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        with catch_warnings():
            simplefilter("ignore", RuntimeWarning)  # the warning is part of the answer
            self.work = self._work_of(subject)
        engine = self.work.engine
        return Opened(
            identity=engine.identity,
            most=max_tokens_together(engine),
            device=engine.device,
            description=engine.description,
            notice=engine.notice,
            warning=engine.warning,
            package=this_version(),
            host=socket.gethostname(),
        )

    def _work_of(self, subject: Subject) -> RunWorker | ChunkWorker:
        if isinstance(subject, RowLabels):
            return ChunkWorker(subject)
        assert isinstance(subject, ModelOptions)
        spec = open_model(subject)
        return RunWorker(spec, load_model(spec), self.store)
