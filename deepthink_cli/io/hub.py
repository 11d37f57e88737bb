"""Whether the hub may be asked, and whether it could be reached: the same words for models and for data sets."""

from __future__ import annotations

import os
from collections.abc import Iterator

from deepthink_cli.errors import DeepThinkError, Problem, option

_UNREACHABLE = {"ConnectionError", "TransportError", "Timeout", "LocalEntryNotFoundError", "OfflineModeIsEnabled"}


def forbidden_by(offline: bool) -> str | None:
    """What forbids downloads: `--offline`, or a variable of the hub's library; None if they are allowed."""
    if offline:
        return option("offline")
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def is_unreachable(error: BaseException) -> bool:
    """Whether an error of a library means that a file is not in the cache and the hub did not answer or was not asked.

    A missing repository or file, which the hub reports itself, is none.
    """
    return any({kind.__name__ for kind in type(each).__mro__} & _UNREACHABLE for each in _causes(error))


class NotInCache(DeepThinkError):
    """Something that is not in the cache cannot be downloaded."""


def unreachable(what: Problem, offline: bool, hint: str) -> NotInCache:
    """The error that `what` is not in the cache, with the reason why the hub does not give it, and the hint."""
    forbidding = forbidden_by(offline)
    if forbidding is None:
        reason = f"not in the cache, and the hub cannot be reached; check the connection, or {hint}"
    else:
        lifted = f"{'omit' if offline else 'unset'} {forbidding}"
        reason = f"not in the cache, and {forbidding} forbids downloads; {lifted}, or {hint}"
    return NotInCache(what.because(reason))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those during whose handling it was raised."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        current = current.__cause__ or current.__context__
    yield from seen
