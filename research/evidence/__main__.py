"""Write docs/evidence.md, its details and all comparisons, and docs/table1.md, with their pictures.

    python -m research.evidence

Works on whatever is there: missing tables, tasks and seeds are missing from the pages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from research.cases import rows_of
from research.overlap import FILE as OVERLAP
from research.packing import TABLES, unpacked

from . import table1
from .chosen import FILE as CHOSEN
from .claims import details
from .load import read_evidence
from .page import Study, all_comparisons, page


def write(evidence: Path, docs: Path, tables: Path = TABLES) -> None:
    """Write the pages into a folder, from a folder of runs and the tables that are not packed."""
    (docs / "evidence").mkdir(parents=True, exist_ok=True)
    study = Study(read_evidence(evidence), rows_of(tables / OVERLAP))
    pages = {
        "evidence.md": page(study, docs / "evidence"),
        "evidence-details.md": details(study, tables / "parts.csv"),
        "evidence/comparisons.csv": all_comparisons(study),
        "table1.md": table1.page(study.evidence, rows_of(tables / CHOSEN.name), docs / "table1"),
    }
    for name, text in pages.items():
        if text is not None:
            (docs / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Parse the arguments and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="evidence", type=Path, default=TABLES / "evidence", help="folder of tables")
    parser.add_argument("--write", type=Path, default=Path("docs"), help="folder of the pages")
    args = parser.parse_args()
    with unpacked(args.evidence) as folder:
        write(folder, args.write)


if __name__ == "__main__":
    main()
