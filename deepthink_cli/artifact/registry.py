"""The kinds of files that score inputs beside memories, by the key of their safetensors metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of

if TYPE_CHECKING:  # files are described without torch
    from deepthink_cli.artifact.metadata import StoredDemonstrations
    from deepthink_cli.artifact.opening import OpenedMemory


@dataclass(frozen=True)
class Described:
    """The facts that `inspect` shows: `values` for `--json`; facts by short names, demonstrations and the digest."""

    values: Mapping[str, Any]
    facts: Mapping[str, str]
    demonstrations: StoredDemonstrations
    sha256: str


@dataclass(frozen=True)
class Opener:
    """A kind of file from which a model makes a memory, for `predict` and `eval`.

    `open` reads a file, checks every byte of it, and returns an `OpenedMemory` whose `read_by` makes the memory. Its
    arguments are the path, the iterations as in `open_memory`, and the kind's own options, or None. `describe` reads a
    file without torch, and all its bytes if the second argument, `verify`, is true. Each is a function, or the place of
    one (`module:function`), and raises InputError for a damaged file. `holds` is the content of a file, in the plural.
    """

    open: Callable[[str, str, Any], OpenedMemory] | str
    describe: Callable[[str, bool], Described] | str
    holds: str
    summary: str
    source: str
    options: type[Options] | None = None

    @property
    def file(self) -> str:
        """The name of a file of this kind in messages."""
        return f"a file of {self.holds}"


OPENERS: Registry[Opener] = Registry("openers", {}, instance_of(Opener))
