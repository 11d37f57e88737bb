"""Tables of named values for notebooks."""

from __future__ import annotations

from deepthink_cli.io.text import facts_table, html_paragraphs, html_table


def test_everything_in_a_table_is_escaped() -> None:
    text = facts_table("<b>", {"a&b": "<script>alert(1)</script>", "turned": "a\u202eb\n"})
    assert "<b>" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "a&amp;b" in text
    assert "a\\u202eb\\n" in text


def test_a_long_value_is_shortened() -> None:
    assert len(facts_table("title", {"template": "x" * 10_000})) < 1_000


def test_a_table_with_columns_and_paragraphs_is_escaped_too() -> None:
    text = html_table(["<b>", "c"], [["<i>", "a&b"]], "<u>") + html_paragraphs(["<s>"])
    assert not any(tag in text for tag in ("<b>", "<i>", "<u>", "<s>"))
    assert text.count("text-align: right") == 2
    assert "a&amp;b" in text
