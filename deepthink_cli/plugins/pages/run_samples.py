"""The samples of runs, which `deepthink run --samples` wrote, for the results of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result
from deepthink_cli.experiments.samples import find_samples, read_samples, read_texts
from deepthink_cli.plugins.pages.samples import Group, Samples
from deepthink_cli.report.arms import varying
from deepthink_cli.report.job_results import JobResults

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class _SampledPart:
    """The results of one part of a job that have samples, by iteration."""

    group: Group
    results: Sequence[Result]
    files: Sequence[Path]

    @property
    def folder(self) -> Path:
        """The run that the first result was read from."""
        return folder_of(self.results[0])


def samples_of(jobs: Sequence[JobResults]) -> tuple[Samples, int]:
    """The samples of all jobs, and how many of their results have none.

    Raises InputError for a file of samples that is damaged or does not belong to its result.
    """
    samples, results = Samples(), 0
    texts = cache(read_texts)
    for part in _parts(jobs):
        results += len(part.results)
        columns = [read_samples(path, result) for path, result in zip(part.files, part.results, strict=True)]
        _check_same_inputs(columns, part.files)
        known = texts(part.folder, part.results[0].setting.rows_sha256)
        samples.start(part.group)
        labels = zip(*(each["label"] for each in columns), strict=True)
        scores = zip(*(each["scores"] for each in columns), strict=True)
        inputs = (columns[0][name] for name in ("where", "gold", "candidates"))
        for where, gold, candidates, of_labels, of_scores in zip(*inputs, labels, scores, strict=True):
            samples.add(known.get(where, ""), where, gold, candidates, of_labels, of_scores)
    return samples, sum(len(job.test) + len(job.dev) for job in jobs) - results


def folder_of(result: Result) -> Path:
    """The run that a result was read from."""
    return Path(result.where.rpartition(":")[0]).parent


def _parts(jobs: Sequence[JobResults]) -> Iterator[_SampledPart]:
    names = varying(list(dict.fromkeys(job.arm for job in jobs)))
    for job in jobs:
        for part, by_iteration in (("test", job.test), ("dev", job.dev)):
            located = [(result, find_samples(folder_of(result), result)) for _, result in sorted(by_iteration.items())]
            results = [result for result, path in located if path is not None]
            if results:
                iterations = tuple(result.setting.iteration for result in results)
                seed, method = str(job.seed).removeprefix("seed "), job.arm.label(names, short=True)
                group = Group(job.task, seed, method, part, iterations)
                yield _SampledPart(group, results, [path for _, path in located if path is not None])


def _check_same_inputs(columns: Sequence[Columns], files: Sequence[Path]) -> None:
    """Raise InputError unless the inputs are the same, in the same order, at every iteration."""
    names = ("where", "gold", "candidates")
    for each, path in zip(columns, files, strict=True):
        if any(each[name] != columns[0][name] for name in names):
            raise InputError(f"{path}: its inputs are not those of {files[0].name}; run into a new folder")
