"""The rows of a file of samples as a table stores them: less than half of their bytes, and the same answers.

Scores are stored as whole units below the highest one of their row, so that what comes back are log-probabilities over
the candidates. What follows from them (the label, its probability, the corrected scores) is not stored. Answers stay as
they were, also after batch calibration over the rows of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.scoring.softmax import log_softmax

UNIT = 1e-4  # nats
IMPOSSIBLE = -1  # units of a candidate without a probability
SCORES, CALIBRATED, BIAS, LABEL, PROBABILITY = "scores", "calibrated", "bias", "label", "probability"
ROUNDED = (SCORES, CALIBRATED, BIAS, PROBABILITY)
SAMPLES = ("where", "gold", LABEL, PROBABILITY, "candidates", SCORES, CALIBRATED, BIAS)
WHERE, TEXT = "where", "text"
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def _without_batch_bias(scores: Floats) -> Floats:
    return CALIBRATIONS["batch"].fitted(scores).scores(None, scores)


def encoded(rows: pa.Table) -> pa.Table:
    """Rows with the units of their scores, and without what follows from other columns; texts are left out."""
    if rows.column_names == [WHERE, TEXT]:
        return rows.select([WHERE])
    if SCORES not in rows.column_names:
        return rows
    counts = rows[SCORES].combine_chunks().value_lengths().to_numpy()
    scores = _padded(rows, SCORES)
    units = _units(scores)
    stored = rows.drop_columns([name for name in (LABEL, PROBABILITY, CALIBRATED) if name in rows.column_names])
    if BIAS in stored.column_names:
        bias = _padded(rows, BIAS).astype(np.float32)
        stored = _put(stored, BIAS, _lists(bias, counts, pa.float32()))
        units = _corrected(units, _padded(rows, CALIBRATED).argmax(axis=1), lambda units: _scores(units) - bias)
    elif WHERE in stored.column_names and np.isfinite(scores).all():
        wanted = _without_batch_bias(scores).argmax(axis=1)
        units = _corrected(units, wanted, lambda units: _without_batch_bias(_scores(units)))
    return _put(stored, SCORES, _lists(units, counts, pa.int32()))


def decoded(rows: pa.Table, texts: Mapping[str, str]) -> pa.Table:
    """Rows with their scores, as files of samples have them, or with the texts of their inputs."""
    if rows.column_names == [WHERE]:
        return rows.append_column(TEXT, pa.array([texts[where] for where in rows[WHERE].to_pylist()], pa.string()))
    if SCORES not in rows.column_names:
        return rows
    counts = rows[SCORES].combine_chunks().value_lengths().to_numpy()
    scores = _scores(_padded(rows, SCORES))
    rows = _put(rows, SCORES, _lists(scores, counts, pa.float64()))
    if WHERE not in rows.column_names:
        return rows
    answers = scores
    if BIAS in rows.column_names:
        bias = _padded(rows, BIAS).astype(np.float64)
        answers = scores - bias
        rows = _put(rows, BIAS, _lists(bias, counts, pa.float64()))
        rows = rows.append_column(CALIBRATED, _lists(answers, counts, pa.float64()))
    best = answers.argmax(axis=1)
    candidates = rows["candidates"].to_pylist()
    labels = [each[place] for each, place in zip(candidates, best.tolist(), strict=True)]
    rows = rows.append_column(LABEL, pa.array(labels, pa.string()))
    rows = rows.append_column(PROBABILITY, pa.array(np.exp(log_softmax(answers)[np.arange(len(best)), best])))
    return rows.select([name for name in SAMPLES if name in rows.column_names])


def alike(first: pa.Table, second: pa.Table) -> bool:
    """Whether two tables have the same columns and types, and the same rows but for rounding."""
    exact = [name for name in first.column_names if name not in ROUNDED]
    return bool(first.schema.equals(second.schema) and first.select(exact).equals(second.select(exact)))


def _units(scores: Floats) -> Ints:
    """How far scores [n, C] are below the highest of their row; only those that are equal to it are at 0."""
    below = scores.max(axis=1, keepdims=True) - scores
    possible = np.isfinite(below)
    units = np.where(possible, np.maximum(np.rint(np.where(possible, below, 0) / UNIT), below > 0), IMPOSSIBLE)
    return units.astype(np.int32)


def _corrected(units: Ints, answers: NDArray[np.int64], correct: Callable[[Ints], Floats]) -> Ints:
    """Units of which a correction gives the same answers as of the scores before rounding."""
    while (wrong := correct(units).argmax(axis=1) != answers).any():
        units = units.copy()
        units[wrong] = _raised(units[wrong], answers[wrong])
    return units


def _raised(units: Ints, candidates: NDArray[np.int64]) -> Ints:
    """Units of rows [n, C] with one candidate of each raised by one above the others."""
    others = np.arange(units.shape[1]) != candidates[:, None]
    units = units + (others & (units != IMPOSSIBLE))
    possible = np.where(units == IMPOSSIBLE, np.iinfo(np.int32).max, units)
    return np.where(units == IMPOSSIBLE, IMPOSSIBLE, units - possible.min(axis=1, keepdims=True)).astype(np.int32)


def _scores(units: NDArray[np.float64] | Ints) -> Floats:
    return log_softmax(np.where(units == IMPOSSIBLE, -np.inf, -UNIT * units))


def _padded(rows: pa.Table, name: str) -> Floats:
    """The lists of a column as an array [n, C]; where a row has fewer candidates, these are impossible."""
    lists = rows[name].combine_chunks()
    counts = lists.value_lengths().to_numpy()
    padding = {SCORES: -np.inf if pa.types.is_floating(lists.type.value_type) else IMPOSSIBLE}.get(name, 0)
    padded = np.full((len(counts), counts.max()), padding, dtype=np.float64)
    padded[_filled(padded, counts)] = lists.flatten().to_numpy(zero_copy_only=False)
    return padded


def _lists(padded: NDArray[np.generic], counts: NDArray[np.int32], kind: pa.DataType) -> pa.ListArray:
    """An array as lists of the first values of each row."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(padded[_filled(padded, counts)], kind))


def _filled(padded: NDArray[np.generic], counts: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.arange(padded.shape[1]) < counts[:, None]


def _put(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)
