"""Write docs/table1.md and its figures; needs no model.

python -m research.table1
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from research.evidence import methods
from research.evidence.load import read_evidence
from research.packing import TABLES, unpacked

from .page import page, read_models


def main() -> None:
    """Read the table of every model and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, default=TABLES / "table1")
    parser.add_argument("--more", type=Path, default=TABLES / "evidence", help="tables of methods on more rows")
    parser.add_argument("--write", type=Path, default=Path("docs/table1.md"))
    args = parser.parse_args()
    figures = args.write.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    with unpacked(args.more, methods.FOLDERS) as folder:
        evidence = read_evidence(folder)
    with unpacked(args.folder) as folder:
        models = [
            replace(model, more=methods.accuracies(evidence), more_gains=methods.gains(evidence))
            if model.is_among(evidence.models)
            else model
            for model in read_models(folder)
        ]
    args.write.write_text(page(models, figures), encoding="utf-8")


if __name__ == "__main__":
    main()
