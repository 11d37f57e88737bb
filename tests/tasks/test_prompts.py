"""Prompts, to the byte: golden files that were compared with the paper's appendix A and the official code's strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepthink_cli.data.source import Row
from deepthink_cli.tasks.catalogue import built_in
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import query_of

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = {
    "mmlu": "mmlu/astronomy",
    "mmlu-letters": "mmlu-letters/astronomy",
    "bbh": "bbh/snarks",
    "bbh-letters": "bbh-letters/snarks",
    "bbh-fixed": "bbh/formal_fallacies",
    "bbh-plain": "bbh/boolean_expressions",
    "bbh-free": "bbh-free/word_sorting",
    "bbh-letters-fixed": "bbh-letters/navigate",
}
NAMES = {**{name: name for name in built_in() if "/" not in name}, **FAMILIES}


def prompts(task: Task) -> bytes:
    """What the model reads for the task's example row: as two demonstrations, as a query, and its candidates."""
    query = query_of(task, Row(task.example, "example"), any_number=True)
    assert query.gold is not None
    text = task.prompt.demonstrations([(query.text, query.gold)] * 2)
    parts = [text, task.prompt.query(query.text), "\n".join(query.candidates)]
    return "=== demonstrations\n{}=== query\n{}\n=== candidates\n{}\n".format(*parts).encode()


@pytest.mark.parametrize("golden", sorted(NAMES))
def test_a_prompt_is_the_golden_one_to_the_byte(golden: str) -> None:
    assert prompts(built_in()[NAMES[golden]]) == (GOLDEN / f"{golden}.txt").read_bytes()


def test_every_golden_file_belongs_to_a_task() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(NAMES)


@pytest.mark.parametrize(
    ("task", "text", "label", "prompt"),
    [
        ("sst2", {"sentence": " good ", "label": 1}, "positive", "Review: good\nSentiment: positive\n\n"),
        ("sst5", {"text": "good", "label": 0}, "terrible", "Review: good\nSentiment: terrible\n\n"),
        ("trec", {"text": "Who ?", "coarse_label": 3}, "Person", "Question: Who ?\nType: Person\n\n"),
        ("mr", {"text": "bad", "label": 0}, "negative", "Review: bad\nSentiment: negative\n\n"),
        ("agnews", {"text": "News", "label": 3}, "Technology", "Article: News\nCategory: Technology\n\n"),
    ],
)
def test_the_papers_table_of_templates(task: str, text: dict[str, object], label: str, prompt: str) -> None:
    found = built_in()[task]
    query = query_of(found, Row(text, "row"))
    assert query.gold == label
    assert found.prompt.demonstrations([(query.text, label)]) == prompt
