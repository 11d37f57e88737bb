"""The studies that come with the package, by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from deepthink_cli.errors import InputError

FOLDER = Path(__file__).parent.parent / "studies"
SUFFIXES = (".yaml", ".yml")


def packaged() -> dict[str, Path]:
    """The file of every study of the package, by its name, as in `paper/table1`."""
    files = sorted(FOLDER.rglob("*.yaml"))
    return {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in files}


def study_path(name: str) -> Path:
    """The path of a study file, or of the packaged study of this name; raises InputError for an unknown one."""
    if name.endswith(SUFFIXES):
        if not Path(name).is_file():
            raise InputError(f"{name}: no such study file; deepthink study list shows those of the package")
        return Path(name)
    known = packaged()
    if name not in known:
        near = difflib.get_close_matches(name, [*known, *(known_name.rpartition("/")[2] for known_name in known)], n=1)
        full = [each for each in known if near and each in (near[0], f"{each.rpartition('/')[0]}/{near[0]}")]
        hint = f"did you mean {full[0]}?" if full else "deepthink study list shows them; a file ends in .yaml"
        raise InputError(f"{name}: no such study; {hint}")
    return known[name]
