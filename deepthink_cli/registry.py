"""Registries: objects with a name in options and files, from this package and from others (docs/architecture.md).

Options and files write names with parameters as NAME:PARAMETER=VALUE,..., and lists of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import getdoc
from logging import getLogger
from pkgutil import get_data
from typing import Any, Generic, TypeVar, cast

from deepthink_cli.io.text import printable

T = TypeVar("T")
Check = Callable[[str, Any], T]  # of a name, and the object registered under it; raises if they cannot be used


def lazy(place: str) -> Any:
    """An object of this package that is imported when it is first used, by its place, `module:name`."""
    return EntryPoint("", place, "")


def loaded(found: T | str) -> T:
    """An object, imported if it is named by its place, `module:name`."""
    return cast("T", lazy(found).load()) if isinstance(found, str) else found


class Registry(MutableMapping[str, T], Generic[T]):
    """Objects by name: this package's own, those of its plugins, and those of other packages.

    Plugins and other packages name them as entry points `deepthink.<kind>`. The names are known without an import. An
    object is imported when it is first used, and then passes `check`. An entry point whose name is taken, that cannot
    be imported, or that does not pass, is left out, with a warning.
    """

    def __init__(self, kind: str, built_in: Mapping[str, T], check: Check[T]) -> None:
        self.group, self._check = f"deepthink.{kind}", check
        self._objects: dict[str, Any] = dict(built_in)
        self._added: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> T:
        found = self._entries[name]
        if isinstance(found, EntryPoint):
            if name not in self.added:
                self._objects[name] = found.load()
                return cast("T", self._objects[name])
            try:
                self._objects[name] = self._check(name, found.load())
            except (Exception, SystemExit) as error:  # a module can fail in any way when it is imported
                self._warn(found, f"{type(error).__name__}: {' '.join(str(error).split())}")
                del self._objects[name]
        return cast("T", self._objects[name])

    def __setitem__(self, name: str, value: T) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> ItemsView[str, T]:
        """The names and objects of all entries that can be imported."""
        return {name: self[name] for name in self if name in self}.items()

    def values(self) -> ValuesView[T]:
        """The objects of all entries that can be imported."""
        return dict(self.items()).values()

    def summary(self, name: str) -> str:
        """The description of an object in a sentence: its `summary`, or the first line of its docstring."""
        found = self[name]
        return str(_own(found, "summary") or (getdoc(found) or "").partition("\n")[0])

    def source(self, name: str) -> str:
        """The origin of an object, such as a paper: its `source`; empty for another package's object without one."""
        return str(_own(self[name], "source") or "")

    def definition(self, name: str) -> ast.FunctionDef | ast.Module | None:
        """A function as it is written, or the module of another object, without importing it.

        None for an object that another package adds, or that is imported already.
        """
        place = self._entries[name]
        if name in self.added or not isinstance(place, EntryPoint):
            return None
        package, _, module = place.module.rpartition(".")
        source = ast.parse(get_data(package, f"{module}.py") or b"")
        functions = (each for each in source.body if isinstance(each, ast.FunctionDef) and each.name == place.attr)
        return next(functions, source)

    @property
    def own(self) -> list[str]:
        """The names of this package and its plugins."""
        return [name for name in self if name not in self.added]

    @property
    def added(self) -> list[str]:
        """The names that other packages add."""
        return [name for name in self._entries if name in (self._added or ())]

    @property
    def _entries(self) -> dict[str, Any]:
        if self._added is None:
            self._added = {}
            entries = _installed().select(group=self.group)
            for entry in sorted(entries, key=lambda each: (not _is_own(each), each.name)):  # this package's own first
                if entry.name in self._objects:
                    self._warn(entry, "the name is taken")
                    continue
                self._objects[entry.name] = entry
                if not _is_own(entry):
                    self._added[entry.name] = entry
        return self._objects

    def _warn(self, entry: EntryPoint, reason: str) -> None:
        owner = "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}: "
        text = f"warning: {owner}{self.group} {entry.name!r} ({entry.value}) is not used: {reason}"
        getLogger(__name__).warning("%s", printable(text))


def installed(registry: Registry[Any]) -> str:
    """The names that other packages add to a registry, for the help of an option."""
    return f"; installed: {', '.join(registry.added)}" if registry.added else ""


def instance_of(kind: type[T]) -> Check[T]:
    """A check that an object is an instance of a class."""

    def check(name: str, value: Any) -> T:
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__}, not a {kind.__name__}")
        return value

    return check


def _own(found: Any, name: str) -> Any:
    """An attribute; of a class only its own, since an inherited attribute describes another object."""
    return vars(found).get(name) if isinstance(found, type) else getattr(found, name, None)


@cache
def _installed() -> Any:
    return entry_points()  # of all groups: finding them takes longer than choosing among them


def _is_own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == "deepthink-cli"


def split_names(text: Any) -> Any:
    """The names, with their parameters, in a list separated by commas; a value that is not a text stays as it is.

    A part with `=` but without `:` is a parameter of the name before it.
    """
    if not isinstance(text, str):
        return text
    names: list[str] = []
    for part in map(str.strip, text.split(",")):
        if names and ":" in names[-1] and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def name_and_parameters(text: str) -> tuple[str, dict[str, str]]:
    """The name and the parameters of a text; raises ValueError for a text that is not NAME or NAME:PARAMETER=VALUE."""
    name, colon, rest = text.strip().partition(":")
    parameters = dict[str, str]()
    for part in rest.split(",") if colon else ():
        parameter, equals, value = (piece.strip() for piece in part.partition("="))
        if not (parameter and equals and value) or parameter in parameters:
            raise ValueError("write NAME:PARAMETER=VALUE,..., each parameter once")
        parameters[parameter] = value
    return name.strip(), parameters
