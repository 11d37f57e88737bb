"""Write the list of modules in docs/architecture.md from their docstrings; with --check, only say if it is up to date.

The list is between <!-- modules --> and <!-- /modules -->. Each module's line is the first line of its docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from pages import ROOT, write_or_check

PACKAGE = ROOT / "deepthink_cli"
PAGE = ROOT / "docs" / "architecture.md"
MODULES = re.compile(r"(?<=<!-- modules -->\n).*?(?=<!-- /modules -->)", re.DOTALL)


def main() -> None:
    """Write or check the list."""
    write_or_check({PAGE: page(PAGE.read_text(encoding="utf-8"))})


def page(text: str) -> str:
    """The page with the list of the modules as they are now."""
    return MODULES.sub(lambda _: modules(), text)


def modules() -> str:
    """Every folder with what it holds, and its modules, one line each."""
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    return "\n".join(folder_lines(folder) for folder in folders)


def folder_lines(folder: Path) -> str:
    """A folder and its modules; a folder's own line is that of its `__init__.py`."""
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    heading = f"**{folder.relative_to(ROOT).as_posix()}/**: {first_line(folder / '__init__.py')}\n"
    return "\n".join([heading, *(f"- `{path.name}`: {first_line(path)}" for path in files), ""])


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if docstring is None:
        sys.exit(f"{path}: has no docstring")
    return docstring.splitlines()[0]


if __name__ == "__main__":
    main()
