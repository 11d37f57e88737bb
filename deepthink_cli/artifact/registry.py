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
    """What `inspect` shows of a file: `values` for `--json`; its facts by short names, demonstrations and digest."""

    values: Mapping[str, Any]
    facts: Mapping[str, str]
    demonstrations: StoredDemonstrations
    sha256: str


@dataclass(frozen=True)
class Opener:
    """A kind of file that a model makes a memory of, for `predict` and `eval`.

    `open` reads a file, checks every byte of it, and returns an `OpenedMemory` whose `read_by` makes the memory; its
    arguments are the path, the iterations as `open_memory` takes them, and the options of its own, or None. `describe`
    reads a file without torch, and all of its bytes if its second argument, `verify`, is true. Each is a function, or
    where it is found (`module:function`), and raises InputError for a file that is damaged. `holds` is what such files
    hold, in the plural.
    """

    open: Callable[[str, str, Any], OpenedMemory] | str
    describe: Callable[[str, bool], Described] | str
    holds: str
    summary: str
    source: str
    options: type[Options] | None = None

    @property
    def file(self) -> str:
        """Such a file, in messages."""
        return f"a file of {self.holds}"


OPENERS: Registry[Opener] = Registry("openers", {}, instance_of(Opener))
