"""The tables of `deepthink eval`: accuracy, changes since T = 1, and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepthink_cli.cli.console import fits, interval_bar, report, table, write_json
from deepthink_cli.cli.names import flag
from deepthink_cli.evaluation.metrics import by_chance, confusion_table, wilson
from deepthink_cli.io.text import named
from deepthink_cli.techniques.registry import first_reading, trains

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.evaluation.metrics import Changes, Evaluation
    from deepthink_cli.evaluation.report import EvaluationReport, LabelSetsReport


LABELS = 12  # rows of the table of labels


def probabilities(evaluation: Evaluation, by: str = "") -> list[Any]:
    """A title that ends with `by`, the probabilities and changes of every iteration, and a sentence about the last."""
    rows = []
    for iteration, each in evaluation.probabilities.items():
        changes = evaluation.changes.get(iteration)
        cells = _cells(changes) if evaluation.changes else []
        rows.append([str(iteration), f"{each.log_probability:.3f}", *cells, f"{each.ece:.3f}"])
    since = ["since T = 1", "95 % interval", "changed", "fixed", "broken"] if evaluation.changes else []
    title = ", and what changed since T = 1" if evaluation.changes else ""
    bins = next(iter(evaluation.probabilities.values())).ece_bins
    return [
        f"Mean log-probability of the true label in nats{title}{by}:",
        table("T", "log-prob", *since, "ECE", rows=rows),
        *_verdict(evaluation),
        *([] if by else [f"ECE is the expected calibration error, over {bins} bins of equal width"]),
    ]


def generated(evaluation: Evaluation) -> list[Any]:
    """The changes of generated answers since T = 1: the numbers of rows with another answer, now right or now wrong."""
    rows = [
        [str(iteration), str(each.changed), str(each.fixed), str(each.broken)]
        for iteration, each in evaluation.changes.items()
    ]
    title = "Generated answers, right if they match the true answer"
    return [f"{title}; since T = 1:", table("T", "changed", "fixed", "broken", rows=rows)] if rows else [title]


def _cells(changes: Changes | None) -> list[str]:
    if changes is None:
        return [""] * 5
    interval = changes.log_probability_ci95
    between = "" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"
    counts = map(str, (changes.changed, changes.fixed, changes.broken))
    return [f"{changes.log_probability:+.3f}", between, *counts]


def _verdict(evaluation: Evaluation) -> list[str]:
    """Whether the last iteration finds the true labels more likely than T = 1 does."""
    last = max(evaluation.results)
    changes = evaluation.changes.get(last)
    if changes is None or changes.log_probability_ci95 is None:
        return []
    low, high = changes.log_probability_ci95
    verdict = "more likely than" if low > 0 else "less likely than" if high < 0 else "about as likely as"
    noise = "is within noise" if low <= 0 <= high else "exceeds noise"
    return [f"T = {last} finds the true labels {verdict} T = 1: the change {noise}"]


def distribution(evaluation: Evaluation, by: str = "") -> list[Any]:
    """A title that ends with `by`, and the share of each label in truth, at T = 1 and at the last T."""
    true, last = evaluation.true_labels, max(evaluation.results)
    shown = dict.fromkeys((1, last)) if 1 in evaluation.results else {last: None}
    answers = {t: evaluation.results[t].predicted for t in shown}
    labels = sorted(true, key=lambda label: -abs(answers[last].get(label, 0) - true[label]))[:LABELS]
    rows = []
    for label in (each for each in true if each in labels):
        counts = (true[label], *(each.get(label, 0) for each in answers.values()))
        rows.append([named(label), *(f"{count / evaluation.n:.1%}" for count in counts)])
    most = f" (the {LABELS} of {len(true)} that differ most)" if len(labels) < len(true) else ""
    return [f"Share of each label{by}{most}:", table("", "true", *(f"T = {t}" for t in answers), rows=rows)]


AXIS = 22  # columns of the axis of accuracies, so that the table has 80 columns


def show(result: EvaluationReport, json: bool, details: bool) -> None:
    """Print the result on stdout, as one JSON object or as text; with `details`, log-probabilities and labels, too."""
    if json:
        write_json(result.as_json())
        return
    evaluation, provenance = result.evaluation, result.memory.provenance
    shots, rows = len(provenance.demonstrations.examples), result.split
    if result.task is not None:
        rows = f"{result.task}, split {result.split} ({result.protocol} protocol)"
    made = [] if provenance.technique is None else [str(provenance.technique)]
    if not _one_reading(result.memory) and provenance.method.iterations > 1:  # the rule acts from the second reading on
        made.append(str(provenance.method.update))
    report(
        ", ".join([f"{result.memory.name}: {shots} demonstrations", provenance.model.id, *made]),
        *([f"mean log-probability with {', '.join(result.ensemble)}"] if result.ensemble else []),
        *filter(None, (step.described() for step in result.scorer.scoring.steps)),
        f"{rows}: {evaluation.n} inputs, {result.seconds:.1f} s to load the model and to label",
        *(f"skipped {count}: {reason}" for reason, count in result.skipped.items()),
        f"T = 1 is {first_reading(provenance.technique)}",
        "",
        curve(evaluation),
        "",
        *_baselines(evaluation, result.memory),
    )
    if result.overlap is not None and (rest := result.overlap.rest) is not None:
        of_memory = f"{result.overlap.rows} of the {evaluation.n} rows are demonstrations of the memory"
        report("", f"{of_memory}; on the other {rest.n}:", curve(rest))
    if details:
        _show_details(result)
    elif evaluation.probabilities:
        report(f"{flag('details')}: log-probabilities, shares of labels and confusions")
    else:
        report("", *generated(evaluation))


def _show_details(result: EvaluationReport) -> None:
    """Print what is known of probabilities or generated answers, and of labels."""
    evaluation, applied = result.evaluation, result.applied
    report("", *(probabilities(evaluation) if evaluation.probabilities else generated(evaluation)))
    by = "" if applied is evaluation else f", {result.calibrate[0]} calibration"
    if by:
        report("", *probabilities(applied, by))
    probable = [(f"at least {math.floor(1e6 * each.threshold) / 1e6:.6f}", each) for each in result.probable]
    bounded = [(f"{each.max_error:.0%}", each) for each in result.coverage]
    for title, column, found in (
        ("Errors if only probable labels are given:", "probability", probable),
        (f"Errors among the labels that {flag('max_error')} of predict gives:", "at most", bounded),
    ):
        given = [[name, str(each.given), f"{each.given / each.rows:.1%}", str(each.wrong)] for name, each in found]
        if given:
            report("", title, table(column, "given", "of the rows", "wrong", rows=given))
    if applied.confusion:
        report("", *distribution(applied, by))
        columns, rows = confusion_table(applied.confusion, applied.last)
        confusion = table("", *map(named, columns[1:]), rows=[[named(label), *cells] for label, *cells in rows])
        last = f"T = {max(applied.results)}{by}"
        if fits(confusion):
            report("", f"{last}, true label first:", confusion)
        else:
            report("", f"{last}, the most frequent confusions (--json has all):", _confusions(applied.confusion))


def show_label_sets(result: LabelSetsReport, json: bool) -> None:
    """Print the result for rows with several labels on stdout, as text or as one JSON object."""
    if json:
        write_json(result.as_json())
        return
    rows = []
    for t, sets in result.results.items():
        between = "{:.1%} to {:.1%}".format(*wilson(sets.subset_accuracy, sets.n))
        rows.append([str(t), f"{sets.micro_f1:.3f}", f"{sets.macro_f1:.3f}", f"{sets.subset_accuracy:.1%}", between])
    labels = []
    for label in result.last.labels:
        each = result.last.of(label)
        values = [f"{value:.3f}" for value in (each.precision, each.recall, each.f1)]
        labels.append([named(label), *values, str(each.support)])
    report(
        f"{result.memory.name}: {result.split}: {result.last.n} rows with several labels",
        *(f"skipped {count}: {reason}" for reason, count in result.skipped.items()),
        table("T", "micro-F1", "macro-F1", "subset accuracy", "95 % interval", rows=rows),
        "",
        f"T = {max(result.results)}, by label:",
        table("", "precision", "recall", "F1", "rows", rows=labels),
    )
    if result.optimistic:
        report(
            "The thresholds were fitted on a file of this name: these figures are optimistic; inspect names those of "
            "rows that they were not fitted on"
        )


def _confusions(confusion: Mapping[str, Mapping[str, int]]) -> Any:
    """The most frequent pairs of a true label and another label that was predicted."""
    pairs = [(gold, guess, count) for gold, of in confusion.items() for guess, count in of.items() if gold != guess]
    pairs.sort(key=lambda pair: -pair[2])
    rows = [
        [named(gold), named(guess), str(count), f"{count / sum(confusion[gold].values()):.1%}"]
        for gold, guess, count in pairs[:LABELS]
        if count
    ]
    return table("true label", "predicted", "rows", "of the true label", rows=rows, left=2)


def curve(evaluation: Evaluation) -> Any:
    """One row per iteration, raw and by each calibration: the accuracy, and its interval on a shared axis.

    The axis covers all intervals, so that a difference within noise looks small beside them.
    """
    ways = _ways(evaluation)
    intervals = [each.ci95 for way in ways.values() for each in way.results.values()]
    end = max(0.05, math.ceil(round(20 * max(high for _, high in intervals), 6)) / 20)
    start = min(end - 0.05, math.floor(round(20 * min(low for low, _ in intervals), 6)) / 20)
    rows = []
    for by, way in ways.items():
        for iteration, each in way.results.items():
            low, high = each.ci95
            f1 = "" if each.macro_f1 is None else f"{each.macro_f1:.3f}"
            named = [by] if evaluation.calibrated else []
            further = [] if named else [f"{each.accuracy_mean_per_token:.1%}", f1, str(each.ties)]
            drawn = interval_bar(low, each.accuracy, high, start, end, AXIS)
            accuracy = [f"{each.accuracy:.1%}", f"{low:.1%} to {high:.1%}"]
            rows.append([*named, str(iteration), *accuracy, *further, drawn])
    names, more = (("scores",), ()) if evaluation.calibrated else ((), ("mean/token", "macro-F1", "ties"))
    axis = f"{start:.0%}" + f"{end:.0%}".rjust(AXIS - len(f"{start:.0%}"))
    return table(*names, "T", "accuracy", "95 % interval", *more, axis, rows=rows)


def _ways(evaluation: Evaluation) -> dict[str, Evaluation]:
    """The evaluation of the raw scores, and by each calibration."""
    return {"raw": evaluation, **evaluation.calibrated}


def _one_reading(memory: OpenedMemory) -> bool:
    """Whether there is no later reading to compare with."""
    return bool(memory.plain_with) or trains(memory.provenance.technique)


def _baselines(evaluation: Evaluation, memory: OpenedMemory) -> list[str]:
    technique = memory.provenance.technique
    lines = []
    if len(evaluation.results) > 1 and not _one_reading(memory):
        lines = [change(each, f"{by}, " if evaluation.calibrated else "") for by, each in _ways(evaluation).items()]
    if memory.plain_with:
        options = " ".join(flag(name, str(value)) for name, value in memory.plain_with.items())
        lines.append(f"for plain in-context learning with the same demonstrations, add {options}")
    elif technique is not None:
        lines.append("for plain in-context learning, evaluate a memory of deepthink think -T 1 without --technique")
    if evaluation.majority is not None:
        label, share = evaluation.majority
        lines.append(f"always answering {label!r}: {share:.1%}")
    else:
        lines.append(f"guessing among the candidates: {evaluation.chance:.1%}")
    return lines


def change(evaluation: Evaluation, by: str = "") -> str:
    """After the words `by`: what the readings after the first change, and whether chance explains it."""
    last = max(evaluation.results)
    said, changes = f"{by}T = 1 to T = {last}:", evaluation.changes[last]
    if not changes.changed:
        return f"{said} no label changes"
    gained = 100 * (evaluation.last.accuracy - evaluation.results[1].accuracy)
    return f"{said} {gained:+.1f} points, {changes.fixed} fixed, {changes.broken} broken: {by_chance(changes.p)}"
