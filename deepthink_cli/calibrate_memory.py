"""Store a correction with a memory: the workflow of `deepthink calibrate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import Header, check_replaceable, read_header
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.calibrator import calibrated_by_texts
from deepthink_cli.calibration.labelled import (
    OWN_ROWS,
    by_memory,
    calibrated_by_rows,
    check_demonstrations,
    observed_demonstrations,
)
from deepthink_cli.calibration.notes import check_storable
from deepthink_cli.calibration.registry import HEAD, MOST_UNLABELLED, NONE, THRESHOLDS, CorrectionOptions, calibration
from deepthink_cli.data.examples import Example, Query, Skipped
from deepthink_cli.data.same_input import input_keys, is_among
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Progress, Tell, Warn, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import thresholds_of
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.heads import observed_layers
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tasks.rows import EvaluatedRows, rows_of_file
from deepthink_cli.tasks.splits import sampled

if TYPE_CHECKING:
    from deepthink_cli.corrections import Calibrated, Thresholds

DEMONSTRATION = "demonstrations of the memory, which has read their labels"


def calibrate(
    memory: str | Path,
    rows: str | Path | RowSource | None = None,
    output: str | Path | None = None,
    *,
    calibrate: str | None = None,
    unlabelled: str | Path | RowSource | None = None,
    scoring: Scoring = PLAIN,
    limit: int | None = None,
    options: ModelOptions | None = None,
    tell: Tell = silent,
) -> Header:
    """Estimate the bias of a memory toward some labels and write the memory with it; return the header of its file.

    Args:
        memory: a memory file, all of whose iterations get a bias of their own, and T = 1 as well.
        rows: a file of rows that are like those to be labelled; their labels are only read for corrections
            that are fitted to them, such as `fitted`, `head` and `thresholds`.
        output: the new file; without it, the memory's own file is replaced. The tensors stay as they are.
        calibrate: the calibration; by default `batch` with rows, `contextual` without, and `head` with rows without
            labels. `none` removes a correction. `head` is of the demonstrations if no rows are given. Rows with
            several labels have `thresholds`, by default, or `head`, whose shares have thresholds, too.
        unlabelled: a file of more rows, whose labels are not read. The head is fitted to a sample of them, too.
        scoring: the scoring whose scores are corrected; the correction is used with this scoring only.
        limit: a number of rows, of which a fixed sample is then used.
        options: how to load the model that made the memory; unset options are taken from the memory.
        tell: called with every event.

    Raises InputError for a memory, rows or a calibration that do not fit each other, and as `open_memory` does.
    """
    header = read_header(memory)  # refuses other files before torch is imported

    from deepthink_cli.artifact.files import save_calibrated

    usual = HEAD if unlabelled is not None else "contextual" if rows is None else "batch"
    name = CorrectionOptions.checked(calibrate=calibrate).calibrate or usual
    limit, output = TaskOptions.checked(limit=limit).limit, memory if output is None else output
    check_replaceable(output)
    if name == NONE:
        given = {} if unlabelled is None else {"unlabelled": RowSource.of(unlabelled).path}
        for field, value in {**given, **scoring.recorded}.items():
            raise InputError.of(field, value, "has no meaning where a correction is removed; omit it")
        return save_calibrated(header, None, output)
    scorer = Scorer.open(memory, iteration="all", scoring=scoring, calibrate=(NONE,))
    if calibrate is None and rows is not None and scorer.gives_several:
        name = THRESHOLDS
    takes = not scorer.gives_several and name != THRESHOLDS and calibration(name).takes_unlabelled
    if unlabelled is not None and not takes:
        of = "memories of rows with one label" if scorer.gives_several else f"{option('calibrate')} {HEAD}, not {name}"
        raise InputError.of("unlabelled", RowSource.of(unlabelled).path, f"rows without labels are for {of}; omit it")
    evaluated = _checked(scorer, name, rows, limit)
    more = None if unlabelled is None else _checked_unlabelled(scorer, name, unlabelled, evaluated)
    if evaluated is not None and not any(isinstance(row, Query) for row in _unread(evaluated)):
        of_own = not scorer.gives_several and calibration(name).of_states
        instead = ", or omit them: its demonstrations are then used" if of_own else ""
        found = f"{evaluated.split}: all rows are demonstrations of {scorer.memory.name}"
        raise InputError(f"{found}; give others{instead}")
    spec = scorer.find(options, tell)
    if not scorer.gives_several:
        check_inputs([name], scorer.demonstrations, spec, scoring)
    for each in (evaluated, more):
        if each is not None:
            scorer.check_tokens(spec, each.source or each.split, each.checked)
    loaded = scorer.load(spec, tell).with_first_reading()
    correction = thresholds = None
    if scorer.gives_several and evaluated is not None:
        thresholds = _thresholds(loaded, name, evaluated, tell)
    else:
        correction = _correction(loaded, name, evaluated, more, tell)
    return save_calibrated(read_header(memory), correction, output, thresholds)  # it may have been replaced meanwhile


def _thresholds(loaded: Loaded, name: str, rows: EvaluatedRows, tell: Tell) -> Thresholds:
    """The thresholds of a memory, of the shares of label scores or of a head."""
    (memories,), scorer = loaded.members, loaded.scorer
    layers = observed_layers(len(memories[0].keys)) if name == HEAD else ()
    measured = _measured(loaded, rows, name == HEAD, tell)
    return thresholds_of(measured, scorer.memory.provenance, Path(rows.split).name, scorer.scoring, layers)


def _correction(
    loaded: Loaded, name: str, rows: EvaluatedRows | None, more: EvaluatedRows | None, tell: Tell
) -> Calibrated:
    """The correction of a memory by a calibration, estimated from texts, from rows or from the demonstrations."""
    (memories,), scoring, method = loaded.members, loaded.scorer.scoring, calibration(name)
    if not method.from_rows:
        return calibrated_by_texts(loaded.engine, memories, name, scoring)
    source = OWN_ROWS if rows is None else Path(rows.split).name
    measured = _measured(loaded, rows, method.of_states, tell)
    unlabelled = [] if more is None else _measured(loaded, more, True, tell)
    tell(Progress("fitting", 0, 1))
    of_more = "" if more is None else Path(more.split).name
    found = calibrated_by_rows(method, measured, memories, source, scoring, unlabelled, of_more)
    tell(Progress("fitting", 1, 1))
    if unlabelled and found.unlabelled is None:
        tell(Warn(f"{of_more} is not used: with these rows, the true labels of held-out rows are less likely"))
    return found


def _measured(loaded: Loaded, rows: EvaluatedRows | None, observes: bool, tell: Tell) -> list[list[Prediction]]:
    """The rows, or the demonstrations, after each memory; warns of rows that are left out, such as demonstrations."""
    (memories,), scoring = loaded.members, loaded.scorer.scoring
    found: Iterable[Prediction | Skipped]
    if rows is None:
        provenance, iterations = memories[-1].origin, [memory.iteration for memory in memories]
        count = len(provenance.demonstrations.examples)
        found = observed_demonstrations(loaded.engine, provenance, iterations, scoring, tell)
    else:
        count, progress = rows.count, Progress("calibrating", 0, rows.count)
        layers = observed_layers(len(memories[0].keys)) if observes else ()
        parts = loaded(_unread(rows), size=EVALUATED, skip=UNSCORABLE, layers=layers, progress=progress, tell=tell)
        found = chain.from_iterable(parts)
    return by_memory(_kept(found, count, tell))


def _checked(scorer: Scorer, name: str, rows: str | Path | RowSource | None, limit: int | None) -> EvaluatedRows | None:
    """The rows for the estimate of a correction, None for texts; raises InputError if it cannot be estimated."""

    def refused(reason: str) -> InputError:
        return InputError.of("calibrate", name, reason)

    memory, method = scorer.memory, None if name == THRESHOLDS else calibration(name)
    if method is not None and method.of_states and scorer.scoring.of_parts:
        raise refused(f"compares hidden states after a whole memory; not with {scorer.scoring}")
    if method is None and not scorer.gives_several:
        raise refused("is for memories of rows with several labels; use fitted")
    if method is None or (name == HEAD and scorer.gives_several):
        if rows is None:
            raise refused("is fitted on labelled rows; give a file of them")
        return rows_of_file(memory, rows, limit)
    check_storable(name, memory.provenance.demonstrations, memory.name)
    if rows is None:
        if method.of_states:
            check_demonstrations(method, memory.provenance, memory.name)
        elif method.from_rows:
            raise refused("is estimated from rows; give a file of them, or use contextual")
        return None
    if not method.from_rows:
        raise refused("is estimated from texts of its own; omit the rows, or use batch")
    evaluated = rows_of_file(memory, rows, limit, labelled=method.labelled)
    method.check_count(evaluated.count)
    _check_labels(name, evaluated)
    return evaluated


def _checked_unlabelled(
    scorer: Scorer, name: str, source: str | Path | RowSource, labelled: EvaluatedRows | None
) -> EvaluatedRows:
    """A sample of the rows that are neither labelled nor demonstrations; raises InputError if there are none."""
    given = RowSource.of(source)
    if given.read_once:
        raise InputError.of("unlabelled", given.path, "is read several times; give a file")
    rows = rows_of_file(scorer.memory, source, labelled=False)
    _check_labels(name, rows)
    read, with_labels = rows.demonstrations, () if labelled is None else labelled.queries
    known: list[Query | Example] = [*read.examples, *(row for row in with_labels if isinstance(row, Query))]
    is_known = is_among(known, read.template, read.labels)
    others = {  # one of each input
        min(input_keys(row, read.template, read.labels)): place
        for place, row in enumerate(rows.queries)
        if isinstance(row, Query) and not is_known(row)
    }
    if not others:
        reason = f"all rows are demonstrations of {scorer.memory.name} or among the labelled rows; give others"
        raise InputError.of("unlabelled", given.path, reason)
    places = frozenset(sampled([*others.values()], MOST_UNLABELLED))
    chosen = [row for place, row in enumerate(rows.queries) if place in places]
    return replace(rows, queries=chosen, count=len(chosen))


def _check_labels(name: str, rows: EvaluatedRows) -> None:
    """Raise InputError for a row whose candidates are not the memory's labels."""
    if rows.checked is not None and (where := rows.checked.other_labels) is not None:
        raise InputError(f"{where}: has candidates of its own, and {name} is of the memory's labels; leave the row out")


def _kept(rows: Iterable[Prediction | Skipped], count: int, tell: Tell) -> Iterator[Prediction]:
    """The rows that are not skipped; warns at the end of the skipped rows."""
    left_out = Counter[str]()
    for row in rows:
        if isinstance(row, Skipped):
            left_out[row.reason] += 1
        else:
            yield row
    for reason, number in left_out.items():
        tell(Warn(f"{number} of {count} rows are left out: {reason}"))


def _unread(rows: EvaluatedRows) -> Iterator[Query | Skipped]:
    """The rows; demonstrations, whose labels the memory has read, are skipped."""
    read = rows.demonstrations
    was_read = is_among(read.examples, read.template, read.labels)
    for row in rows.queries:
        if isinstance(row, Query) and was_read(row):
            yield Skipped((f"{row.where}: a demonstration of the memory",), DEMONSTRATION)
        else:
            yield row
