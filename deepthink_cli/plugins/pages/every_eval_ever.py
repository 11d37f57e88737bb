"""Results in the shared format Every Eval Ever: aggregates, and one record for each input."""

from __future__ import annotations

import hashlib
import math
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.experiments.samples import find_samples, read_samples, read_texts
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.text import json_line
from deepthink_cli.plugins.pages.of_runs import folder_of
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.registry import Reported
from deepthink_cli.tasks.catalogue import built_in, digest


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


VERSION = "0.3.0"  # of the schema
UNSPECIFIED = "unspecified"  # the developer of a model without an owner's name
_METRICS = {
    "accuracy": "Share of the inputs whose best candidate is the true one.",
    "macro_f1": "Mean F1 over the labels that occur, true or predicted.",
}


@dataclass(frozen=True)
class Record:
    """One aggregate and where it belongs: `data/TASK/DEVELOPER/MODEL/UUID.json` below the written folder."""

    results: Sequence[Result]
    created: int  # seconds since 1970

    @property
    def setting(self) -> Setting:
        """The setting of the first row."""
        return self.results[0].setting

    @property
    def model(self) -> tuple[str, str]:
        """The developer and the name of the model; of a local folder only the name is given."""
        plain = self.setting.model
        developer, _, name = plain.replace("\\", "/").rpartition("/")
        is_hub_id = developer and "/" not in developer and not Path(plain).is_absolute()
        return (developer if is_hub_id else UNSPECIFIED), name

    @property
    def model_id(self) -> str:
        """The model's hub id, or the name of its folder."""
        developer, name = self.model
        return name if developer == UNSPECIFIED else f"{developer}/{name}"

    @property
    def path(self) -> PurePosixPath:
        """The path of the aggregate."""
        keys = hashlib.sha256("".join(result.key for result in self.results).encode()).digest()
        name = uuid.UUID(bytes=keys[:16], version=4)
        return PurePosixPath("data", *(_component(part) for part in (self.setting.task, *self.model)), f"{name}.json")

    @property
    def samples_path(self) -> PurePosixPath:
        """The path of the records of its inputs."""
        return self.path.with_name(f"{self.path.stem}_samples.jsonl")

    @property
    def id(self) -> str:
        """The evaluation's identifier, which its instances name."""
        return f"{self.setting.task}/{self.model_id}/{self.path.stem}/{self.created}"


def write_report(reported: Reported, folder: Path) -> list[str]:
    """Write the records of a report, and tell their number; raises as `write_records` does."""
    written = write_records(reported.jobs, folder, int(time.time()), reported.iteration)
    return [f"wrote {len(written)} records below {folder / 'data'}"]


def write_records(jobs: Sequence[JobResults], folder: Path, created: int, iteration: int | None = None) -> list[Path]:
    """Write an aggregate for each job into a folder, and the records of its inputs if it has samples.

    `iteration` restricts them to one T. Returns the aggregates' paths. Raises InputError if no row is left or samples
    are damaged, and DeepThinkError if a write fails.
    """
    records = [
        Record(results, created)
        for job in jobs
        if (results := [row for t, row in sorted(job.test.items()) if iteration in (None, t)])
    ]
    if not records:
        raise InputError.of("iteration", iteration, "no row has it; name one that the run scored, or omit it")
    return [_write(record, folder) for record in records]


def _write(record: Record, folder: Path) -> Path:
    path, samples = folder / record.path, folder / record.samples_path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeepThinkError.of("output", path.parent, f"cannot be made: {error.strerror}") from error
    rows, content = 0, hashlib.sha256()
    if any(find_samples(folder_of(result), result) for result in record.results):
        with writing(samples) as file:
            for line in instances(record.results, record.id, record.model_id, VERSION):
                text = json_line(line)
                rows += 1
                content.update(text.encode())
                file.write(text)
    else:
        samples.unlink(missing_ok=True)
    with writing(path) as file:
        file.write(json_line(aggregate(record, rows, content.hexdigest())))
    return path


def aggregate(record: Record, samples: int, checksum: str) -> dict[str, Any]:
    """The aggregate of a record; `samples` counts the records of its inputs, whose SHA-256 is `checksum`."""
    values = {
        "schema_version": VERSION,
        "evaluation_id": record.id,
        "retrieved_timestamp": str(record.created),
        "source_metadata": {
            "source_name": "deepthink run",
            "source_type": "evaluation_run",
            "source_organization_name": UNSPECIFIED,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "deepthink", "version": version("deepthink-cli")},
        "model_info": _model_info(record),
        "evaluation_results": [
            _result(result, name, value)
            for result in record.results
            for name, value in (("accuracy", result.accuracy), ("macro_f1", result.macro_f1))
            if value is not None
        ],
    }
    if samples:
        values["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": str(record.samples_path),
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": samples,
        }
    return values


def _model_info(record: Record) -> dict[str, Any]:
    setting, (developer, name) = record.setting, record.model
    details = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown" if developer == UNSPECIFIED else "open_weights",
        "dtype": setting.dtype,
        "quantize": setting.quantize or "none",
        "model_sha256": setting.model_sha256,
    }
    return {"name": name, "id": record.model_id, "developer": developer, "additional_details": details}


def _result(result: Result, metric: str, value: float) -> dict[str, Any]:
    """One metric of one row."""
    unit = {"metric_unit": "proportion", "score_type": "continuous", "min_score": 0, "max_score": 1}
    config = {"metric_id": metric, "metric_name": metric, "metric_kind": "f1" if metric == "macro_f1" else metric}
    return {
        "evaluation_result_id": f"{result.key}/{metric}",
        "evaluation_name": result.setting.task,
        "source_data": _source(result),
        "metric_config": {"evaluation_description": _METRICS[metric], **config, "lower_is_better": False, **unit},
        "score_details": {
            "score": value,
            "uncertainty": _uncertainty(result) if metric == "accuracy" else {"num_samples": result.n},
        },
        "generation_config": {"generation_args": {}, "additional_details": _details(result)},
    }


def _uncertainty(result: Result) -> dict[str, Any]:
    low, high = wilson(result.accuracy, result.n)
    error = math.sqrt(result.accuracy * (1 - result.accuracy) / result.n)
    return {
        "standard_error": {"value": error, "method": "analytic"},
        "confidence_interval": {"lower": low, "upper": high, "confidence_level": 0.95, "method": "wilson"},
        "num_samples": result.n,
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
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_line(value).strip()


def _component(name: str) -> str:
    """A name as one component of a path."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or UNSPECIFIED
