"""Results in the shared format Every Eval Ever: aggregates, and one record for each input."""

from __future__ import annotations

import hashlib
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.experiments.results import Result
from deepthink_cli.experiments.samples import find_samples, read_samples, read_texts
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.text import json_line
from deepthink_cli.plugins.pages.of_runs import folder_of
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.page import Report
from deepthink_cli.tasks.catalogue import built_in, digest

VERSION = "0.3.0"  # of the schema
UNSPECIFIED = "unspecified"  # the developer of a model without an owner's name
_METRICS = {
    "accuracy": "Share of the inputs whose best candidate is the true one.",
    "macro_f1": "Mean F1 over the labels that occur, true or predicted.",
}


def write_report(report: Report, folder: Path) -> list[str]:
    """Write the records of a report, and tell their number; raises as `write_records` does."""
    written = write_records(report.jobs, folder, int(time.time()), report.iteration)
    return [f"wrote {len(written)} records below {folder / 'data'}"]


def write_records(jobs: Sequence[JobResults], folder: Path, created: int, iteration: int | None = None) -> list[Path]:
    """Write an aggregate for each job into a folder, and the records of its inputs if it has samples.

    `iteration` restricts them to one T; `created` is in seconds since 1970. Returns the aggregates' paths, which are
    `data/TASK/DEVELOPER/MODEL/UUID.json`. Raises InputError if no row is left or samples are damaged, and
    DeepThinkError if a write fails.
    """
    of_jobs = [[row for t, row in sorted(job.test.items()) if iteration in (None, t)] for job in jobs]
    if not any(of_jobs):
        raise InputError.of("iteration", iteration, "no row has it; name one that the run scored, or omit it")
    return [_write(results, folder, created) for results in of_jobs if results]


def _write(results: Sequence[Result], folder: Path, created: int) -> Path:
    setting, (developer, name) = results[0].setting, _owned(results[0].setting.model)
    keys = hashlib.sha256("".join(result.key for result in results).encode()).digest()
    parts = (re.sub(r"[^\w.-]", "_", part).lstrip(".") or UNSPECIFIED for part in (setting.task, developer, name))
    path = PurePosixPath("data", *parts, f"{uuid.UUID(bytes=keys[:16], version=4)}.json")
    model_id = name if developer == UNSPECIFIED else f"{developer}/{name}"
    values = {
        "schema_version": VERSION,
        "evaluation_id": f"{setting.task}/{model_id}/{path.stem}/{created}",
        "retrieved_timestamp": str(created),
        "source_metadata": {
            "source_name": "deepthink run",
            "source_type": "evaluation_run",
            "source_organization_name": UNSPECIFIED,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "deepthink", "version": version("deepthink-cli")},
        "model_info": {
            "name": name,
            "id": model_id,
            "developer": developer,
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown" if developer == UNSPECIFIED else "open_weights",
                "dtype": setting.dtype,
                "quantize": setting.quantize or "none",
                "model_sha256": setting.model_sha256,
            },
        },
        "evaluation_results": [
            _result(result, metric, value)
            for result in results
            for metric, value in (("accuracy", result.accuracy), ("macro_f1", result.macro_f1))
            if value is not None
        ],
    }
    try:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeepThinkError.of("output", (folder / path).parent, f"cannot be made: {error.strerror}") from error
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    if any(find_samples(folder_of(result), result) for result in results):
        values["detailed_evaluation_results"] = _write_instances(results, values, folder, samples)
    else:
        (folder / samples).unlink(missing_ok=True)
    with writing(folder / path) as file:
        file.write(json_line(values))
    return folder / path


def _owned(model: str) -> tuple[str, str]:
    """The developer and the name of a model; of a local folder only the name is given."""
    developer, _, name = model.replace("\\", "/").rpartition("/")
    is_hub_id = developer and "/" not in developer and not Path(model).is_absolute()
    return (developer if is_hub_id else UNSPECIFIED), name


def _write_instances(
    results: Sequence[Result], aggregate: Mapping[str, Any], folder: Path, path: PurePosixPath
) -> dict[str, Any]:
    """Write one record for each input of each row that has samples; returns what the aggregate says of the file."""
    rows, content = 0, hashlib.sha256()
    with writing(folder / path) as file:
        for line in _instances(results, aggregate):
            text = json_line(line)
            rows += 1
            content.update(text.encode())
            file.write(text)
    return {
        "format": "jsonl",
        "file_path": str(path),
        "hash_algorithm": "sha256",
        "checksum": content.hexdigest(),
        "total_rows": rows,
    }


def _instances(results: Sequence[Result], aggregate: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of inputs; raises InputError for a file of samples that is damaged or does not belong to its row."""
    texts: dict[str, str] | None = None
    for result in results:
        path = find_samples(folder_of(result), result)
        if path is None:
            continue
        columns = read_samples(path, result)
        if texts is None:
            texts = read_texts(folder_of(result), result.setting.rows_sha256)
        shared = {
            "schema_version": VERSION,
            "evaluation_id": aggregate["evaluation_id"],
            "model_id": aggregate["model_info"]["id"],
            "evaluation_name": result.setting.task,
            "evaluation_result_id": f"{result.key}/accuracy",
        }
        inputs = zip(*(columns[name] for name in ("where", "gold", "label", "candidates", "scores")), strict=True)
        for right, (where, gold, label, candidates, scores) in zip(result.was_right(), inputs, strict=True):
            scored, text = dict(zip(candidates or (), scores or (), strict=True)), texts.get(where, "")
            yield {
                **shared,
                "sample_id": f"{result.setting.split}:{where.rpartition(':')[2]}",
                "sample_hash": hashlib.sha256((text + gold).encode()).hexdigest(),
                "interaction_type": "single_turn",
                "input": {"raw": text, "reference": [gold], "choices": list(scored) or None},
                "output": {"raw": [label or ""]},
                "answer_attribution": [
                    {
                        "turn_idx": 0,
                        "source": "output.raw",
                        "extracted_value": label or "",
                        "extraction_method": "highest_score" if scored else "pattern",
                        "is_terminal": True,
                    }
                ],
                "evaluation": {"score": float(right), "is_correct": right},
                "metadata": {"scores": json_line(scored).strip()},  # in nats
            }


def _result(result: Result, metric: str, value: float) -> dict[str, Any]:
    """One metric of one row."""
    unit = {"metric_unit": "proportion", "score_type": "continuous", "min_score": 0, "max_score": 1}
    config = {"metric_id": metric, "metric_name": metric, "metric_kind": "f1" if metric == "macro_f1" else metric}
    uncertainty: dict[str, Any] = {"num_samples": result.n}
    if metric == "accuracy":
        low, high = wilson(value, result.n)
        error = math.sqrt(value * (1 - value) / result.n)
        uncertainty["standard_error"] = {"value": error, "method": "analytic"}
        interval = {"lower": low, "upper": high, "confidence_level": 0.95, "method": "wilson"}
        uncertainty["confidence_interval"] = interval
    return {
        "evaluation_result_id": f"{result.key}/{metric}",
        "evaluation_name": result.setting.task,
        "source_data": _source(result),
        "metric_config": {"evaluation_description": _METRICS[metric], **config, "lower_is_better": False, **unit},
        "score_details": {"score": value, "uncertainty": uncertainty},
        "generation_config": {"generation_args": {}, "additional_details": _details(result)},
    }


def _source(result: Result) -> dict[str, Any]:
    """The data set of a row: on the hub for a task of the catalogue, otherwise no more than its name."""
    setting = result.setting
    task = built_in().get(setting.task)
    if task is None or task.hub is None or digest(task) != setting.task_sha256:
        return {"dataset_name": setting.task, "source_type": "other"}
    return {
        "dataset_name": setting.task,
        "source_type": "hf_dataset",
        "hf_repo": task.hub.path,
        "hf_split": setting.split,
        "samples_number": result.n,
        "additional_details": {"hf_revision": task.hub.revision, "protocol": setting.protocol},
    }


def _details(result: Result) -> dict[str, str]:
    """Everything that identifies the row: the method, the demonstrations and the digests, as texts."""
    values = {name: value for name, value in asdict(result.setting).items() if value is not None and name != "model"}
    values |= {"shots_used": result.shots_used, "demonstration_tokens": result.length}
    return {name: value if isinstance(value, str) else json_line(value).strip() for name, value in values.items()}
