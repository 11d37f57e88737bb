"""An executor for tests whose workers run in this process, and fail as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from deepthink_cli.cli import predict
from deepthink_cli.experiments.executors.base import Deliver, Event, Message
from deepthink_cli.experiments.executors.handler import MessageHandler

Change = Callable[[int, Message, Event], Iterable[Event]]  # of an event of worker `life`, counted from 1


def unchanged(life: int, message: Message, event: Event) -> Iterable[Event]:
    return [event]


def labelling_inline(monkeypatch: pytest.MonkeyPatch, change: Change = unchanged) -> InlineExecutor:
    """The two workers that `predict --workers` starts, from now on in this process."""
    executor = InlineExecutor(2, change)
    monkeypatch.setattr(predict, "started", lambda *_: nullcontext(executor))
    return executor


@dataclass
class InlineExecutor:
    """Workers that do a message as soon as it is sent; `change` may replace their events."""

    workers: int = 2
    change: Change = unchanged
    lives: int = 0
    messages: list[tuple[int, Message]] = field(default_factory=list)

    def start(self, number: int, deliver: Deliver) -> InlineWorker:
        self.lives += 1
        return InlineWorker(self, self.lives, deliver)

    def close(self) -> None:
        """Hold nothing."""


@dataclass
class InlineWorker:
    executor: InlineExecutor
    life: int
    deliver: Deliver
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self.handler = MessageHandler()

    def send(self, message: Message) -> None:
        self.executor.messages.append((self.life, message))
        for event in self.handler.handle(message):
            for changed in self.executor.change(self.life, message, event):
                self.deliver(changed)

    def stop(self) -> None:
        self.is_stopped = True
