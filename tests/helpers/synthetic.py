"""Rows of runs that never ran: accuracies by formula, answers to match."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deepthink_cli.experiments.results import FILE, Result, Setting, bits
from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.page import Page, Report

MODEL = "openai-community/gpt2-large"
N = 100
THREE = [[50, 55, 60], [60, 62, 66], [70, 80, 69]]  # right answers by seed and T
HOSTILE = Page(
    source="runs/50%_[a]",
    title=r"a_b & 5% of $x$ #1 {c} ~^ \d",
    columns=["task", "McNemar"],
    sections=[("<x>", [["[q]|*", "-1.2 ± 3"]])],
    legend=[],
    footnotes=["a_b"],
)


def row(right: Sequence[bool] | int, more: dict[str, Any] | None = None, **setting: Any) -> Result:
    """One row; `right` are the answers, or the number of right ones, which come first."""
    answers = [place < right for place in range(N)] if isinstance(right, int) else list(right)
    values: dict[str, Any] = {
        "model": MODEL,
        "model_sha256": "m",
        "dtype": "float32",
        "quantize": None,
        "task": "sst2",
        "task_sha256": "t",
        "protocol": "paper",
        "part": "test",
        "split": "validation",
        "limit": None,
        "sampling": "balanced",
        "shots": 8,
        "seed": 0,
        "order_seed": None,
        "eta": 0.01,
        "momentum": 0.0,
        "positions": "continued",
        "iteration": 1,
        "rows_sha256": "r",
        "weights_sha256": "w",
        **setting,
    }
    drawn = (values["sampling"], values["shots"], values["seed"], values["order_seed"], values.get("pool_size"))
    values.setdefault("demonstrations_sha256", "d" + "-".join(map(str, drawn)))
    own = Setting(**values)
    share = sum(answers) / len(answers)
    measured: dict[str, Any] = {
        "groups": ["classic"],
        "shots_used": own.shots,
        "length": 64,
        "n": len(answers),
        "right": sum(answers),
        "demonstrations_sha256": own.demonstrations_sha256,
        "accuracy": share,
        "accuracy_mean_per_token": share,
        "macro_f1": share,
        "ties": 0,
        "majority": 0.5,
        "chance": 0.5,
        "correct": bits(answers),
        **(more or {}),
    }
    return Result(key=own.key, setting=own, **measured)


def curve(rights: Sequence[int], more: dict[str, Any] | None = None, **setting: Any) -> list[Result]:
    """The rows of one job: the number of right answers at T = 1, 2, ..."""
    return [row(right, more, iteration=t, **setting) for t, right in enumerate(rights, start=1)]


def seeds(rights: Sequence[Sequence[int]], **setting: Any) -> list[Result]:
    """A job for each seed, from 0."""
    return [one for seed, own in enumerate(rights) for one in curve(own, seed=seed, **setting)]


def dev(rights: Sequence[int], seed: int, eta: float) -> list[Result]:
    """The dev rows of one job."""
    return curve(rights, seed=seed, eta=eta, part="dev", split="train")


def mmlu(count: int = 12) -> list[Result]:
    """Tasks of a large group that has two groups within."""
    groups = [["mmlu", "mmlu/others"], ["mmlu", "mmlu/stem"]]
    return [
        one
        for number in range(count)
        for one in curve([30, 40], {"groups": groups[number % 2], "majority": None}, task=f"mmlu/{number}")
    ]


def write(folder: Path, rows: Sequence[Result]) -> Path:
    """A run's folder with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text("".join(one.line() for one in rows), encoding="utf-8")
    return folder


CLASSIC = {"sst2": 55, "sst5": 26, "trec": 32, "mr": 60, "agnews": 40}


def classic(etas: Sequence[float] = (0.01,), count: int = 5, last: int = 5, **setting: Any) -> Iterator[Result]:
    """Five tasks that rise to a peak and fall again, sooner for a larger eta, from another start in every seed."""
    for task, base in CLASSIC.items():
        for seed in range(count):
            for eta in etas:
                start = base + (7 * seed + len(task)) % 9
                ways = [(t - 1) * eta**0.5 for t in range(1, last + 1)]
                rights = [round(start + (20 + seed) * way * math.exp(1 - way)) for way in ways]
                yield from curve(rights, task=task, seed=seed, eta=eta, **setting)


def report(runs: Sequence[Path], **chosen: Any) -> Report:
    """The tables of runs."""
    return Report(", ".join(map(str, runs)), read_jobs(runs), **chosen)
