"""Options that let code of others run: flags of the command line alone, so that no file and no variable allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deepthink_cli.errors import InputError, Problems

RUN_CODE = frozenset({"trust_remote_code", "run_code", "unsafe"})


def check_allows_no_code(values: Any, where: Callable[..., str]) -> None:
    """Check the values of a file, at any depth; `where` gives the line of the value under some keys.

    Raises InputError for each option that lets code run, unless its value is false.
    """
    problems = Problems()
    for *above, name in _allowing(values):
        with problems.collected():
            flag = "--" + name.replace("_", "-")
            place = where(*above, name)
            raise InputError(
                f"{place}: {name}: no file may have code run; omit it, and give {flag} on the command line"
            )
    problems.raise_any()


def _allowing(values: Any) -> Iterator[tuple[Any, ...]]:
    """The keys of every option in nested values that lets code run."""
    items: Any = (
        values.items() if isinstance(values, Mapping) else enumerate(values if isinstance(values, list) else ())
    )
    for key, value in items:
        if isinstance(key, str) and key.replace("-", "_") in RUN_CODE and value is not False:
            yield (key,)
        yield from ((key, *keys) for keys in _allowing(value))
