"""Memories in a notebook."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    load_memory,
    open_memory,
    save_memory,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.artifact.opening import opened
from deepthink_cli.cli.main import run


@pytest.fixture
def memories(llama: Engine) -> list[Memory]:
    given = DemonstrationSet.of(
        [Example("a warm film", "<b>good</b>"), Example("a dull film", "bad & ugly")], "<i>{text}</i>\n{label}"
    )
    return list(think(llama, tokenize_demonstrations(llama.tokenizer, given), Method(2, Gate(0.1))))


def shown(html: str) -> dict[str, str]:
    """The rows of the table."""
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", html)
    return {unescape(name): unescape(value) for name, value in rows}


def test_a_memory_shows_what_inspect_says(
    memories: list[Memory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mem.safetensors"
    header = save_memory(memories, path)
    run(["inspect", str(path)])
    inspected = capsys.readouterr().out
    file, memory = shown(open_memory(path, "all")._repr_html_()), shown(load_memory(path)._repr_html_())
    for table in (file, memory, shown(memories[-1]._repr_html_())):
        for name in ("model", "method", "labels", "template"):
            assert f"{name:<9} {table[name]}\n" in inspected
        assert table["demonstrations"] == f"2, L = {memories[0].length} tokens"
    assert file["holds"] == f"iteration 1, 2 of 1, 2, {header.size / 1024:.1f} KiB"
    assert memory["holds"].startswith("iteration 2: ")
    assert memory["size"] == f"{memories[-1].nbytes / 1024:.1f} KiB"


def test_texts_of_a_memory_cannot_add_markup(memories: list[Memory]) -> None:
    for html in (memories[-1]._repr_html_(), opened(memories)._repr_html_()):
        assert set(re.findall(r"<(\w+)", html)) == {"table", "caption", "tbody", "tr", "th", "td"}
        assert "<b>good</b>, bad & ugly" in shown(html)["labels"]


def test_a_reading_without_provenance_shows_its_shapes(memories: list[Memory]) -> None:
    bare = Memory(memories[0].keys, memories[0].values)
    assert set(shown(bare._repr_html_())) == {"holds", "size"}
