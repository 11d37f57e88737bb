"""Shards of a run: each does its part of the units in a folder of its own, with nothing between them but the plan.

A shard that is done has a `shard.json` of what it planned, by which a report tells whether the shards belong together.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.results import FILE
from deepthink_cli.io.atomic import writing

MANIFEST = "shard.json"
_NAME = re.compile(r"shard-(\d+)-of-(\d+)")
_OPTION = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `of` parts."""

    number: int
    of: int

    @classmethod
    def parsed(cls, text: str) -> Shard:
        """The shard that `I/N` names; raises InputError for another text."""
        match = _OPTION.fullmatch(text.strip())
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.of:
            raise InputError.of("shard", text, "give I/N, part I of N from 1/N to N/N, as in 1/4")
        return shard

    def has(self, place: int) -> bool:
        """Whether the unit at this place of the plan, from 0, belongs to this shard: the shards take them in turn."""
        return place % self.of == self.number - 1

    def folder(self, out: Path) -> Path:
        """`out/shard-I-of-N`; raises InputError if `out` holds a run, or shards of another number."""
        if (out / FILE).exists():
            raise InputError.of("output", out, "holds a run that is not divided into shards; name a new folder")
        others = {int(_NAME.fullmatch(path.name)[2]) for path in _shard_folders(out)} - {self.of}  # type: ignore[index]
        if others:
            raise InputError.of(
                "output",
                out,
                f"holds shards of {others.pop()}; use {option('shard')} I/N with that N, or name a new folder",
            )
        return out / f"shard-{self.number}-of-{self.of}"


@with_config(ConfigDict(extra="forbid", defer_build=True))
@dataclass(frozen=True)
class Manifest:
    """What a shard planned: `units` and `rows` of all shards together, and the digest of the list of units."""

    shard: int
    of: int
    units: int
    rows: int
    plan: str


class Share:
    """The units that this process is to do: those of a shard, or all of them; counts what it is asked about."""

    def __init__(self, shard: Shard | None = None) -> None:
        self.shard = shard
        self.digests: list[str] = []
        self.rows = 0

    def takes(self, digest: str, rows: int) -> bool:
        """Whether the next unit of the plan, with this digest and this number of rows, is to be done."""
        self.digests.append(digest)
        self.rows += rows
        return self.shard is None or self.shard.has(len(self.digests) - 1)

    @property
    def of(self) -> int:
        """The number of shards; 1 for a run that is not divided."""
        return 1 if self.shard is None else self.shard.of

    def begin(self, folder: Path) -> None:
        """Remove what an earlier run of the shard planned, until it is done again."""
        if self.shard is not None:
            (folder / MANIFEST).unlink(missing_ok=True)

    def end(self, folder: Path) -> None:
        """Write what a shard that is done has planned; raises DeepThinkError if that fails."""
        if self.shard is not None:
            plan = hashlib.sha256("".join(sorted(self.digests)).encode()).hexdigest()[:16]
            manifest = Manifest(self.shard.number, self.shard.of, len(self.digests), self.rows, plan)
            with writing(folder / MANIFEST) as file:
                file.write(json.dumps(asdict(manifest)) + "\n")


def with_shards(runs: Iterable[Path]) -> list[Path]:
    """The folders of runs, with the folders of its shards in place of one that is divided."""
    folders = list[Path]()
    for run in runs:
        folders += [run] if (run / FILE).exists() else _shard_folders(run) or [run]
    return folders


def shard_warnings(runs: Iterable[Path]) -> list[str]:
    """A line for each of the runs whose shards are incomplete or were planned differently."""
    return [line for run in runs if not (run / FILE).exists() for line in _warnings(run)]


def _warnings(run: Path) -> list[str]:
    folders = _shard_folders(run)
    if not folders:
        return []
    manifests = [_manifest(folder / MANIFEST) for folder in folders if (folder / MANIFEST).is_file()]
    of = int(_NAME.fullmatch(folders[0].name)[2])  # type: ignore[index]
    missing = sorted(set(range(1, of + 1)) - {manifest.shard for manifest in manifests})
    lines = []
    if missing:
        lines.append(f"{run}: shard {', '.join(map(str, missing))} of {of} is not done: rows are missing")
    if len({manifest.plan for manifest in manifests}) > 1:
        lines.append(
            f"{run}: its shards were planned differently (other options, data or devices), so rows may be missing; "
            "run all shards again with one command"
        )
    rows = sum(_lines(folder / FILE) for folder in folders)
    if not lines and rows < manifests[0].rows:
        lines.append(f"{run}: {rows} of {manifests[0].rows} rows are there; run the shards again, which continues them")
    return lines


def _shard_folders(run: Path) -> list[Path]:
    """The folders of a run's shards, in the order of their numbers."""
    folders = [path for path in run.iterdir() if _NAME.fullmatch(path.name)] if run.is_dir() else []
    return sorted(folders, key=lambda path: [int(number) for number in _NAME.findall(path.name)[0]])


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _manifest(path: Path) -> Manifest:
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path}: is not what a shard writes; remove it and run the shard again") from error


_ADAPTER = TypeAdapter(Manifest)
