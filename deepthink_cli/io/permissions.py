"""Options that let code of others run: flags of the command line alone, so that no file and no variable allows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from deepthink_cli.errors import InputError, Problems

RUN_CODE = frozenset({"trust_remote_code", "run_code", "unsafe"})


def check_allows_no_code(
    values: Any, where: Callable[..., str], options: Collection[str] = RUN_CODE, separator: str = "-"
) -> None:
    """Check the values of a file, at any depth; `where` gives the line of the value under some keys.

    `options` are those that let code run, and `separator` stands between the words of their flags. Raises InputError
    for each of them, unless its value is false.
    """
    problems = Problems()
    for *above, name in _allowing(values, options):
        with problems.collected():
            flag = "--" + name.replace("-", "_").replace("_", separator)
            place = where(*above, name)
            raise InputError(
                f"{place}: {name}: a file must not let code run; omit it, and give {flag} on the command line"
            )
    problems.raise_any()


def _allowing(values: Any, options: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """The keys of every one of these options in nested values, unless its value is false."""
    items: Any = (
        values.items() if isinstance(values, Mapping) else enumerate(values if isinstance(values, list) else ())
    )
    for key, value in items:
        if isinstance(key, str) and key.replace("-", "_") in options and value is not False:
            yield (key,)
        yield from ((key, *keys) for keys in _allowing(value, options))
