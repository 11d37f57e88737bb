"""Write docs/table1.md and its figures; needs no model.

python -m benchmarks.table1 --from table1 --write docs/table1.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.packing import unpacked

from .page import page, read_models


def main() -> None:
    """Read the table of every model and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, default=Path("table1"))
    parser.add_argument("--write", type=Path, default=Path("docs/table1.md"))
    args = parser.parse_args()
    figures = args.write.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    with unpacked(args.folder) as folder:
        args.write.write_text(page(read_models(folder), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
