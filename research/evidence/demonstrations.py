"""Demonstration files for two controls: the drawn demonstrations repeated, or with their label words exchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepthink_cli.data.examples import Example
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import source_of
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

FLIPPED = {"negative": "positive", "positive": "negative"}


def drawn_examples(task: str, seed: int, data_dir: Path | None) -> tuple[Example, ...]:
    """The demonstrations that `deepthink run --task TASK` draws with this seed, in reading order."""
    definition = find_task(task)
    evaluated = evaluation_set(definition, "official", source_of(data_dir, offline=False))
    return draw_demonstrations(definition, evaluated, seed=seed).demonstrations.examples


def repeated(examples: Sequence[Example], times: int) -> list[Example]:
    """The whole list of demonstrations, several times in the same order."""
    return [*examples] * times


def relabelled(examples: Sequence[Example], words: Mapping[str, str]) -> list[Example]:
    """The same texts, each with the word that replaces its label."""
    return [Example(example.text, words[example.label]) for example in examples]


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write demonstrations of one text field as JSON Lines, for `run --demos`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps({"text": example.text, "label": example.label}) for example in examples)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
