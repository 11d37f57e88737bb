"""Write the tables of selection methods and techniques from the registries; with --check, only say if they are current.

Each is between <!-- methods --> and <!-- /methods --> of its page: docs/choose.md and docs/think.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from deepthink_cli.selection.registry import METHODS
from deepthink_cli.techniques.registry import samples

DOCS = Path(__file__).resolve().parent
TABLE = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- /methods -->)", re.DOTALL)


def main() -> None:
    """Write the tables, or exit with 1 where --check finds others."""
    for name, current in pages().items():
        path = DOCS / name
        if "--check" not in sys.argv[1:]:
            path.write_text(current, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != current:
            sys.exit(f"docs/{name} is stale; run: python docs/build_registries.py")


def pages() -> dict[str, str]:
    """The pages with what is registered now."""
    tables = {"choose.md": selection_methods(), "think.md": techniques()}
    return {
        name: TABLE.sub(lambda _, lines=lines: "".join(f"{line}\n" for line in lines), (DOCS / name).read_text("utf-8"))
        for name, lines in tables.items()
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
