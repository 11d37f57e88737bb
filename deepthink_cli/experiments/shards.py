"""Shards of a run: each does its part of the jobs in a folder of its own, with nothing between them but the plan.

A shard that is done has a `shard.json` with the digest of the plan, by which a report tells whether the shards belong
together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

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

    def folder(self, out: Path) -> Path:
        """`out/shard-I-of-N`; raises InputError if `out` holds a run, or shards of another number."""
        if (out / FILE).exists():
            raise InputError.of("output", out, "holds a run that is not divided into shards; name a new folder")
        others = {_parts(path)[1] for path in _shard_folders(out)} - {self.of}
        if others:
            raise InputError.of(
                "output",
                out,
                f"holds shards of {others.pop()}; use {option('shard')} I/N with that N, or name a new folder",
            )
        return out / f"shard-{self.number}-of-{self.of}"

    def takes(self, sizes: Sequence[int]) -> list[bool]:
        """Which of some neighbouring blocks of work belong to this shard: about as much of it as to any other."""
        middles = [after - size / 2 for after, size in zip(accumulate(sizes), sizes, strict=True)]
        return [int(middle * self.of / sum(sizes)) == self.number - 1 for middle in middles]

    def begin(self, folder: Path) -> None:
        """Remove the plan of an earlier run of the shard, until it is done again."""
        (folder / MANIFEST).unlink(missing_ok=True)

    def end(self, folder: Path, plan: str) -> None:
        """Write the digest of the plan of a shard that is done; raises DeepThinkError if that fails."""
        with writing(folder / MANIFEST) as file:
            file.write(json.dumps({"plan": plan}) + "\n")


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
    plans = {folder: _plan(folder / MANIFEST) for folder in _shard_folders(run) if (folder / MANIFEST).is_file()}
    of = max((_parts(folder)[1] for folder in _shard_folders(run)), default=0)
    missing = sorted(set(range(1, of + 1)) - {_parts(folder)[0] for folder in plans})
    lines = []
    if missing:
        lines.append(f"{run}: shard {', '.join(map(str, missing))} of {of} is not done: rows are missing")
    if len(set(plans.values())) > 1:
        lines.append(
            f"{run}: its shards were planned differently (other options, data or devices), so rows may be missing; "
            "run all shards again with one command"
        )
    return lines


def _shard_folders(run: Path) -> list[Path]:
    """The folders of a run's shards, in the order of their numbers."""
    folders = [path for path in run.iterdir() if _NAME.fullmatch(path.name)] if run.is_dir() else []
    return sorted(folders, key=_parts)


def _parts(folder: Path) -> tuple[int, ...]:
    """The number of a shard, and the number of all shards."""
    return tuple(map(int, _NAME.findall(folder.name)[0]))


def _plan(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["plan"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: is not what a shard writes; remove it and run the shard again") from error
