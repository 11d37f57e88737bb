"""Give units to workers, and replace workers that die: a small scheduler, with one thread of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from queue import Empty, SimpleQueue

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Tell, Warn
from deepthink_cli.experiments.executors.base import (
    Died,
    Done,
    Event,
    Executor,
    Failed,
    Finished,
    Message,
    Open,
    Opened,
    Subject,
    Unit,
    Worker,
)

RETRIES = 2  # how often a unit is tried again, and a worker replaced without having finished a unit
TICK = 1.0  # seconds of a wait for events


class Client(ABC):
    """The driver of workers: it knows the units, and writes the rows of a run."""

    def differences(self, subject: Subject, opened: Opened) -> list[str]:
        """What the first worker has opened otherwise than this machine has it; with any, it may not take part."""
        return []

    @abstractmethod
    def units(self, subject: Subject, opened: Opened) -> deque[Unit]:
        """The units of a subject that a worker has opened; the client may add others while these are done."""

    @abstractmethod
    def happened(self, unit: Unit, event: Done) -> None:
        """Note progress, or write a row."""

    def missing(self, unit: Unit) -> Unit:
        """A unit that was interrupted, with the rows that it has made among those that are done."""
        return unit


@dataclass(eq=False)
class _Slot:
    """A place for a worker; `failures` counts its workers that ended one after another without finishing a unit."""

    number: int
    worker: Worker | None = None
    life: int = 0
    subject: Subject | None = None
    message: Message | None = None
    failures: int = 0
    is_closed: bool = False


class Scheduler:
    """Does all units of some subjects, which are given with the largest number of units that each may have.

    A worker keeps its subject open as long as there are units of it, so that weights are loaded once. `failures` has a
    line for each unit that could not be done, and `are_input` says whether other workers could not do them either.
    Workers that died or were refused are told of. `counts` has the units done, the loads, the workers replaced, and the
    units retried.
    """

    def __init__(self, executor: Executor, client: Client, subjects: Mapping[Subject, int], tell: Tell) -> None:
        self.executor, self.client, self.subjects, self.tell = executor, client, subjects, tell
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.are_input = True
        self.events: SimpleQueue[tuple[_Slot, int, Event]] = SimpleQueue()
        self.first: dict[Subject, Opened] = {}  # by the first worker
        self.queues: dict[Subject, deque[Unit]] = {}
        self.given_up: set[Subject] = set()
        self.last_reason = ""  # why the last worker that was closed is not used
        self.slots = [_Slot(number) for number in range(executor.workers)]

    def steps(self) -> Iterator[None]:
        """Do all units, and return to the caller after each event; raises what the client raises.

        The workers are stopped in the end, also if the caller ends before.
        """
        try:
            self._assign()
            while any(slot.message is not None for slot in self.slots):
                with suppress(Empty):  # an endless wait would not see Ctrl-C on Windows
                    self._handle(*self.events.get(timeout=TICK))
                yield
                self._assign()
            self._name_what_is_left()
        finally:
            for slot in self.slots:
                self._stop(slot)

    def _assign(self) -> None:
        """Give something to every worker that waits; workers are started when there is something for them."""
        for slot in self.slots:
            if slot.message is not None or slot.is_closed:
                continue
            message = self._message_for(slot)
            if message is None:
                continue
            if slot.worker is None:
                self._start(slot)
            if slot.worker is not None:
                slot.message = message
                slot.worker.send(message)

    def _message_for(self, slot: _Slot) -> Message | None:
        """The next unit of the worker's subject, or else the subject with the fewest workers that could have more."""
        if slot.subject is not None and (queue := self.queues.get(slot.subject)):
            return queue.popleft()
        wanting = [subject for subject in self.subjects if self._wanting(subject) > 0]
        if not wanting:
            return None
        return Open(min(wanting, key=lambda one: sum(each.subject == one for each in self.slots if each.message)))

    def _wanting(self, subject: Subject) -> int:
        """The number of further workers that a subject could have a unit for."""
        if subject in self.given_up:
            return 0
        opening = sum(slot.message == Open(subject) for slot in self.slots)
        queue = self.queues.get(subject)
        return (self.subjects[subject] if queue is None else len(queue)) - opening

    def _start(self, slot: _Slot) -> None:
        slot.life += 1
        life = slot.life
        try:
            slot.worker = self.executor.start(slot.number, lambda event: self.events.put((slot, life, event)))
        except DeepThinkError as error:
            self._close(slot, str(error))

    def _stop(self, slot: _Slot) -> None:
        if slot.worker is not None:
            slot.worker.stop()
        slot.worker = slot.subject = slot.message = None

    def _handle(self, slot: _Slot, life: int, event: Event) -> None:
        if life != slot.life or slot.worker is None:
            return  # of a worker that has been replaced
        message = slot.message
        match event:
            case Opened():
                self._opened(slot, event)
            case Finished():
                slot.message, slot.failures = None, 0
                self.counts["units"] += 1
            case Failed(problems):
                slot.message = None
                self._fail_for_good(message, "; ".join(map(str, problems)))
            case Died(reason):
                self._replace(slot, reason)
            case _:
                assert isinstance(message, Unit)
                self.client.happened(message, event)

    def _opened(self, slot: _Slot, opened: Opened) -> None:
        assert isinstance(slot.message, Open)
        subject = slot.message.subject
        self.counts["loads"] += 1
        if reason := self._refusal(subject, opened):
            self._stop(slot)
            self._close(slot, reason)
            return
        slot.subject, slot.message = subject, None
        if subject not in self.first:
            self.first[subject] = opened
            for told in opened.events:
                self.tell(told)
            self.queues[subject] = self.client.units(subject, opened)

    def _refusal(self, subject: Subject, opened: Opened) -> str | None:
        """Why a worker may not take part: another version of the package, or another model than the first one has."""
        if opened.package != (here := version("deepthink-cli")):
            return f"{opened.host} has deepthink {opened.package}, this machine {here}; install the same version on all"
        if subject in self.first:
            ours, others = asdict(self.first[subject].identity), asdict(opened.identity)
            than, differing = "the other workers", [name for name in ours if ours[name] != others[name]]
        else:
            than, differing = "this machine", self.client.differences(subject, opened)
        if not differing:
            return None
        return (
            f"{opened.host} has another {subject.name} than {than}: its {' and '.join(differing)} differs; "
            "give all machines the same files and options"
        )

    def _fail_for_good(self, message: Message | None, reason: str) -> None:
        """Note an error that every worker would meet."""
        if isinstance(message, Unit):
            named = reason.startswith(("task ", message.label))
            self.failures.append(reason if named else f"{message.label}: {reason}")
        elif isinstance(message, Open) and message.subject not in self.given_up:
            self.given_up.add(message.subject)
            self.failures.append(reason)

    def _replace(self, slot: _Slot, reason: str) -> None:
        """Stop a worker that failed or died; its unit is tried again, and another worker takes its place."""
        message = slot.message
        self._stop(slot)
        slot.failures += 1
        self.counts["replaced"] += 1
        doing = "waiting" if message is None else "loading the model"
        if isinstance(message, Unit):
            doing = self._again(message, reason)
        self.tell(Warn(f"worker {slot.number + 1} {reason}; it was {doing}"))
        if slot.failures > RETRIES:
            self._close(slot, reason)

    def _again(self, unit: Unit, reason: str) -> str:
        """Queue a unit again, at most twice; returns what was done, for a message."""
        if unit.tries == RETRIES:
            ended = f"{RETRIES + 1} workers ended while doing it"
            self.failures.append(f"{unit.label}: not done: {ended}; the last {reason}")
            self.are_input = False
            return f"doing {unit.label}, which is given up"
        self.queues[unit.subject].appendleft(replace(self.client.missing(unit), tries=unit.tries + 1))
        self.counts["retried"] += 1
        return f"doing {unit.label}, which is tried again"

    def _close(self, slot: _Slot, reason: str) -> None:
        """Start no more workers in this place."""
        slot.is_closed = True
        self.tell(Warn(f"worker {slot.number + 1} is not used any more: {reason}"))
        self.last_reason = reason

    def _name_what_is_left(self) -> None:
        """Note the units that no worker was left for."""
        left = sum(map(len, self.queues.values()))
        unopened = [each.name for each in self.subjects if each not in self.queues and each not in self.given_up]
        if (left or unopened) and all(slot.is_closed for slot in self.slots):
            what = f"{left} units" if left else f"the jobs of {', '.join(unopened)}"
            self.failures.append(f"{what} not done: no worker is left; the last: {self.last_reason}")
            self.are_input = False

    def raise_failures(self) -> None:
        """Raise one error with a line for each unit that was not done."""
        if self.failures:
            raise (InputError if self.are_input else DeepThinkError)(*dict.fromkeys(self.failures))
