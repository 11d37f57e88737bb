"""Write docs/evidence.md, its details and all comparisons, docs/table1.md and docs/second-model.md, with pictures.

    python -m research.evidence

Works on whatever is there: missing tables, tasks and seeds are missing from the pages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from research.cases import rows_of
from research.overlap import FILE as OVERLAP
from research.packing import TABLES, unpacked

from . import predictions, table1
from .chosen import FILE as CHOSEN
from .claims import details
from .load import read_evidence
from .page import Study, all_comparisons, page
from .predictions import Results


def write(evidence: Path, second: Path, docs: Path, tables: Path = TABLES) -> None:
    """Write the pages into a folder, from the runs of two models and the tables that are not packed."""
    (docs / "evidence").mkdir(parents=True, exist_ok=True)
    study = Study(read_evidence(evidence), rows_of(tables / OVERLAP))
    first, other = (rows_of(tables / name) for name in ("heads.jsonl", "heads-gemma.jsonl"))
    pages = {
        "evidence.md": page(study, docs / "evidence"),
        "evidence-details.md": details(study, tables / "parts.csv"),
        "evidence/comparisons.csv": all_comparisons(study),
        "table1.md": table1.page(study.evidence, rows_of(tables / CHOSEN.name), docs / "table1"),
        "second-model.md": predictions.page(Results(study.evidence, first), Results(read_evidence(second), other)),
    }
    for name, text in pages.items():
        if text is not None:
            (docs / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Parse the arguments and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="evidence", type=Path, default=TABLES / "evidence", help="folder of tables")
    parser.add_argument("--second", type=Path, default=TABLES / "gemma", help="folder of the second model's tables")
    parser.add_argument("--write", type=Path, default=Path("docs"), help="folder of the pages")
    args = parser.parse_args()
    with unpacked(args.evidence) as folder, unpacked(args.second) as second:
        write(folder, second, args.write)


if __name__ == "__main__":
    main()
