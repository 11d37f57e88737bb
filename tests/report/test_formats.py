"""Markdown and LaTeX show every character of a page as it is, whatever it means to them."""

from __future__ import annotations

from deepthink_cli.report.formats import Page, latex, latex_text, markdown

HOSTILE = Page(
    source="runs/50%_[a]",
    title=r"a_b & 5% of $x$ #1 {c} ~^ \d",
    columns=["task", "McNemar"],
    sections=[("<x>", [["[q]|*", "-1.2 ± 3"]])],
    legend=[],
    footnotes=["a_b"],
)


def test_special_characters_are_escaped_in_latex() -> None:
    out = latex(HOSTILE)
    assert r"\caption{a\_b \& 5\% of \$x\$ \#1 \{c\} \textasciitilde{}\textasciicircum{} \textbackslash{}d.}" in out
    assert r"{[}q]$|${*} & $-$1.2 $\pm$ 3 \\" in out
    assert r"\textit{$<$x$>$}" in out


def test_the_name_of_an_option_has_two_hyphens_in_latex() -> None:
    assert latex_text("the sample of --pool-size") == "the sample of -{}-pool-size"


def test_special_characters_are_escaped_in_markdown() -> None:
    out = markdown(HOSTILE)
    assert r"| \[q\]\|\* |" in out
    assert r"*\<x\>*" in out
    assert out.endswith("- a\\_b\n")
