"""Which study a folder's rows belong to: `study.json` in the folder, written when the study is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.folder import open_run_folder
from deepthink_cli.experiments.shards import with_shards
from deepthink_cli.experiments.study.files import SUFFIXES
from deepthink_cli.io.atomic import writing

FILE = "study.json"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Origin:
    """A study of the package by its name, or another one by the path of its file, and the scale, if one was run."""

    study: str
    scale: str | None = None

    @classmethod
    def of(cls, name: str, scale: str | None) -> Origin:
        """The origin for a study as it is named on the command line, whatever the current directory is later."""
        return cls(str(Path(name).absolute()) if name.endswith(SUFFIXES) else name, scale)

    def write(self, folder: Path) -> None:
        """Write `study.json` into a folder unless it says so already; raises as `open_run_folder` does."""
        if _read(folder) == self:
            return
        with open_run_folder(folder), writing(folder / FILE, "out") as file:
            file.write(json.dumps(asdict(self)) + "\n")


def origin_of(runs: Sequence[Path]) -> Origin | None:
    """The study that all these folders, or their shards, belong to; None if they name none, or several.

    Raises InputError for a `study.json` that this program did not write.
    """
    found = {_read(folder) for folder in with_shards(runs)}
    return found.pop() if len(found) == 1 else None


def _read(folder: Path) -> Origin | None:
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: is not what deepthink study run writes; remove it") from error


_ADAPTER = TypeAdapter(Origin)
