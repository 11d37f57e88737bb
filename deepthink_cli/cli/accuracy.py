"""The output of `deepthink eval`: accuracy by T, the baselines and the confusion table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepthink_cli.cli.console import bar, report, table, write_json
from deepthink_cli.techniques.registry import CT_KV

if TYPE_CHECKING:
    from deepthink_cli.evaluation import Evaluation
    from deepthink_cli.provenance import Provenance, Technique
    from deepthink_cli.workflows.evaluate import EvaluationReport

COMPARED = {
    "mean": "the mean log-probability per token",
    "end": "the sum of log-probabilities with the end of the label",
}


def show(result: EvaluationReport, json: bool) -> None:
    """Print the result on stdout, as text or as one JSON object."""
    if json:
        write_json(result.as_json())
        return
    evaluation, provenance = result.evaluation, result.memory.provenance
    shots = len(provenance.demonstrations.examples)
    report(
        f"{result.memory.name}: {shots} demonstrations, {provenance.model.id}, {_made_by(provenance)}",
        *([f"mean log-probability with {', '.join(result.ensemble)}"] if result.ensemble else []),
        *([f"compared by {COMPARED[result.score]}"] if result.score in COMPARED else []),
        f"{_described(result)}: {evaluation.n} inputs, {result.seconds:.1f} s with loading",
        *(f"skipped {count}: {reason}" for reason, count in result.skipped.items()),
        "",
        _curve(evaluation),
        "",
        *_baselines(evaluation, provenance.technique),
    )
    if (judged := result.judged).confusion:
        by = "" if judged is evaluation else f", {result.calibrate[0]} calibration"
        report("", f"T = {max(judged.results)}{by}, true label first:", _confusion(judged))


def _described(result: EvaluationReport) -> str:
    if result.task is None:
        return result.split
    return f"{result.task}, split {result.split} ({result.protocol} protocol)"


def _curve(evaluation: Evaluation) -> Any:
    """One row per iteration, with calibrated accuracies; the bars share one scale, from the lowest to the highest."""
    shares = [metrics.accuracy for metrics in evaluation.results.values()]
    low, high = max(0.0, min(shares) - 0.02), max(shares)
    rows = []
    for iteration, metrics in evaluation.results.items():
        f1 = "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}"
        interval = f"{metrics.ci95[0]:.1%} to {metrics.ci95[1]:.1%}"
        rows.append(
            [
                str(iteration),
                f"{metrics.accuracy:.1%}",
                *(f"{each.results[iteration].accuracy:.1%}" for each in evaluation.calibrated.values()),
                f"{metrics.stderr:.1%}",
                interval,
                f"{metrics.accuracy_mean_per_token:.1%}",
                f1,
                str(metrics.ties),
                bar(metrics.accuracy, low, high),
            ]
        )
    names = ("stderr", "95 % interval", "mean/token", "macro-F1", "ties", f"{low:.0%} to {high:.1%}")
    return table("T", "accuracy", *evaluation.calibrated, *names, rows=rows)


def _made_by(provenance: Provenance) -> str:
    """The update rule, after the technique that made the memory if there is one."""
    technique, rule = provenance.technique, str(provenance.method.update)
    if technique is None:
        return rule
    return str(technique) if technique.name == CT_KV else f"{technique}, {rule}"


def _baselines(evaluation: Evaluation, technique: Technique | None) -> list[str]:
    lines = [f"T = 1 is plain in-context learning: {_change(evaluation)}"]
    lines += [f"with {name} calibration: {_change(each)}" for name, each in evaluation.calibrated.items()]
    if technique is not None and technique.name == CT_KV:
        lines = ["T = 1 is one reading, then trained; for plain in-context learning, evaluate a memory of think -T 1"]
    if evaluation.majority is not None:
        label, share = evaluation.majority
        lines.append(f"always answering {label!r}: {share:.1%}")
    else:
        lines.append(f"guessing among the candidates: {evaluation.chance:.1%}")
    return lines


def _change(evaluation: Evaluation) -> str:
    first, last = evaluation.results[1], evaluation.last
    return f"{first.accuracy:.1%}; thinking changes it by {100 * (last.accuracy - first.accuracy):+.1f} points"


def _confusion(evaluation: Evaluation) -> Any:
    labels = list(evaluation.confusion)
    per_label = evaluation.last.per_label
    rows = []
    for gold in labels:
        scores = ["", "", ""]
        if (metrics := per_label.get(gold)) is not None:
            scores = [f"{metrics.precision:.3f}", f"{metrics.recall:.3f}", f"{metrics.f1:.3f}"]
        rows.append([gold, *(str(evaluation.confusion[gold][guess]) for guess in labels), *scores])
    return table("", *labels, "precision", "recall", "F1", rows=rows)
