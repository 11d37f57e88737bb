"""A tiny task of made-up reviews, with its rows in a data directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from conftest import write_rows

from deepthink_cli.experiments.folder import LOCK

GOOD = ["warm", "funny", "tender", "wise", "bright", "moving", "lively", "kind"]
BAD = ["dull", "lifeless", "long", "cold", "loud", "flat", "stale", "mean"]
MINE: dict[str, Any] = {  # a task file that says no more than it must
    "name": "mine",
    "title": "Mine",
    "template": "Text: {text}\nKind: {kind}",
    "fields": {"text": "body"},
    "labels": ["good", "bad"],
    "answer": "kind",
    "shots": 2,
    "demonstrations": "train",
    "folder": "mine",
    "protocols": {"paper": {"split": "test"}},
    "example": {"body": "a", "kind": "good"},
    "source": "here",
    "licence": "none",
}


def reviews(kind: str, count: int, start: int = 0) -> list[dict[str, object]]:
    """Rows of the hub's shape: the first half positive, the second negative, as MR is sorted."""
    half = count // 2
    words = [(GOOD[n % 8], 1) for n in range(half)] + [(BAD[n % 8], 0) for n in range(count - half)]
    return [{"body": f"a {word} {kind} {start + n}", "kind": label} for n, (word, label) in enumerate(words)]


def run_words(folder: Path, model: Path, *more: str, **changes: Any) -> list[str]:
    """The words of `deepthink run` on the tiny task, into `folder/out`."""
    task, data = tiny_task(folder, **{"protocols": {"paper": {"split": "test"}}, **changes})
    fixed = f"run --task {task} --data-dir {data} -m {model} -o {folder / 'out'}"
    return [*fixed.split(), *more]


def run_files(folder: Path) -> dict[str, bytes]:
    """Every file of a run by its name, but for the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def tiny_task(folder: Path, test: int = 12, train: int = 20, **changes: Any) -> tuple[Path, Path]:
    """Write a task file and its rows; returns (task file, data directory)."""
    data = folder / "data"
    (data / "tiny").mkdir(parents=True)
    write_rows(data / "tiny" / "train.jsonl", reviews("play", train))
    write_rows(data / "tiny" / "test.jsonl", reviews("film", test))
    content = {
        "name": "tiny",
        "title": "Tiny",
        "template": "Review: {text}\nSentiment: {kind}",
        "fields": {"text": "body"},
        "labels": ["negative", "positive"],
        "answer": "kind",
        "shots": 4,
        "demonstrations": "train",
        "folder": "tiny",
        "protocols": {"paper": {"split": "test"}, "official": {"split": "test", "sample": 6}},
        "groups": ["small"],
        "example": {"body": "a warm film", "kind": 1},
        "source": "made up",
        "licence": "none",
        **changes,
    }
    path = folder / "tiny.yaml"
    path.write_text(
        yaml.safe_dump({key: value for key, value in content.items() if value is not None}), encoding="utf-8"
    )
    return path, data
