"""Write the table of methods in docs/choose.md from the registry; with --check, only say whether it is up to date.

The table is between <!-- methods --> and <!-- /methods -->.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from deepthink_cli.selection.registry import METHODS

PAGE = Path(__file__).resolve().parent / "choose.md"
TABLE = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- /methods -->)", re.DOTALL)


def main() -> None:
    """Write the table, or exit with 1 where --check finds another one."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(text), encoding="utf-8")
    elif text != page(text):
        sys.exit("docs/choose.md is stale; run: python docs/build_choose.py")


def page(text: str) -> str:
    """The page with the methods as they are registered now."""
    return TABLE.sub(lambda _: table(), text)


def table() -> str:
    """A line for every method: its name, what it chooses, what it reads, its cost and its source."""
    lines = ["| method | chooses | reads | cost | source |", "|---|---|---|---|---|"]
    for name, method in METHODS.items():
        reads = ", ".join(f"`{part}`" for part in method.reads) or "nothing"
        lines.append(f"| `{name}` | {method.summary} | {reads} | {method.cost} | {method.source} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
