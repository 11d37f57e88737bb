"""The inputs of a run's rows as instance records of Every Eval Ever, from what `deepthink run --samples` wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from deepthink_cli.io.text import json_line
from deepthink_cli.report.html.run_samples import folder_of
from deepthink_cli.runs.results import Result
from deepthink_cli.runs.samples import find_samples, read_samples
from deepthink_cli.runs.texts import read_texts


def instances(results: Sequence[Result], evaluation_id: str, model_id: str, version: str) -> Iterator[dict[str, Any]]:
    """One record for each input of each row that has samples; `version` is the schema's.

    Raises InputError for a file of samples that is damaged or does not belong to its row.
    """
    texts: dict[str, str] | None = None
    for result in results:
        path = find_samples(folder_of(result), result)
        if path is None:
            continue
        columns = read_samples(path, result)
        if texts is None:
            texts = read_texts(folder_of(result), result.setting.rows_sha256)
        shared = {
            "schema_version": version,
            "evaluation_id": evaluation_id,
            "model_id": model_id,
            "evaluation_name": result.setting.task,
            "evaluation_result_id": f"{result.key}/accuracy",
        }
        inputs = zip(*(columns[name] for name in ("where", "gold", "label", "candidates", "scores")), strict=True)
        for right, (where, gold, label, candidates, scores) in zip(result.was_right(), inputs, strict=True):
            scored = dict(zip(candidates or (), scores or (), strict=True))
            sample = f"{result.setting.split}:{where.rpartition(':')[2]}"
            yield {**shared, "sample_id": sample, **_instance(texts.get(where, ""), gold, label or "", scored, right)}


def _instance(text: str, gold: str, label: str, scores: dict[str, float], right: bool) -> dict[str, Any]:
    """What is particular to an input: its text and answer, and whether it is right; scores in nats."""
    return {
        "sample_hash": hashlib.sha256((text + gold).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": text, "reference": [gold], "choices": list(scores) or None},
        "output": {"raw": [label]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": label,
                "extraction_method": "highest_score" if scores else "pattern",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(right), "is_correct": right},
        "metadata": {"scores": json_line(scores).strip()},
    }
