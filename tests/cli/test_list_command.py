"""`deepthink list`: everything that options name has a summary and a source."""

from __future__ import annotations

import pytest
from helpers.said import Captured, json_of, output

from deepthink_cli.cli.list import REGISTRIES
from deepthink_cli.cli.main import run

KINDS = {
    "published",
    "forms",
    "updates",
    "techniques",
    "calibrations",
    "selections",
    "scores",
    "steps",
    "engines",
    "exporters",
    "executors",
    "formats",
    "observers",
    "judges",
    "openers",
}


@pytest.mark.plugins
def test_every_object_has_a_summary_and_a_source(capsys: Captured) -> None:
    rows = json_of(capsys, "list", "--json")
    assert {row["kind"] for row in rows} == KINDS
    assert [row for row in rows if not (row["summary"] and row["source"])] == []


@pytest.mark.plugins
def test_one_kind_is_listed_by_the_names_of_its_option(capsys: Captured) -> None:
    names = [line.split()[0] for line in output(capsys, "list", "techniques").splitlines()]
    assert names == ["deep-thinking", "repeat-R", "flipped", "fresh", "composed", "ensemble-N", "ct-kv"]


def test_without_a_kind_every_kind_is_followed_by_its_names_within_the_width_of_a_screen(capsys: Captured) -> None:
    lines = output(capsys, "list").splitlines()
    assert "steps         truncate, score, reread, nearest" in lines
    assert max(map(len, lines)) <= 80


def test_a_kind_of_which_nothing_is_installed_is_empty(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(REGISTRIES["openers"], "_objects", {})
    assert not output(capsys, "list", "openers").strip()


def test_an_unknown_kind_is_answered_with_the_known_ones(capsys: Captured) -> None:
    assert run(["list", "rules"]) == 2
    assert capsys.readouterr().err.startswith("deepthink: rules: not a kind; use updates, techniques, ")
