"""Errors, their exit codes, and the collection of several errors into one."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")


class ExitCode(IntEnum):
    """Exit status of every command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    BELOW_THRESHOLD = 3
    BUG = 70
    INTERRUPTED = 130


class DeepThinkError(Exception):
    """A known failure at run time; `messages` has one line for each independent cause."""

    exit_code = ExitCode.ERROR

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages


class InputError(DeepThinkError):
    """Invalid input from the caller: each message names the value, its place, and a fix."""

    exit_code = ExitCode.USAGE


class BelowThreshold(DeepThinkError):
    """A result is below the threshold that the caller set."""

    exit_code = ExitCode.BELOW_THRESHOLD


def panicked(error: BaseException) -> bool:
    """Whether a library in Rust, such as tokenizers, came upon a case that it does not handle."""
    return type(error).__name__ == "PanicException"  # its module cannot be imported; it is no Exception


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether a library's error says that memory could not be allocated, on a device or in main memory."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"MemoryError", "OutOfMemoryError"} or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    # torch raises a plain RuntimeError on a CPU, on MPS and in CUDA libraries.
    phrases = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return "RuntimeError" in kinds and any(words in str(error) for words in phrases)


def out_of_memory(error: BaseException) -> str:
    """One line with the amount that could not be allocated, if the error names it, and options that use less memory."""
    amount = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
    device = " of the GPU" if "CUDA" in str(error) else ""
    return (
        f"out of memory{device}: {amount[1] if amount else 'the memory needed'} could not be allocated; use a smaller "
        "--batch-tokens (not for think), --dtype bfloat16, --quantize 4bit, --device-map auto, or fewer demonstrations"
    )


class Problems:
    """Collects independent input errors so that they are reported together.

    >>> problems = Problems()
    >>> with problems.collected():
    ...     raise InputError("--eta 2: too large")
    >>> problems.messages
    ['--eta 2: too large']
    """

    MOST = 20

    def __init__(self) -> None:
        self.messages: list[str] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an `InputError` raised inside the block instead of passing it on."""
        try:
            yield
        except InputError as error:
            self.messages.extend(error.messages)

    def result(self, make: Callable[[], T]) -> T:
        """The value of `make()`; None, with the errors collected, if it raises `InputError`.

        Call `raise_any` before the value is used.
        """
        value: T | None = None
        with self.collected():
            value = make()
        return value

    def raise_any(self) -> None:
        """Raise one `InputError` with everything collected, if anything was."""
        if not self.messages:
            return
        unique = list(dict.fromkeys(self.messages))
        rest = len(unique) - self.MOST
        if rest > 0:
            unique = [*unique[: self.MOST], f"... and {rest} more mistakes like these"]
        raise InputError(*unique)
