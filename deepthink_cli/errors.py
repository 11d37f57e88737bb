"""Errors as data: problems of options and places, exit codes, and the collection of several problems into one error."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ParamSpec, Self, TypeVar, cast

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class ExitCode(IntEnum):
    """Exit status of every command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    BELOW_THRESHOLD = 3
    BUG = 70
    INTERRUPTED = 130


Naming = Callable[[str, str | None], str]  # from an option's field and its value, if any, to its written form


def parameter(field: str, value: str | None) -> str:
    """An option as a Python parameter."""
    return field if value is None else f"{field} {value}"


class _Process:
    naming: Naming = parameter


def current_naming() -> Naming:
    """How this process writes options."""
    return _Process.naming


@contextmanager
def naming_options(naming: Naming) -> Iterator[None]:
    """Write options in texts by `naming` inside the block, in all threads of the process, as the command line does."""
    before, _Process.naming = _Process.naming, naming
    try:
        yield
    finally:
        _Process.naming = before


def option(field: str) -> str:
    """An option in a text, as this process writes it: `seeds` in Python, `--seeds` on the command line."""
    return current_naming()(field, None)


@dataclass(frozen=True)
class Problem:
    """The reason why an input is refused, with the way out, and its option and value, or its place, if it has any."""

    reason: str = ""
    field: str | None = None
    value: str | None = None
    place: str | None = None

    @classmethod
    def of(cls, field: str, value: object, reason: str = "") -> Self:
        """A problem of an option; a value of None or True is not written."""
        return cls(reason, field, None if value is None or value is True else str(value))

    def because(self, reason: str) -> Problem:
        """The problem with a reason, which follows an earlier reason after a colon."""
        return replace(self, reason=f"{self.reason}: {reason}" if self.reason else reason)

    def written(self, naming: Naming) -> str:
        """The place, the option with its value, and the reason, without missing parts."""
        named = None if self.field is None else naming(self.field, self.value)
        return ": ".join(text for text in (self.place, named, self.reason) if text)

    def __str__(self) -> str:
        return self.written(current_naming())


def installing(extra: str) -> str:
    """The command that installs an extra of this package, which is on no package index."""
    return f"in a checkout of deepthink: pip install '.[{extra}]'"


class DeepThinkError(Exception):
    """A known failure at run time; `problems` has one for each independent cause."""

    exit_code = ExitCode.ERROR

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__(*problems)
        self.problems = tuple(each if isinstance(each, Problem) else Problem(each) for each in problems)

    @classmethod
    def of(cls, field: str, value: object, reason: str) -> Self:
        """An error about one option; a value of None or True is not written."""
        return cls(Problem.of(field, value, reason))

    @property
    def messages(self) -> tuple[str, ...]:
        """One text for each problem."""
        return tuple(map(str, self.problems))

    def __str__(self) -> str:
        return "\n".join(self.messages)


class InputError(DeepThinkError):
    """Invalid input from the caller: each problem names the value, its place, and a fix."""

    exit_code = ExitCode.USAGE


class BelowThreshold(DeepThinkError):
    """A result is below the threshold that the caller set."""

    exit_code = ExitCode.BELOW_THRESHOLD


def panicked(error: BaseException) -> bool:
    """Whether a library in Rust, such as tokenizers, panicked."""
    return type(error).__name__ == "PanicException"  # its module cannot be imported; it is no Exception


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether a library's error says that memory could not be allocated, on a device or in main memory."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"MemoryError", "OutOfMemoryError"} or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    # torch raises a plain RuntimeError on a CPU, on MPS and in CUDA libraries.
    phrases = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return "RuntimeError" in kinds and any(words in str(error) for words in phrases)


_LESS_MEMORY = {"batch_tokens": "a smaller {}", "dtype": "{} bfloat16", "quantize": "{} 4bit", "device_map": "{} auto"}


def out_of_memory(error: BaseException, has: Container[str] = tuple(_LESS_MEMORY)) -> str:
    """One line with the amount that could not be allocated, if the error names it, and options that use less memory.

    `has` are the options that the command has.
    """
    amount = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
    device = " of the GPU" if "CUDA" in str(error) else ""
    ways = [text.format(option(name)) for name, text in _LESS_MEMORY.items() if name in has]
    return (
        f"out of memory{device}: {amount[1] if amount else 'the memory needed'} could not be allocated; use "
        f"{''.join(f'{way}, ' for way in ways)}or fewer demonstrations"
    )


_MANY = 4  # problems that differ by their places alone are shown as one


class Problems:
    """Collects independent input errors so that they are reported together.

    >>> problems = Problems()
    >>> with problems.collected():
    ...     raise InputError.of("eta", 2, "too large")
    >>> [str(each) for each in problems.found]
    ['eta 2: too large']
    """

    MAX_SHOWN = 20

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, *problems: Problem | str) -> None:
        """Collect problems."""
        self.found.extend(InputError(*problems).problems)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an `InputError` raised inside the block instead of passing it on.

        Call `raise_any` before what the block assigns is used.
        """
        try:
            yield
        except InputError as error:
            self.add(*error.problems)

    def tried(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call; None after an `InputError`, which is kept. Call `raise_any` before using the result."""
        try:
            return call(*args, **kwargs)
        except InputError as error:
            self.add(*error.problems)
            return cast("T", None)

    def each(self, call: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """The results of a call for every item that it takes; keeps the `InputError` of every other item."""
        results = []
        for item in items:
            with self.collected():
                results.append(call(item))
        return results

    def raise_any(self) -> None:
        """Raise one `InputError` with everything collected, if anything was."""
        if not self.found:
            return
        alike: dict[Problem, list[Problem]] = {}
        for problem in dict.fromkeys(self.found):
            alike.setdefault(replace(problem, place=None), []).append(problem)
        unique = list[Problem]()
        for same in alike.values():
            if len(same) < _MANY:
                unique += same
            else:
                place = f"{same[0].place} and {len(same) - 1:,} more, the last {same[-1].place}"
                unique.append(replace(same[0], place=place))
        rest = len(unique) - self.MAX_SHOWN
        more = [Problem(f"... and {rest} more mistakes like these")] if rest > 0 else []
        raise InputError(*unique[: self.MAX_SHOWN], *more)
