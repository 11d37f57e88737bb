"""Evaluate a memory on labelled rows: the work of `deepthink eval`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.bounded import SHOWN, bound
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.notes import check_count, check_supported, skipping, warn_of_one_label
from deepthink_cli.calibration.registry import NONE, STORED
from deepthink_cli.data.examples import Skipped
from deepthink_cli.data.same_input import is_among
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import Answers, Evaluation
from deepthink_cli.evaluation.report import EvaluationReport, LabelSetsReport, Overlap
from deepthink_cli.events import Progress, Tell, Warn, silent
from deepthink_cli.generation import answered
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import LabelSets, labels_given
from deepthink_cli.prediction.predict import tell_of_several, tell_of_truncated
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.pipeline import EVALUATED, EVERY_REASON, UNSCORABLE
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import EvaluatedRows, rows_of_file

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


Ways = Mapping[str, Mapping[int, Answers]]  # of scoring, each with its answers after every iteration


def evaluate(
    memory: str | Path | OpenedMemory | Memory | Sequence[Memory] | Scorer,
    rows: str | Path | RowSource | EvaluatedRows,
    *,
    options: ModelOptions | None = None,
    engine: Engine | None = None,
    observe: Callable[[Prediction], None] | None = None,
    skip: Callable[[Skipped], None] | None = None,
    tell: Tell = silent,
) -> EvaluationReport:
    """Evaluate a memory on labelled rows, next to plain in-context learning (T = 1) and the majority class.

    Args:
        memory: a file (all its iterations are evaluated), the result of `open_memory`, memories from think(), or a
            `Scorer`, which also has the scoring, the calibrations and the memories of an ensemble.
        rows: a file of labelled rows, or the result of `rows_of_file` or `rows_of_task`.
        options: how to load the model that made the memory; unset options are taken from the memory.
        engine: the model, if it is already loaded.
        observe: called with every prediction; each row has a prediction for each iteration.
        skip: called with every row that cannot be read, tokenised or scored; without `skip`, such a row raises.
        tell: called with every event (`deepthink_cli.events`).

    Calibrations that are estimated from the rows hold all rows in memory. Warns of labels that are never chosen. Raises
    InputError as `Scorer.open` and `rows_of_file`, for a memory, rows or calibrations that do not fit.
    """
    scorer = memory if isinstance(memory, Scorer) else Scorer.open(memory, iteration="all")
    if scorer.gives_several:
        raise InputError(f"{scorer.memory.name}: rows may have several labels; use deepthink eval")
    rows = rows if isinstance(rows, EvaluatedRows) else rows_of_file(scorer.memory, rows, skip=skip is not None)
    if rows.free is not None:
        check_generated(scorer, str(rows.task))
        scorer = replace(scorer, calibrate=())
    loaded, skipped = load_for(scorer, rows, options, skip is not None, tell, engine), Counter(rows.skipped)
    iterations = sorted(memory.iteration for memory in loaded.members[0])
    whole, rest = (
        {name: {t: Answers(scorer.demonstrations.labels) for t in iterations} for name in (NONE, *scorer.calibrate)}
        for _ in range(2)
    )
    examples = [example for each in scorer.memories for example in each.provenance.demonstrations.examples]
    was_read = is_among(examples, scorer.demonstrations.template, scorer.demonstrations.labels)
    for row in evaluated(loaded, rows, skipped, observe, skip, tell):
        for ways in (whole,) if was_read(row.query) else (whole, rest):
            for name, by_iteration in ways.items():
                by_iteration[row.iteration].add(row if name == NONE else row.calibrated[name].prediction)
    answers, others = whole[(*scorer.calibrate, NONE)[0]][iterations[-1]], len(rest[NONE][iterations[-1]].gold)
    report = EvaluationReport(
        _evaluation(whole),
        scorer,
        rows.task,
        rows.split,
        rows.protocol,
        dict(skipped),
        time.perf_counter() - loaded.started,
        Overlap(read, _evaluation(rest) if others else None) if (read := len(answers.gold) - others) else None,
        unused_chat=not scorer.demonstrations.chat and bool(getattr(loaded.engine.tokenizer, "chat_template", None)),
        coverage=tuple(answers.at_least(*each) for each in _thresholds(scorer)),
        probable=tuple(answers.probable()),
    )
    _warn(report, tell)
    return report


def _evaluation(ways: Ways) -> Evaluation:
    """The evaluation of the raw answers, and of the answers after each calibration."""
    calibrated = {name: Evaluation.of(answers) for name, answers in ways.items() if name != NONE}
    return Evaluation.of(ways[NONE], calibrated)


def evaluate_label_sets(
    scorer: Scorer,
    rows: EvaluatedRows,
    *,
    options: ModelOptions | None = None,
    observe: Callable[[Prediction], None] | None = None,
    skip: Callable[[Skipped], None] | None = None,
    tell: Tell = silent,
) -> LabelSetsReport:
    """Evaluate a memory on rows with several labels, next to plain in-context learning (T = 1).

    The arguments are as in `evaluate`. Raises InputError for rows or thresholds that do not fit the memory.
    """
    memory, demonstrations = scorer.memory, scorer.demonstrations
    given = labels_given(memory.provenance, scorer.scoring, memory.name)
    tell_of_several(scorer, tell)
    loaded, skipped = load_for(scorer, rows, options, skip is not None, tell), Counter(rows.skipped)
    results = {t: LabelSets(demonstrations.labels) for t in sorted(each.iteration for each in loaded.members[0])}
    for row in evaluated(loaded, rows, skipped, observe, skip, tell):
        true = demonstrations.template.labels_of(row.query.gold or "")
        results[row.iteration].add(frozenset(true), frozenset(given(row)))
    seconds = time.perf_counter() - loaded.started
    return LabelSetsReport(memory, scorer.scoring, rows.split, results, dict(skipped), seconds)


def _thresholds(scorer: Scorer) -> list[tuple[float, float]]:
    """The thresholds that labelled rows of the memory's own correction give, if it is in use, each with its bound."""
    stored = scorer.memory.provenance.calibrated
    if stored is None or stored.held_out is None or scorer.calibrate[:1] != (STORED,) or scorer.others:
        return []
    return [(found.threshold, most) for most in SHOWN if (found := bound(stored.held_out, most)) is not None]


def load_for(
    scorer: Scorer,
    rows: EvaluatedRows,
    options: ModelOptions | None,
    skip: bool,
    tell: Tell,
    engine: Engine | None = None,
) -> Loaded:
    """Check the rows, load the model unless `engine` is given, and load the memories, with a reading of T = 1.

    Raises InputError as `evaluate` does.
    """
    read_for, demonstrations = rows.demonstrations, scorer.demonstrations
    if (read_for.template, read_for.labels) != (demonstrations.template, demonstrations.labels):
        raise InputError(
            f"{scorer.memory.name}: the rows of {rows.split} were read for a memory with the labels "
            f"{', '.join(read_for.labels)} and the template {read_for.template.pattern!r}; read them for this memory"
        )
    told = tell if rows.free is None else silent  # free answers are no labels
    check_count(scorer.calibrate, rows.count)
    check_supported(scorer.calibrate, rows.checked if not skip else None)
    if engine is not None:
        loaded = scorer.load(engine, tell)
        scorer.check_labels(engine.tokenizer, told)
    else:
        spec = scorer.find(options, tell).for_rows(rows.count)
        if not skip:
            scorer.check_tokens(spec, rows.source or rows.split, rows.checked)
        scorer.check_labels(spec.tokenizer, told)
        loaded = scorer.load(spec, tell)
    return loaded.with_first_reading()


def check_generated(scorer: Scorer, task: str) -> None:
    """Raise InputError for options of scores and corrections, which generated answers do not have."""
    wrong: dict[str, Any] = scorer.scoring.of_scores
    wrong |= {
        "ensemble": scorer.others or None,
        "calibrate": [name for name in scorer.calibrate if name not in (NONE, STORED)],
    }
    for name, value in wrong.items():
        if value:
            shown = value if name in scorer.scoring.recorded else None
            raise InputError.of(name, shown, f"task {task} has free answers, which have no scores; omit it")


def evaluated(
    loaded: Loaded,
    rows: EvaluatedRows,
    skipped: Counter[str],
    observe: Callable[[Prediction], None] | None,
    skip: Callable[[Skipped], None] | None,
    tell: Tell,
) -> Iterator[Prediction]:
    """Yield the predictions of the rows, each after `observe`; count skipped rows by their reasons, each after `skip`.

    Notes how many rows were shortened. Raises InputError if no row is left.
    """
    scorer = loaded.scorer
    answers: Iterator[Prediction | Skipped]
    if rows.free is not None:
        progress = Progress("generating", 0, rows.count)
        answers = answered(loaded.engine, loaded.members[0], rows.free, rows.queries, scorer.scoring, tell, progress)
    else:
        progress = Progress("evaluating", 0, rows.count)
        usable, reasons = rows.queries, UNSCORABLE  # which any memory has
        if skip is not None:
            usable, reasons = skipping(rows.queries, scorer.row_check(loaded.engine)), EVERY_REASON
        parts = loaded(usable, size=EVALUATED, skip=reasons, progress=progress, tell=tell)
        by_rows = Calibrator(scorer.calibrate, scorer.demonstrations.labels)
        answers = chain.from_iterable(by_rows.corrected(parts, together=True))
    counted, truncated, message, last = 0, 0, "", loaded.members[0][-1].iteration
    for row in answers:
        if isinstance(row, Skipped):
            skipped[row.reason] += 1
            message = message or row.error
            if skip is not None:
                skip(row)
            continue
        counted += 1
        truncated += row.query.truncated > 0 and row.iteration == last
        yield row
        if observe is not None:
            observe(row)
    if not counted:
        raise InputError(f"{rows.split}: no row can be evaluated; the first: {message}")
    tell_of_truncated(truncated, tell)


def _warn(report: EvaluationReport, tell: Tell) -> None:
    """Warn of a bias toward one label that is not corrected, or not enough, and of rows that are demonstrations."""
    memory, calibrate = report.memory, report.calibrate
    corrected = report.evaluation.calibrated.get("".join(calibrate[:1]))
    if not calibrate:
        warn_of_one_label(report.evaluation.confusion, memory.corrected_in, tell)
    elif corrected is not None:
        warn_of_one_label(corrected.confusion, None, tell, calibrate)
    if (overlap := report.overlap) is not None:
        which, means = "all rows are", "the accuracy says nothing about new rows"
        if overlap.rest is not None:
            which, means = f"{overlap.rows} of {report.evaluation.n} rows are", "the others are reported apart"
        tell(Warn(f"{which} among the demonstrations of {memory.name}: {means}"))
