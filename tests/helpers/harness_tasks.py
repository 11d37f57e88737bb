"""Tasks of lm-evaluation-harness over a few made-up rows in local files: one for each shape that tasks have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import write_rows

from helpers.tiny import BAD, GOOD

ACCURACY = {"metric": "acc", "aggregation": "mean", "higher_is_better": True}
MUTUAL = {"metric": "acc_mutual_info", "aggregation": "mean", "higher_is_better": True}
MATCH = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
SHOTS, ROWS = 3, 4
WRITTEN = {"until": ["\n"], "max_gen_toks": 6, "do_sample": False}
ALONE: dict[str, Any] = {"doc_to_choice": None, "num_fewshot": 0}

# What each shape changes of a task of reviews with two fixed words, whose first rows are the demonstrations.
SHAPES: dict[str, dict[str, Any]] = {
    "fixed-words": {},
    "own-candidates": {"doc_to_choice": "options", "doc_to_target": "label"},
    "one-token": {"doc_to_choice": ["A", "B"], "doc_to_text": "{{text}}\nA. bad\nB. good\nAnswer:"},
    "several-inputs": {
        "doc_to_text": "{{label}}",
        "doc_to_choice": "{{['It was ' + text, 'Never ' + text]}}",
        "doc_to_target": "and then it ended.",
    },
    "mutual-information": {"metric_list": [MUTUAL]},
    "last-word": {**ALONE, "output_type": "loglikelihood", "doc_to_text": "{{text}} is", "doc_to_target": " {{word}}"},
    "no-demonstrations": {"num_fewshot": 0},
    "description": {"description": "Say what the reviewer felt.\n\n"},
    "description-alone": {"description": "Say what the reviewer felt.\n\n", "num_fewshot": 0},
    "delimiters": {"fewshot_delimiter": "\n###\n", "target_delimiter": "\n"},
    "space-before-the-answer": {"doc_to_text": "{{text}} ", "target_delimiter": ""},
    "beginning-of-the-answer": {"gen_prefix": "I say"},
    "blank-line-in-the-query": {"doc_to_text": "Review:\n\n{{text}}\n\nSentiment:"},
    "drawn-for-each-row": {"fewshot_config": None},
    "from-the-tested-rows": {"fewshot_split": "test"},
    "several-right-answers": {"doc_to_target": "{{[label, 1]}}", "num_fewshot": 0},
    "written": {"output_type": "generate_until", **ALONE, "generation_kwargs": WRITTEN, "metric_list": [MATCH]},
    "written-after-demonstrations": {
        "output_type": "generate_until",
        "doc_to_choice": None,
        "doc_to_target": "{{word}}",
        "generation_kwargs": WRITTEN,
        "metric_list": [MATCH],
    },
}


def rows(kind: str, count: int) -> list[dict[str, Any]]:
    """Rows of reviews, good and bad in turn."""
    words = [(GOOD if number % 2 else BAD)[number // 2 % 8] for number in range(count)]
    return [
        {
            "text": f"a {word} {kind} {number}",
            "label": number % 2,
            "word": word,
            "options": [f"a {kind} number {number}", f"the {word} one", "nothing"],
        }
        for number, word in enumerate(words)
    ]


def write_data(folder: Path) -> dict[str, str]:
    """The files of the rows, by split."""
    for split, count in (("train", 12), ("test", ROWS)):
        write_rows(folder / f"{split}.jsonl", rows(split, count))
    return {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}


def harness_task(folder: Path, shape: str, name: str | None = None, **changes: Any) -> dict[str, Any]:
    """The configuration of a task of this shape; `folder` holds the rows and the cache of the data."""
    files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    return {
        "task": name or shape,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
        "training_split": "train",
        "test_split": "test",
        "fewshot_split": "train",
        "output_type": "multiple_choice",
        "doc_to_text": "Review: {{text}}\nSentiment:",
        "doc_to_target": "label",
        "doc_to_choice": ["negative", "positive"],
        "num_fewshot": SHOTS,
        "fewshot_config": {"sampler": "first_n"},
        "metric_list": [ACCURACY],
        **SHAPES[shape],
        **changes,
    }
