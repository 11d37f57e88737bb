"""Reports in LaTeX."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest
from helpers.said import Captured, output
from helpers.synthetic import HOSTILE, THREE, classic, seeds, write

from deepthink_cli.plugins.paper.latex import latex, latex_text

LATEX = ("--output-format", "latex")


def test_special_characters_are_escaped_in_latex() -> None:
    out = latex(HOSTILE)
    assert r"\caption{a\_b \& 5\% of \$x\$ \#1 \{c\} \textasciitilde{}\textasciicircum{} \textbackslash{}d.}" in out
    assert r"{[}q]$|${*} & $-$1.2 $\pm$ 3 \\" in out
    assert r"\textit{$<$x$>$}" in out


def test_the_name_of_an_option_has_two_hyphens_in_latex() -> None:
    assert latex_text("the sample of --pool-size") == "the sample of -{}-pool-size"


def test_latex_has_a_section_for_each_eta_and_rules_of_booktabs(tmp_path: Path, capsys: Captured) -> None:
    out = output(capsys, "report", write(tmp_path / "both", [*classic([0.1, 0.01], count=2)]), *LATEX)
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"$\pm$", r"95 \% interval", r"{\textit{eta 0.1}} \\"):
        assert part in out
    rows = [line for line in out.splitlines() if " & " in line]
    assert len({line.count("&") for line in rows}) == 1
    assert len(rows) == 1 + 2 * 6
    assert out.count("{") == out.count("}")


def test_latex_has_a_short_caption_without_paths_and_the_rest_in_notes(tmp_path: Path, capsys: Captured) -> None:
    rows = seeds(THREE, model="/home/somebody/models/small-1b")
    out = output(capsys, "report", str(write(tmp_path / "run", rows)), *LATEX)
    (caption,) = re.findall(r"\\caption\{(.*)\}", out)
    assert len(caption.split()) <= 40
    assert "small-1b, float32" in caption
    assert "/" not in caption
    table, notes = out.split(r"\textit{Notes.}")
    assert "SST-2 & 3 & 3 & 60.0" in table
    assert "McNemar: seeds that are better / worse" in notes
    assert "/home" not in notes


@pytest.mark.skipif(which("pdflatex") is None, reason="needs pdflatex with booktabs")
def test_latex_compiles(tmp_path: Path, capsys: Captured) -> None:
    methods = [seeds(THREE, sampling=name, pool_size=9, balanced=False) for name in ("a_b", "c%", "random")]
    table = output(
        capsys, "report", str(write(tmp_path / "run", [row for rows in methods for row in rows])), "-q", *LATEX
    )
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (tmp_path / "page.tex").write_text(page)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_no_name_breaks_out_of_a_table(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", seeds(THREE, task="*a | b\n| c\r\n\\end{x} $1 <b> `d` & ~"))
    (row,) = [line for line in output(capsys, "report", folder, *LATEX).splitlines() if line.startswith("{*}a")]
    assert row.endswith(r" \\")
    assert r"\end{x}" not in row
