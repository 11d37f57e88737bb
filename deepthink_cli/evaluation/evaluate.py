"""Evaluate a memory on labelled rows: what `deepthink eval` does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.advice import few_demonstrations, few_evaluated, no_better_than_constant, no_difference
from deepthink_cli.artifact.metadata import rule_as_json
from deepthink_cli.artifact.opening import (
    OpenedMemory,
    check_memories,
    find_its_model,
    load_both,
    opened,
    with_first_reading,
)
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.extended_labels import check_labels
from deepthink_cli.calibration.notes import check_count, check_supported, row_check, skipping, warn_of_one_label
from deepthink_cli.calibration.registry import NONE, from_rows
from deepthink_cli.calibration.stored import in_use
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.evaluation import Evaluation, Evaluator, Overlap, OverlapEvaluator, warn_of_overlap
from deepthink_cli.evaluation.judged import ACCURACY, LOG_PROBABILITY, Judged
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.generation.answers import answered
from deepthink_cli.io.text import html_paragraphs
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import has_several
from deepthink_cli.options import Keep, ScoreName
from deepthink_cli.prediction.labeller import members_of
from deepthink_cli.prediction.predict import open_ensemble
from deepthink_cli.prediction.rows import scored_by
from deepthink_cli.scoring.inputs import check_tokens
from deepthink_cli.scoring.pipeline import ANYTHING, EVALUATED, UNSCORABLE, longest_of, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import Probed, probe
from deepthink_cli.scoring.truncation import truncated
from deepthink_cli.tasks.evaluated import EvaluatedRows, check_read_for, rows_of_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class EvaluationReport:
    """The content of `deepthink eval --json`: the metrics of every iteration, and the rows and memory evaluated.

    `calibrate` names the calibrations; `applied`, `judged` and `accuracy` are those by the first, or by the raw scores.
    `ensemble` names the memories whose log-probabilities were averaged with the memory's. `score` is what was compared
    of them. `overlap` is set if rows are among the demonstrations. `unused_chat` says whether the model has a chat
    template that the memory does not use. `metric` is that of `judged`.
    """

    evaluation: Evaluation
    memory: OpenedMemory
    task: str | None
    split: str
    protocol: str | None
    skipped: dict[str, int]
    seconds: float
    calibrate: tuple[str, ...] = ()
    ensemble: tuple[str, ...] = ()
    score: ScoreName = "sum"
    overlap: Overlap | None = None
    unused_chat: bool = False
    metric: str = ACCURACY

    @property
    def inputs_per_second(self) -> float:
        """Evaluated rows per second, including the time to load the model, if it was loaded."""
        return self.evaluation.n / self.seconds

    @property
    def applied(self) -> Evaluation:
        """The evaluation of the predictions by the first calibration; that of the raw scores if none was named."""
        return self.evaluation.calibrated.get("".join(self.calibrate[:1]), self.evaluation)

    @property
    def judged(self) -> Judged:
        """The metric of the last iteration, by the first calibration: what `--fail-under` compares."""
        found = self.applied.probabilities if self.metric == LOG_PROBABILITY else self.applied.results
        return Judged.of(found, self.metric, self.applied.n, (*self.calibrate, NONE)[0])

    @property
    def accuracy(self) -> float:
        """The accuracy of the last iteration, by the first calibration."""
        return self.applied.last.accuracy

    @property
    def advice(self) -> list[str]:
        """What to do next by what was seen, one sentence for each sign: few rows of a label, no use, no effect of T."""
        applied, demonstrations = self.applied, self.memory.provenance.demonstrations
        last = max(applied.results)
        changes = applied.changes.get(last)
        useless = no_better_than_constant(applied.last.accuracy, applied.majority, self.unused_chat)
        return [
            *few_demonstrations(demonstrations.label_counts),
            *few_evaluated(applied.true_labels),
            *(useless or ([] if changes is None else no_difference(last, changes.p))),
        ]

    def _repr_html_(self) -> str:
        """The memory, the rows and the tables of the evaluation, for notebooks."""
        made = self.memory.provenance
        lines = [
            f"{self.memory.name}: {len(made.demonstrations.examples)} demonstrations, {made.model.id}",
            f"{self.task or made.task or 'rows'}, {self.split}",
            *(f"skipped {count}: {reason}" for reason, count in self.skipped.items()),
        ]
        return html_paragraphs(lines) + "\n" + self.evaluation._repr_html_()

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        provenance, method = self.memory.provenance, self.memory.provenance.method
        memory = {
            "file": self.memory.name,
            "model": provenance.model.id,
            **rule_as_json(method.update),
            "positions": method.positions,
            "iterations": method.iterations,
            "kept": list(self.memory.kept),
            "shots": len(provenance.demonstrations.examples),
            "sha256": self.memory.sha256,
            **({"technique": str(provenance.technique)} if provenance.technique else {}),
        }
        return {
            "task": self.task or provenance.task,
            "split": self.split,
            "protocol": self.protocol,
            "skipped": self.skipped,
            **scored_by(self.score, self.memory.reread),
            **({} if self.memory.nearest is None else {"nearest": self.memory.nearest}),
            "judged": asdict(self.judged),
            **self.evaluation.as_json(),
            **({"demonstrations_among_rows": self.overlap.as_json()} if self.overlap else {}),
            "memory": memory,
            **({"ensemble": list(self.ensemble)} if self.ensemble else {}),
            "seconds": self.seconds,
            "inputs_per_second": self.inputs_per_second,
            "next": self.advice,
        }


def evaluate(
    memory: str | Path | OpenedMemory | Memory | Sequence[Memory],
    rows: str | Path | RowSource | EvaluatedRows,
    *,
    iteration: int | str = "all",
    options: ModelOptions | None = None,
    engine: Engine | None = None,
    calibrate: Sequence[str] = (),
    observe: Callable[[Prediction], None] | None = None,
    ensemble: Sequence[str | Path | OpenedMemory] = (),
    score: ScoreName = "sum",
    reread: int | None = None,
    nearest: int | None = None,
    skip: Callable[[Skipped], None] | None = None,
    truncate: Keep | None = None,
    tell: Tell = silent,
) -> EvaluationReport:
    """Evaluate a memory on labelled rows, next to plain in-context learning (T = 1) and the majority class.

    Args:
        memory: a file, the result of `open_memory`, or memories from think().
        rows: a file of labelled rows, or the result of `rows_of_file` or `rows_of_task`, which take a memory first.
        iteration: which kept iterations of a file: a number, several as in `1,5`, `last` or `all`.
        options: how to load the model that made the memory; unset options are taken from the memory.
        engine: the model, if it is already loaded.
        calibrate: names of calibrations, without any the correction that the memory stores; all rows are in memory
            together for those that are estimated from the rows.
        observe: called with every prediction; each row has one per iteration.
        ensemble: further memories like this one; the mean log-probabilities over all of them are evaluated.
        score: as in `predict`; a warning names labels that it never chooses.
        reread: how often a query is written before its candidates; None keeps what an opened memory says, else 1.
        nearest: how many demonstrations of a composed memory a query attends to; None keeps what an opened memory says.
        skip: called with every row that cannot be read, tokenised or scored; without it, such a row raises.
        truncate: what is read of a text that is too long for the model, its end or its start.
        tell: called with every event (`deepthink_cli.events`).

    Raises InputError for a memory, rows or calibrations that do not fit, as `open_memory` and `rows_of_file` do.
    """
    memory = opened(memory, iteration)
    memory = (memory if reread is None else memory.asked_again(reread)).attending_to(nearest)
    ready = _ready(
        memory, rows, iteration, options, engine, calibrate, ensemble, score, skip is not None, truncate, tell
    )
    rows, others, skipped = ready.rows, ready.others, Counter(ready.rows.skipped)
    scoring = (ready.engine, ready.members, rows, skipped, ready.calibrate)
    evaluation, overlap = _evaluate(*scoring, observe, score, skip, truncate, tell)
    seconds, names = time.perf_counter() - ready.started, tuple(each.name for each in others)
    _warn(evaluation, overlap, memory, ready.calibrate, tell)
    described = (rows.task, rows.split, rows.protocol, dict(skipped), seconds)
    scored = (tuple(ready.calibrate), names, score, overlap)
    return EvaluationReport(evaluation, memory, *described, *scored, _unused_chat(ready))


def probe_evaluation(
    memory: OpenedMemory,
    rows: EvaluatedRows,
    *,
    options: ModelOptions | None = None,
    calibrate: Sequence[str] = (),
    ensemble: Sequence[OpenedMemory] = (),
    score: ScoreName = "sum",
    skip: bool = False,
    truncate: Keep | None = None,
    tell: Tell = silent,
) -> Probed:
    """Time a sample of the rows that `evaluate`, with the same arguments, would evaluate.

    The loading includes the reading of T = 1. Raises InputError as `evaluate` does.
    """
    ready = _ready(memory, rows, "all", options, None, calibrate, ensemble, score, skip, truncate, tell)
    engine, members = ready.engine, ready.members
    loading = time.perf_counter() - ready.started

    skipping, by_rows = _skipped(skip), from_rows(ready.calibrate)
    from_texts = Calibrator(engine, members, [name for name in ready.calibrate if name not in by_rows], score)

    def label(sample: Iterable[Query | Skipped]) -> Iterator[Prediction | Skipped]:
        parts = predictions(engine, members, sample, size=EVALUATED, score=score, skip=skipping)
        return chain.from_iterable(from_texts.corrected(parts))

    queries = _usable(engine, members, ready.rows, ready.calibrate, score, skip, truncate, tell)
    probed, _ = probe(engine, members, queries, rows.count, label, score=score, skip=skipping, loading=loading)
    if not probed.scored:
        raise _nothing(rows, min(probed.skipped, key=itemgetter(0))[1].error)
    return probed


@dataclass(frozen=True)
class _Ready:
    """What an evaluation uses: the model and the memories, loaded since `started`, and what was checked with them."""

    engine: Engine
    members: list[list[Memory]]
    others: tuple[OpenedMemory, ...]
    rows: EvaluatedRows
    calibrate: tuple[str, ...]
    started: float


def _ready(
    memory: OpenedMemory,
    rows: str | Path | RowSource | EvaluatedRows,
    iteration: int | str,
    options: ModelOptions | None,
    engine: Engine | None,
    calibrate: Sequence[str],
    ensemble: Sequence[str | Path | OpenedMemory],
    score: ScoreName,
    skip: bool,
    truncate: Keep | None,
    tell: Tell,
) -> _Ready:
    """Check what is evaluated, and load the model unless it is loaded; raises InputError as `evaluate` says."""
    if has_several(memory.provenance):
        raise InputError(f"{memory.name}: rows may have several labels; use evaluate_label_sets, or deepthink eval")
    others = open_ensemble(memory, ensemble, iteration)
    rows = rows if isinstance(rows, EvaluatedRows) else rows_of_file(memory, rows, skip=skip)
    _check_rows(rows, memory, calibrate, ensemble, score)
    calibrate = in_use(calibrate, [memory, *others], score) if rows.free is None else ()
    check_supported(calibrate, memory, rows.checked if not skip else None)
    if engine is None:
        spec = find_its_model(memory, options, tell)
        check_inputs(calibrate, memory.provenance.demonstrations, spec, score)
        for each in (memory, *others) if not skip and truncate is None else ():
            check_tokens(each.provenance.demonstrations, spec, rows.source or rows.split, rows.checked, score)
        _warn_of_extended(spec.tokenizer, rows, score, calibrate, tell)
        started = time.perf_counter()
        engine, stored = load_both(memory, spec, tell)
    else:
        started, stored = time.perf_counter(), memory.read_by(engine)
        check_memories(memory, stored, engine, tell)
        _warn_of_extended(engine.tokenizer, rows, score, calibrate, tell)
    members = [with_first_reading(engine, member) for member in (stored, *members_of(others, engine, tell))]
    return _Ready(engine, members, others, rows, tuple(calibrate), started)


def _unused_chat(ready: _Ready) -> bool:
    """Whether the model has a chat template that the memory does not use."""
    used = ready.rows.demonstrations.chat is not None
    return not used and bool(getattr(ready.engine.tokenizer, "chat_template", None))


def _check_rows(
    rows: EvaluatedRows, memory: OpenedMemory, calibrate: Sequence[str], ensemble: Sequence[object], score: ScoreName
) -> None:
    """Raise InputError for rows of another memory, for options of scores of generated answers, and for too few rows."""
    check_read_for(rows, memory)
    check_count(calibrate, rows.count)
    wrong: dict[tuple[str, Any], Any] = {("calibrate", None): calibrate, ("ensemble", None): ensemble}
    wrong |= {("score", score): score != "sum", ("nearest", memory.nearest): memory.nearest}
    for (field, value), given in wrong.items():
        if rows.free is not None and given:
            raise InputError.of(field, value, f"task {rows.task} has free answers, which have no scores; omit it")


def _warn_of_extended(
    tokenizer: PreTrainedTokenizerBase, rows: EvaluatedRows, score: ScoreName, calibrate: Sequence[str], tell: Tell
) -> None:
    """Warn of labels and candidates that the score never chooses."""
    if rows.free is not None:
        return
    with_candidates = rows.checked.own_candidates if rows.checked is not None else not rows.demonstrations.labels
    extended = check_labels(tokenizer, rows.demonstrations, score, calibrate, tell)
    if extended and with_candidates:
        extended.check_rows(rows.queries, rows.demonstrations.labels)


def _evaluate(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    rows: EvaluatedRows,
    skipped: Counter[str],
    calibrate: Sequence[str],
    observe: Callable[[Prediction], None] | None,
    score: ScoreName,
    skip: Callable[[Skipped], None] | None,
    truncate: Keep | None,
    tell: Tell,
) -> tuple[Evaluation, Overlap | None]:
    known = [member[0].provenance.demonstrations for member in members if member[0].provenance]
    iterations = [memory.iteration for memory in members[0]]
    evaluator = Evaluator(iterations, known[0].labels, calibrate)
    overlap = OverlapEvaluator(known, iterations, calibrate)
    scored = scored_rows(engine, members, rows, calibrate, score, skip is not None, truncate, tell)
    for row in without_skipped(scored, rows, skipped, skip):
        evaluator.add(row)
        overlap.add(row)
        if observe is not None:
            observe(row)
    return evaluator.result(), overlap.result()


def without_skipped(
    scored: Iterable[Prediction | Skipped],
    rows: EvaluatedRows,
    skipped: Counter[str],
    skip: Callable[[Skipped], None] | None,
) -> Iterator[Prediction]:
    """Yield the predictions; count the rows that are skipped, by their reasons, and give them to `skip`.

    Raises InputError if no row is left.
    """
    counted, message = 0, ""
    for row in scored:
        if isinstance(row, Skipped):
            skipped[row.reason] += 1
            message = message or row.error
            if skip is not None:
                skip(row)
        else:
            counted += 1
            yield row
    if not counted:
        raise _nothing(rows, message)


def _nothing(rows: EvaluatedRows, message: str) -> InputError:
    return InputError(f"{rows.split}: no row can be evaluated, as the first one: {message}")


def scored_rows(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    rows: EvaluatedRows,
    calibrate: Sequence[str],
    score: ScoreName,
    skip: bool,
    truncate: Keep | None,
    tell: Tell,
) -> Iterator[Prediction | Skipped]:
    """The corrected predictions of every row, in order, or the generated and judged answers to it."""
    if rows.free is not None:
        progress = Progress("generating", 0, rows.count)
        return answered(engine, members[0], rows.free, rows.queries, tell, progress)
    queries = _usable(engine, members, rows, calibrate, score, skip, truncate, tell)
    parts = predictions(
        engine,
        members,
        queries,
        size=EVALUATED,
        score=score,
        skip=_skipped(skip),
        tell=tell,
        progress=Progress("evaluating", 0, rows.count),
    )
    calibrator = Calibrator(engine, members, calibrate, score)
    return chain.from_iterable(calibrator.corrected(parts, together=True))


def _usable(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    rows: EvaluatedRows,
    calibrate: Sequence[str],
    score: ScoreName,
    skip: bool,
    truncate: Keep | None,
    tell: Tell,
) -> Iterable[Query | Skipped]:
    """The queries of the rows, checked where bad ones are skipped, and truncated where that is asked for."""
    provenance = members[0][0].provenance
    assert provenance is not None
    check = row_check(calibrate, provenance.demonstrations, engine.tokenizer, engine.limits, engine.identity.id, score)
    queries = skipping(rows.queries, check) if skip else rows.queries
    if truncate is not None:
        queries = truncated(queries, engine.tokenizer, engine.limits, longest_of(members), truncate, score, tell)
    return queries


def _skipped(skip: bool) -> Collection[str]:
    """The reasons for which rows are skipped: also without `skip`, those of rows that no memory can score."""
    return ANYTHING if skip else UNSCORABLE


def _warn(
    evaluation: Evaluation, overlap: Overlap | None, memory: OpenedMemory, calibrate: Sequence[str], tell: Tell
) -> None:
    """Warn of a bias toward one label that nothing corrects, or not enough, and of rows that are demonstrations."""
    corrected = evaluation.calibrated.get("".join(calibrate[:1]))
    if not calibrate:
        warn_of_one_label(evaluation.confusion, memory.corrected_in, tell)
    elif corrected is not None:
        warn_of_one_label(corrected.confusion, None, tell, calibrate)
    warn_of_overlap(overlap, evaluation.n, memory.name, tell)
