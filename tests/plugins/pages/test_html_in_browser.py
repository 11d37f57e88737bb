"""The HTML report in a real browser: sorting, filters, a click into a row, and nothing that leaves the page.

Skipped where there is no playwright or no Chromium; Debian's package is `chromium`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.web_pages import EVIL, ROWS, chart, samples_of, web_page

from deepthink_cli.plugins.pages.page import ChartGroup, Table, WebPage, render

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with playwright.sync_playwright() as driver:
        # As root, as in a container, Chromium has no sandbox of its own.
        flags = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Opens a page; at the end, fails for a message on the console, an error, or a request beside the file itself."""
    problems: list[str] = []
    contexts = []

    def open_page(page: WebPage, **context: Any) -> Any:
        file = tmp_path / "page.html"
        file.write_text(render(page), encoding="utf-8")
        contexts.append(browser.new_context(**context))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: problems.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: problems.append(f"error: {error}"))
        tab.on("request", lambda request: problems.append(f"request: {request.url}"))
        tab.goto(file.as_uri())
        problems.remove(f"request: {file.as_uri()}")
        if context.get("java_script_enabled", True) and page.samples is not None:
            tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_page
    for each in contexts:
        each.close()
    assert not problems


def column(tab: Any, number: int) -> list[str]:
    """The cells of a column of the first table."""
    return [cell.strip() for cell in tab.locator(f"#tables tbody td:nth-child({number})").all_inner_texts()]


def inputs(tab: Any) -> list[str]:
    """The inputs in the browser of samples."""
    texts: list[str] = tab.locator(".grid-row > :first-child").all_inner_texts()
    return texts


def test_a_table_sorts_by_numbers_and_back(opened: Opened) -> None:
    tab = opened(web_page())
    head = tab.get_by_role("button", name="accuracy")
    head.click()
    assert column(tab, 1) == ["sst2", "mr", "trec"]
    head.click()
    assert column(tab, 1) == ["mr", "sst2", "trec"]
    assert tab.locator("#tables th").nth(1).get_attribute("aria-sort") == "descending"
    head.click()
    assert column(tab, 1) == ["sst2", "mr", "trec"]


def test_samples_are_filtered_by_task_label_change_and_text(opened: Opened) -> None:
    tab = opened(web_page())
    assert len(inputs(tab)) == 8
    tab.select_option("#filter-task", "mr")
    assert len(inputs(tab)) == 4
    tab.select_option("#filter-change", "fixed")
    assert inputs(tab) == ["a warm and funny film"]
    tab.select_option("#filter-change", "broken")
    assert inputs(tab) == ["a dull and lifeless mess"]
    tab.get_by_role("button", name="Reset").click()
    playwright.expect(tab.locator(".grid-row")).to_have_count(8)  # a form is reset after its event
    tab.select_option("#filter-gold", label="positive")
    assert set(inputs(tab)) == {"a warm and funny film", "tender, wise and moving"}
    tab.fill("#filter-search", "TENDER")
    assert set(inputs(tab)) == {"tender, wise and moving"}
    tab.fill("#filter-search", "sst2/test.jsonl:1")
    assert inputs(tab) == ["a warm and funny film"]


def test_changes_are_those_between_any_two_iterations(opened: Opened) -> None:
    tab = opened(web_page())
    tab.select_option("#filter-to", "2")
    tab.select_option("#filter-change", "broken")
    assert inputs(tab) == []
    assert "8 rows. From T = 1 to T = 2: 0 fixed, 0 broken" in tab.inner_text("#counts")
    tab.select_option("#filter-from", "2")
    tab.select_option("#filter-to", "5")
    assert inputs(tab) == ["a dull and lifeless mess"] * 2


def test_samples_sort_by_the_probability_of_the_true_label(opened: Opened) -> None:
    tab = opened(web_page())
    tab.get_by_role("button", name="P(true), T = 5").click()
    assert inputs(tab)[0] == "a dull and lifeless mess"
    tab.get_by_role("button", name="P(true), T = 5").click()
    assert inputs(tab)[0] == "a warm and funny film"


def test_a_click_opens_a_row_with_its_scores_over_t(opened: Opened) -> None:
    tab = opened(web_page())
    tab.locator(".grid-row").first.click()
    detail = tab.locator("#detail")
    assert "True label: positive" in detail.inner_text()
    assert "a warm and funny film" in detail.inner_text()
    cells = detail.locator("tr", has_text="positive (true)").locator("td").all_inner_texts()
    assert cells == ["-2.000 26.9 %", "-0.500 62.2 %", "1.000 88.1 %"]
    assert detail.locator("canvas").count() == 1
    tab.get_by_role("button", name="Close").click()
    assert not detail.is_visible()


def test_samples_are_read_with_the_keyboard_alone(opened: Opened) -> None:
    tab = opened(web_page())
    tab.get_by_role("button", name="Change").focus()
    tab.keyboard.press("Shift+Tab")
    tab.locator(".grid-box").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert "a dull and lifeless mess" in tab.inner_text("#detail")
    tab.keyboard.press("ArrowDown")
    assert "tender, wise and moving" in tab.inner_text("#detail")
    active = tab.locator(".grid-box").get_attribute("aria-activedescendant")
    assert tab.locator(f"#{active}").get_attribute("aria-selected") == "true"
    tab.keyboard.press("Escape")
    assert not tab.locator("#detail").is_visible()


def test_a_curve_shows_the_values_under_the_pointer_and_by_keys(opened: Opened) -> None:
    tab = opened(web_page())
    values = tab.locator(".u-legend .u-value")
    assert values.all_inner_texts() == ["5", "70.0", "70.0"]
    box = tab.locator(".u-over").first.bounding_box()
    tab.mouse.move(box["x"] + 0.28 * box["width"], box["y"] + 20)
    assert values.all_inner_texts()[:2] == ["2", "65.5"]
    tab.mouse.move(0, 0)
    tab.locator(".plot").first.focus()
    tab.keyboard.press("ArrowLeft")
    assert values.all_inner_texts()[0] == "2"


def test_many_rows_are_not_in_the_document_at_once(opened: Opened) -> None:
    tab = opened(web_page(samples=samples_of(copies=2500)))
    assert "20,000 of 20,000 rows" in tab.inner_text("#counts")
    assert len(inputs(tab)) < 60
    tab.locator(".grid-box").focus()
    tab.keyboard.press("End")
    tab.wait_for_function("document.getElementById('row-19999') !== null")
    assert len(inputs(tab)) < 60


def test_texts_of_samples_run_no_script(opened: Opened) -> None:
    labels = [(EVIL, "positive", ROWS[0][2])]
    page = web_page(
        samples=samples_of(labels), tables=[Table(EVIL, [EVIL], [[EVIL]])], curves=[ChartGroup("", "", [chart(EVIL)])]
    )
    tab = opened(page)
    tab.locator(".grid-row").first.click()
    assert EVIL in tab.inner_text("#detail")
    assert tab.title() == "A report: runs/tiny"
    assert tab.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(opened: Opened, scheme: str) -> None:
    tab = opened(web_page(), color_scheme=scheme)
    ink, page = (tab.evaluate(LIGHTNESS, name) for name in ("color", "backgroundColor"))
    assert (max(ink, page) + 0.05) / (min(ink, page) + 0.05) > 7  # contrast as WCAG defines it


def test_a_narrow_page_does_not_scroll_sideways(opened: Opened) -> None:
    tab = opened(web_page(), viewport={"width": 380, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 380


LIGHTNESS = """(name) => {
  const colour = getComputedStyle(document.documentElement)[name];
  const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255);
  const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}"""
