"""Write docs/evidence.md and its figures from the packed folders of `deepthink run --samples`.

    python -m research.evidence

Works on whatever is there: missing tables, tasks and seeds are missing from the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.jobs import COMMANDS
from research.packing import TABLES, unpacked
from research.table1.page import Model, read_models

from .load import read_evidence
from .page import Study, page
from .tables import all_cells
from .tuned import FILE as TUNED


def write(evidence: Path, target: Path, table1: Sequence[Model] = (), kept: Path | None = None) -> None:
    """Write the page, and figures and cells.csv into a folder beside it with its name.

    `kept` has the files that are not packed, if it is not the folder of the evidence.
    """
    figures = target.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    found = read_evidence(evidence)
    of_model = (each for each in table1 if each.is_among(found.models))
    beside = kept or evidence
    lines = (_lines(beside / name) for name in (COMMANDS, TUNED))
    study = Study(found, figures, next(of_model, None), *lines)
    for old in (*figures.glob("*.png"), *figures.glob("*.csv")):
        old.unlink()
    text = page(study)
    (figures / "cells.csv").write_text(all_cells(study.every), encoding="utf-8")
    target.write_text(text, encoding="utf-8")


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines: commands and what they took, or what `tune` chose; none if there is no file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def main() -> None:
    """Parse the arguments and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="evidence", type=Path, default=TABLES / "evidence", help="folder of tables")
    parser.add_argument("--table1", type=Path, default=TABLES / "table1", help="folder of the tables of Table 1")
    parser.add_argument("--write", type=Path, default=Path("docs/evidence.md"), help="the page to write")
    args = parser.parse_args()
    with unpacked(args.table1) as folder:
        models = read_models(folder)
    with unpacked(args.evidence) as folder:
        write(folder, args.write, models, args.evidence)
    print(args.write)


if __name__ == "__main__":
    main()
