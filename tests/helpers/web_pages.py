"""Pages with made-up results, for tests of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepthink_cli.plugins.pages.page import Chart, ChartGroup, Series, Table, WebPage
from deepthink_cli.plugins.pages.samples import Group, Samples

LABELS = ("negative", "positive")
# Text, true label, and the score of `positive` less that of `negative` at T = 1, 2 and 5.
ROWS = (
    ("a warm and funny film", "positive", (-1.0, 0.5, 2.0)),
    ("a dull and lifeless mess", "negative", (-2.0, -1.0, 1.0)),
    ("tender, wise and moving", "positive", (1.0, 1.0, 1.0)),
    ("far too long", "negative", (0.5, 0.5, 0.5)),
)
EVIL = "</script><script>document.title = 'evil'</script><img src=x onerror=\"document.title = 'evil'\">"


def samples_of(rows: Sequence[tuple[str, str, Sequence[float]]] = ROWS, copies: int = 1) -> Samples:
    """Two tasks with the same rows, at T = 1, 2 and 5."""
    samples = Samples()
    for task in ("sst2", "mr"):
        samples.start(Group(task, "0", "", "test", (1, 2, 5)))
        for number in range(copies * len(rows)):
            text, gold, leads = rows[number % len(rows)]
            scores = [[-1.0, lead - 1.0] for lead in leads]
            labels = [LABELS[lead > 0] for lead in leads]
            samples.add(text, f"{task}/test.jsonl:{number + 1}", gold, LABELS, labels, scores)
    return samples


def chart(label: str = "eta 0.1") -> Chart:
    """Two lines over T = 1, 2 and 5, one with a band."""
    notes = ["60.0", "65.5", "70.0"]
    values, low, high = [60.0, 65.5, 70.0], [58.0, 60.0, 61.0], [62.0, 68.0, 79.0]
    line = Series(label, 0, values, low, high, notes)
    return Chart(
        "sst2", "accuracy (%)", [1, 2, 5], [line, Series("dev", 1, values, [], [], notes, True)], 55.0, "always"
    )


def web_page(**values: Any) -> WebPage:
    """A page with a table, a chart and samples."""
    content: dict[str, Any] = {
        "title": "A report",
        "summary": ["runs/tiny"],
        "tables": [Table("eta 0.1", ["task", "accuracy"], [["sst2", "9.5 ± 1.0"], ["mr", "70.1 ± 2.0"], ["trec", ""]])],
        "legend": ["Accuracy in percent."],
        "footnotes": ["one footnote"],
        "curves": [ChartGroup("Accuracy", "Accuracy by T.", [chart()])],
        "settings": {"model": "tiny"},
        "versions": {"Python": "3"},
        "samples": samples_of(),
    }
    return WebPage(**content | values)
