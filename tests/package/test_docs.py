"""The documentation: its examples run, its pages are up to date, its links lead somewhere."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from helpers.imports import ORDER

from deepthink_cli.cli.main import COMMANDS
from deepthink_cli.plugins.catalogue.list_command import REGISTRIES

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def builder() -> dict[str, Any]:
    """The names that docs/build_cli.py defines."""
    return runpy.run_path(str(DOCS / "build_cli.py"))


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is removed again."""
    with ExitStack() as stack:
        for registry in (*REGISTRIES.values(), COMMANDS):
            stack.enter_context(patch.dict(registry))
        yield


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("name", ["python.md", "architecture.md", "artifact.md", "choose.md"])
def test_every_python_block_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    blocks = PYTHON.findall((DOCS / name).read_text(encoding="utf-8"))
    assert blocks
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{name}, block {number}", "exec"), vars(page))


def test_the_order_of_folders_is_the_one_that_is_held() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)(?:\.py)?` \|", page, re.MULTILINE)
    assert [name.rstrip("/") for name in rows] == list(ORDER[:-1])


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_the_python_files_that_a_page_names_exist(name: str) -> None:
    named = re.findall(r"`([\w.]+/[\w./]+\.py)`", (ROOT / name).read_text(encoding="utf-8"))
    assert named
    for path in named:
        assert (ROOT / path).is_file() or (ROOT / "deepthink_cli" / path).is_file(), path


def test_every_command_is_documented(builder: dict[str, Any]) -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for command in builder["commands"]():
        section = text.split(f"## deepthink {command}\n")[1].split("\n## ")[0]
        assert "\x1b" not in section
        assert f"  Example: deepthink {command}" in section


def test_the_tutorial_shows_a_session_with_its_output_and_the_readme_a_part_of_it() -> None:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    session = text.split("<!-- session -->")[1].split("<!-- /session -->")[0]
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- session -->\n")[2]
    shown = re.findall(r"^```console\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[0]
    remaining = iter(session.splitlines())
    assert all(line in remaining for line in shown.splitlines() if line != "...")
    for command in ("tune", "predict", "eval"):
        assert re.search(rf"^\$ .*deepthink {command} .*\n[^$\n]", session, re.MULTILINE)


def test_the_site_has_every_page_once() -> None:
    order = runpy.run_path(str(DOCS / "build_site.py"))["ORDER"]
    listed = [page for pages in order.values() for page in pages if "/" not in page]
    beside = {"reference", "CHANGELOG", "CONTRIBUTING", "SECURITY"}
    assert sorted(listed) == sorted({path.stem for path in DOCS.glob("*.md")} | beside)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        found = page.parent / target if target else page
        assert found.is_file(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
