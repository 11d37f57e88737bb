"""Tables for notebooks."""

from __future__ import annotations

from deepthink_cli.io.text import html_paragraphs, html_table


def test_everything_in_a_table_and_in_paragraphs_is_escaped() -> None:
    text = html_table(["<b>", "c"], [["<i>", "a&b"]], "<u>") + html_paragraphs(["<s>"])
    assert not any(tag in text for tag in ("<b>", "<i>", "<u>", "<s>"))
    assert text.count("text-align: right") == 2
    assert "a&amp;b" in text
