"""The HTML file: one file, nothing from a network, and no text of data that becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from helpers.web_pages import EVIL, ROWS, chart, samples_of, web_page

from deepthink_cli.plugins.pages.page import PACKAGE, SCRIPTS, ChartGroup, Table, render


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.in_script = self.elements[-1] == ("script", {})

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts.append(data)


def test_a_page_names_no_other_file() -> None:
    for tag, attributes in Elements(render(web_page())).elements:
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_the_policy_allows_the_scripts_of_the_page_and_no_connection() -> None:
    page = Elements(render(web_page()))
    (policy,) = (values["content"] or "" for _, values in page.elements if "http-equiv" in values)
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    allowed = re.findall(r"'sha256-(.*?)'", policy.partition("script-src ")[2].partition(";")[0])
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts]
    assert len(digests) == 2
    assert allowed == digests


def test_no_text_of_data_becomes_markup() -> None:
    rows = [(EVIL, "positive", ROWS[0][2])]
    page = web_page(
        title=EVIL,
        summary=[EVIL],
        tables=[Table(EVIL, [EVIL], [[EVIL]])],
        legend=[EVIL],
        footnotes=[EVIL],
        curves=[ChartGroup(EVIL, EVIL, [chart(EVIL)])],
        settings={EVIL: EVIL},
        versions={EVIL: EVIL},
        command=EVIL,
        about_samples=[EVIL],
        samples=samples_of(rows),
    )
    plain, evil = Elements(render(web_page(samples=samples_of(rows)))), Elements(render(page))
    assert [tag for tag, _ in evil.elements].count("script") == [tag for tag, _ in plain.elements].count("script")
    assert not any("onerror" in attributes for _, attributes in evil.elements)


def test_control_characters_are_shown_as_escapes() -> None:
    text = render(web_page(summary=["a\u202eb\x1b[31m", "half \udc80"]))
    assert "<p>a\\u202eb\\x1b[31m</p>" in text
    assert "<p>half \\udc80</p>" in text


def test_a_page_without_samples_says_so() -> None:
    text = render(web_page(samples=None, about_samples=["These runs have no samples."]))
    assert "These runs have no samples." in text
    assert 'id="browser"' not in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_short_and_end_no_element(name: str) -> None:
    source = files(PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")
    assert len(source.splitlines()) < 300
    assert max(map(len, source.splitlines())) <= 120
    assert "</script" not in source
    assert "innerHTML" not in source


def test_libraries_are_those_that_are_recorded() -> None:
    assets = files(PACKAGE).joinpath("assets")
    (library,) = json.loads(assets.joinpath("vendored.json").read_text(encoding="utf-8"))
    for name, recorded in library["files"].items():
        assert hashlib.sha256(assets.joinpath(name).read_bytes()).hexdigest() == recorded["sha256"], name
    assert f"(v{library['version']})" in assets.joinpath("uplot", "uPlot.iife.min.js").read_text(encoding="utf-8")
    assert "MIT" in assets.joinpath("uplot", "LICENSE").read_text(encoding="utf-8")


def test_the_licence_of_the_library_is_in_the_page() -> None:
    assert "Permission is hereby granted, free of charge" in render(web_page())
