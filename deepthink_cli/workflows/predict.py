"""Label a file of inputs with a memory: the workflow of `deepthink predict`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from deepthink_cli.calibrating.basis import check_inputs
from deepthink_cli.calibrating.calibrator import Calibrator
from deepthink_cli.data.examples import read_queries
from deepthink_cli.data.rows import RowSource
from deepthink_cli.errors import Problems
from deepthink_cli.options import ModelOptions, ScoreName
from deepthink_cli.prediction import CHUNK, Prediction, predict_chunks, predict_mean
from deepthink_cli.workflows.calibrations import OneLabelWarning, check_supported, tell_of_bias
from deepthink_cli.workflows.ensemble import members_of, open_ensemble
from deepthink_cli.workflows.events import Progress, Tell, silent
from deepthink_cli.workflows.extended_labels import check_labels
from deepthink_cli.workflows.inputs import CheckedRows, check_rows, check_tokens
from deepthink_cli.workflows.memories import OpenedMemory, find_its_model, load_both, opened


def predict_file(
    memory: str | Path | OpenedMemory,
    inputs: str | RowSource,
    *,
    iteration: int | str = "last",
    options: ModelOptions | None = None,
    checked: CheckedRows | None = None,
    chunk: int = CHUNK,
    calibrate: Sequence[str] = (),
    ensemble: Sequence[str | Path | OpenedMemory] = (),
    score: ScoreName = "sum",
    tell: Tell = silent,
) -> Iterator[list[Prediction]]:
    """Yield a list of predictions for every `chunk` of rows in a file, or on standard input (`-`).

    For each row, one prediction for each iteration, by the mean log-probability over the memory and the `ensemble`;
    `score` is as in `predict`, with a warning for labels that it never chooses.
    Rows are checked before the model is loaded, unless the caller has `checked` them. Each is corrected by the
    calibrations in `calibrate`; a bias of the rows is that of all rows up to the end of the chunk. Raises InputError
    with every mistake in a file, or at the first bad row of standard input, for a calibration that the memory or a row
    does not support, and for memories that do not fit together.
    """
    memory = opened(memory, iteration)
    others = open_ensemble(memory, ensemble, iteration)
    demonstrations = memory.provenance.demonstrations
    if checked is None:
        problems = Problems()
        checked = check_rows(demonstrations, inputs, problems)
        problems.raise_any()
    check_supported(calibrate, memory, checked)
    spec = find_its_model(memory, options, tell)
    check_inputs(calibrate, demonstrations, spec, score)
    for each in (memory, *others):
        check_tokens(each.provenance.demonstrations, spec, inputs, checked, score)
    labels = demonstrations.labels
    queries = partial(read_queries, inputs, demonstrations.template, labels)
    extended = check_labels(spec.tokenizer, demonstrations, score, calibrate, tell)
    if extended and checked is not None and checked.own_candidates:
        extended.check_rows(queries(), labels)
    engine, memories = load_both(memory, spec, tell)
    members = members_of(others, engine, tell)
    rows = extended.watched(queries(), labels) if extended and checked is None else queries()
    done, total = 0, None if checked is None else checked.count
    predict = partial(predict_mean, engine, [memories, *members], score=score)
    calibrator = Calibrator(engine, memories, demonstrations, calibrate, predict, score)
    warning, part = OneLabelWarning(labels, silent if calibrate else tell), list[Prediction]()
    for raw in predict_chunks(engine, memories, rows, chunk, members, score):
        part = calibrator(raw)
        yield part
        warning.add(part)
        done += len(part) // len(memories)
        tell(Progress("predicting", done, total))
    warning.end()
    tell_of_bias(part, labels, tell)
