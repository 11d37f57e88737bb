"""Measure an HTML report with many samples: its size, the time to build it, and the time to load and filter it.

    python benchmarks/html_report.py --rows 100000

The browser is Chromium, driven by playwright; without either, only size and building are measured.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from deepthink_cli.artifact.metadata import versions
from deepthink_cli.plugins.pages.page import WebPage, render
from deepthink_cli.plugins.pages.samples import Group, Samples

LABELS = ("world", "sports", "business", "technology")
WORDS = [f"word{number}" for number in range(5000)]
CHANGES = {
    "filter by a word": ("#filter-search", "word77"),
    "clear the search": ("#filter-search", ""),
    "filter by what thinking fixed": ("#filter-change", "fixed"),
    "clear the change": ("#filter-change", ""),
    "filter by a true label": ("#filter-gold", "2"),
    "clear the label": ("#filter-gold", "-1"),
    "compare other iterations": ("#filter-from", "3"),
}
# Milliseconds from a change of a filter, or a click on a heading, until the table has been painted.
PAINTED = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
CHANGE = f"""async ([field, value]) => {{
  const started = performance.now(), element = document.querySelector(field);
  element.value = value;
  element.dispatchEvent(new Event("input", {{bubbles: true}}));
  {PAINTED}
  return performance.now() - started;
}}"""
SORT = f"""async (heading) => {{
  const started = performance.now();
  [...document.querySelectorAll(".grid-head button")].find((button) => button.textContent === heading).click();
  {PAINTED}
  return performance.now() - started;
}}"""


def made_up_samples(rows: int, iterations: int, words: int) -> Samples:
    """Rows of ten tasks and seeds with random texts and scores that drift with T."""
    draw, samples = random.Random(0), Samples()
    for number in range(10):
        samples.start(Group(f"task{number}", str(number), "", "test", tuple(range(1, iterations + 1))))
        for row in range(rows // 10):
            gold = draw.randrange(len(LABELS))
            start = [draw.gauss(-3, 1) for _ in LABELS]
            scores = [
                [value + 0.1 * t * (n == gold) + draw.gauss(0, 0.2) for n, value in enumerate(start)]
                for t in range(iterations)
            ]
            labels = [LABELS[max(range(len(LABELS)), key=values.__getitem__)] for values in scores]
            text = " ".join(draw.choices(WORDS, k=words))
            samples.add(text, f"data/task{number}/test.jsonl:{row + 1}", LABELS[gold], LABELS, labels, scores)
    return samples


def page_of(samples: Samples) -> WebPage:
    """A page that has nothing but samples."""
    return WebPage(
        title="Many samples",
        summary=[f"{len(samples):,} rows"],
        tables=[],
        legend=[],
        footnotes=[],
        curves=[],
        settings={},
        versions=versions(),
        samples=samples,
    )


def in_browser(file: Path) -> dict[str, float]:
    """Seconds to load the page in Chromium, and to apply each filter; the median of five.

    A filter's time ends when the table has been painted.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page()
        started = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        seconds = {"load": time.perf_counter() - started}
        for name, (field, value) in CHANGES.items():
            seconds[name] = statistics.median(page.evaluate(CHANGE, [field, value]) for _ in range(5)) / 1000
        for heading in ("Input", "P(true), T = 10"):
            seconds[f"sort by {heading}"] = page.evaluate(SORT, heading) / 1000
        browser.close()
    return seconds


def main() -> None:
    """Print the measurements, one a line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--iterations", type=int, default=10)
    arguments.add_argument("--words", type=int, default=20, help="words of a text")
    arguments.add_argument("--keep", type=Path, help="keep the page in this file")
    values = arguments.parse_args()
    samples = made_up_samples(values.rows, values.iterations, values.words)
    started = time.perf_counter()
    text = render(page_of(samples))
    print(f"{values.rows:,} rows, {values.iterations} iterations, {len(LABELS)} candidates, {values.words} words")
    print(f"build: {time.perf_counter() - started:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        file = (values.keep or Path(folder) / "page.html").absolute()
        file.write_text(text, encoding="utf-8")
        print(f"size: {file.stat().st_size / 1e6:.1f} MB")
        if shutil.which("chromium") is None or find_spec("playwright") is None:
            print("no browser: install Chromium, and the extra browser")
            return
        for name, seconds in in_browser(file).items():
            print(f"{name}: {seconds:.3f} s")


if __name__ == "__main__":
    main()
