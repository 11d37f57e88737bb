"""Write docs/evidence.md, its picture, the CSV file of all comparisons, and the page of details.

    python -m research.evidence

Works on whatever is there: missing tables, tasks and seeds are missing from the pages.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.overlap import FILE as OVERLAP
from research.packing import TABLES, unpacked
from research.table1.page import Model, read_models

from .details import details
from .load import read_evidence
from .page import Study, all_comparisons, page
from .tuned import FILE as TUNED


def write(evidence: Path, target: Path, table1: Sequence[Model] = (), kept: Path | None = None) -> None:
    """Write the page and that of details beside it, and the picture and the CSV file into a folder with its name.

    `kept` has the files that are not packed, if it is not the folder of the evidence.
    """
    figures = target.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    found, beside = read_evidence(evidence), kept or evidence
    of_model = (each for each in table1 if each.is_among(found.models))
    study = Study(found, figures, next(of_model, None), _lines(beside / TUNED), _lines(beside.with_name(OVERLAP)))
    target.write_text(page(study), encoding="utf-8")
    target.with_name(f"{target.stem}-details.md").write_text(details(study), encoding="utf-8")
    (figures / "comparisons.csv").write_text(all_comparisons(study), encoding="utf-8")


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines; none if there is no file."""
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
