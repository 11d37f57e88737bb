"""Printable text and one-line JSON hold no character that a terminal obeys, and lose nothing else."""

from __future__ import annotations

import json
import re

from deepthink_cli.io.text import html_paragraphs, html_table, json_line, printable

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
KIND = "é שלום مرحبا 日本 👩‍👩‍👧 e\u0301"


def test_what_steers_a_terminal_becomes_a_visible_escape() -> None:
    assert printable("a\x1b[31m\x9b\u202eb\n\x7f") == r"a\x1b[31m\x9b\u202eb\n\x7f"
    assert printable(KIND) == KIND


def test_every_character_of_json_comes_back() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x30000)]))
    line = json_line({every: every})
    assert json.loads(line) == {every: every}
    assert not STEERING.search(line)


def test_a_long_text_keeps_its_ends() -> None:
    assert printable("a" * 50 + "b" * 50, 20) == "a" * 10 + " ... " + "b" * 10


def test_everything_in_a_table_and_in_paragraphs_is_escaped() -> None:
    text = html_table(["<b>", "c"], [["<i>", "a&b"]], "<u>") + html_paragraphs(["<s>"])
    assert not any(tag in text for tag in ("<b>", "<i>", "<u>", "<s>"))
    assert text.count("text-align: right") == 2
    assert "a&amp;b" in text
