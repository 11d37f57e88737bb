"""Write the tables of selection methods and techniques from the registries; with --check, only say if they are current.

Each is between <!-- methods --> and <!-- /methods --> of its page: docs/choose.md and docs/think.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pages import ROOT, write_or_check

from deepthink_cli.selection.registry import METHODS
from deepthink_cli.techniques.registry import samples

DOCS = ROOT / "docs"
TABLE = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- /methods -->)", re.DOTALL)


def main() -> None:
    """Write or check the tables."""
    write_or_check(pages())


def pages() -> dict[Path, str]:
    """The pages with what is registered now."""
    tables = {DOCS / "choose.md": selection_methods(), DOCS / "think.md": techniques()}
    return {
        path: TABLE.sub(lambda _, lines=lines: "".join(f"{line}\n" for line in lines), path.read_text("utf-8"))
        for path, lines in tables.items()
    }


def selection_methods() -> Iterator[str]:
    """A line for every selection method: its name, what it chooses, what it reads, its cost and its source."""
    yield from ("| method | chooses | reads | cost | source |", "|---|---|---|---|---|")
    for name, method in METHODS.items():
        reads = ", ".join(f"`{part}`" for part in method.reads) or "nothing"
        yield f"| `{name}` | {method.summary} | {reads} | {method.cost} | {method.source} |"


def techniques() -> Iterator[str]:
    """A line for every technique: its name, what it does, its cost and its source."""
    yield from ("| `--technique` | what it does | cost | source |", "|---|---|---|---|")
    for each in samples(in_run=True):
        yield f"| `{each.family}` | {each.summary} | {each.cost} | {each.source} |"


if __name__ == "__main__":
    main()
