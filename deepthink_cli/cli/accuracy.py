"""What `deepthink eval` shows: the curve over T, what to compare it with, and what is confused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.cli.console import bar, report, table, write_json

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.evaluation import Evaluation


@dataclass(frozen=True)
class Rows:
    """Which rows were evaluated: a file, or a task's split under a protocol; `skipped` by reason."""

    split: str
    task: str | None
    protocol: str | None
    skipped: Counter[str]


def show(header: Header, evaluation: Evaluation, rows: Rows, seconds: float, json: bool) -> None:
    """Print the result on stdout, for people or as one JSON object (DESIGN 4.4)."""
    metadata = header.metadata
    from deepthink_cli.updates.registry import values_of

    if json:
        memory = {
            "file": header.path, "model": metadata.model.id, **values_of(metadata.method.update),
            "positions": metadata.positions, "iterations": metadata.iterations, "kept": metadata.kept,
            "shots": metadata.shots, "sha256": metadata.sha256,
        }  # fmt: skip
        write_json({"task": rows.task or metadata.task, "split": rows.split, "protocol": rows.protocol,
                    "skipped": rows.skipped, **evaluation.as_json(), "memory": memory,
                    "seconds": seconds, "inputs_per_second": evaluation.n / seconds})  # fmt: skip
        return
    last = max(evaluation.results)
    report(
        f"{header.path}: {metadata.shots} demonstrations, {metadata.model.id}, {metadata.method.update}",
        f"{_described(rows)}: {evaluation.n} inputs, {seconds:.1f} s with loading",
        *(f"skipped {count}: {reason}" for reason, count in rows.skipped.items()),
        "",
        _curve(evaluation),
        "",
        *_baselines(evaluation),
    )
    if evaluation.confusion:
        report("", f"T = {last}, true label first:", _confusion(evaluation))


def _described(rows: Rows) -> str:
    return rows.split if rows.task is None else f"{rows.task}, split {rows.split} ({rows.protocol} protocol)"


def _curve(evaluation: Evaluation) -> Any:
    """A row an iteration; the bars share one scale, from the lowest accuracy to the highest."""
    shares = [metrics.accuracy for metrics in evaluation.results.values()]
    low, high = max(0.0, min(shares) - 0.02), max(shares)
    rows = []
    for iteration, metrics in evaluation.results.items():
        f1 = "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}"
        interval = f"{metrics.ci95[0]:.1%} to {metrics.ci95[1]:.1%}"
        rows.append([str(iteration), f"{metrics.accuracy:.1%}", f"{metrics.stderr:.1%}", interval,
                     f"{metrics.accuracy_mean_per_token:.1%}", f1, str(metrics.ties), bar(metrics.accuracy, low, high)])  # fmt: skip
    names = ("T", "accuracy", "stderr", "95 % interval", "mean/token", "macro-F1", "ties", f"{low:.0%} to {high:.1%}")
    return table(*names, rows=rows)


def _baselines(evaluation: Evaluation) -> list[str]:
    first, last = evaluation.results[1], evaluation.last
    lines = [
        f"T = 1 is plain in-context learning: {first.accuracy:.1%}; thinking changes it by {100 * (last.accuracy - first.accuracy):+.1f} points"
    ]
    if evaluation.majority is not None:
        label, share = evaluation.majority
        lines.append(f"always answering {label!r}: {share:.1%}")
    else:
        lines.append(f"guessing among the candidates: {evaluation.chance:.1%}")
    return lines


def _confusion(evaluation: Evaluation) -> Any:
    labels = list(evaluation.confusion)
    per_label = evaluation.last.per_label
    rows = []
    for gold in labels:
        found = per_label.get(gold)
        scores = [f"{found.precision:.3f}", f"{found.recall:.3f}", f"{found.f1:.3f}"] if found else ["", "", ""]
        rows.append([gold, *(str(evaluation.confusion[gold][guess]) for guess in labels), *scores])
    return table("", *labels, "precision", "recall", "F1", rows=rows)
