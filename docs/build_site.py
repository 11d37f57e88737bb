"""Write the site: README.md, the pages, the commands and the Python reference as HTML, into the folder `site`.

Sphinx reads the same Markdown files that a repository shows. They are copied into one folder, with README.md as the
first page, and links follow. Anything that Sphinx warns of is an error.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import get_type_hints

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
ORDER = {
    "Start": ["tutorial"],
    "How to": ["think", "predict", "serve", "eval", "choose", "experiments", "elsewhere"],
    "Reference": ["concepts", "cli", "python", "reference", "tasks", "models", "artifact", "architecture", "SECURITY"],
    "Evidence": [
        *("evidence", "evidence-details", "preregistration", "second-model", "table1"),
        *("performance", "measurements", "reproduce"),
    ],
    "The project": [
        *("CONTRIBUTING", "releasing", "CHANGELOG", "benchmarks/README", "research/README"),
        *("examples/custom_task/README", "examples/pocket/README"),
    ],
}
SETTINGS = {
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "html_theme": "furo",
    "html_title": "deepthink",
    "html_show_copyright": False,
    "smartquotes": False,  # they write `--json` of a docstring with a dash
    "html_use_index": False,  # wider than a narrow screen; the page of the Python reference lists the same names
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "myst_heading_anchors": 4,
    "autodoc_typehints": "description",
    "suppress_warnings": ["misc.highlighting_failure"],  # a console's output is no shell
}
STYLE = ".highlight pre { font-size: 75%; }\n"  # so that help, which has up to 98 columns, needs no scrolling
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
UP = re.compile(r"^(\.\./)*(docs/)?")


def main() -> int:
    """Build the site; returns the exit code."""
    from sphinx.cmd.build import build_main

    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        gather(source)
        (source / "conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in SETTINGS.items()))
        shutil.rmtree(SITE, ignore_errors=True)
        return build_main(["-W", "--keep-going", "-q", "-b", "html", "-d", f"{name}/.read", name, str(SITE)])


def gather(source: Path) -> None:
    """Put every page into one folder, with what the pages link to."""
    shutil.copytree(ROOT / "docs", source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for folder in ("examples", "benchmarks", "research"):
        left_out = shutil.ignore_patterns("results", "tables", "prompt-ids", "__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=left_out)
    for name in BESIDE:
        shutil.copy(ROOT / name, source / name)
    shutil.copy(ROOT / "README.md", source / "index.md")
    for page in source.rglob("*.md"):
        page.write_text(LINK.sub(moved, page.read_text(encoding="utf-8")), encoding="utf-8")
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.writelines(contents(caption, pages) for caption, pages in ORDER.items())
    (source / "reference.md").write_text(reference(), encoding="utf-8")
    (source / "_static").mkdir()
    (source / "_static" / "site.css").write_text(STYLE)


def moved(link: re.Match[str]) -> str:
    """Where the target of a link is, which README.md has under `docs/` and others under `../`."""
    up = UP.match(link[0])
    if up is None or not up[0]:
        return link[0]
    target = link[0].removeprefix(up[0])
    return "/index.md" if target == "README.md" else f"/{target}"


def contents(caption: str, pages: list[str]) -> str:
    """A part of the site's contents."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def reference() -> str:
    """Every public name with its docstring."""
    import deepthink_cli

    entries = [entry(name, getattr(deepthink_cli, name)) for name in sorted(deepthink_cli.__all__)]
    return "\n".join(["# Python reference", "", "```{eval-rst}", *entries, "```", ""])


def entry(name: str, value: object) -> str:
    """The directive of autodoc that describes a public name."""
    if isinstance(value, type):
        with suppress(NameError):  # a type that is imported for the type checker alone
            value.__annotations__ = get_type_hints(value)  # without the constraints and help of `Annotated`
        return f".. autoclass:: deepthink_cli.{name}\n   :members:\n   :exclude-members: model_config\n"
    return f".. auto{'function' if callable(value) else 'data'}:: deepthink_cli.{name}\n"


if __name__ == "__main__":
    sys.exit(main())
