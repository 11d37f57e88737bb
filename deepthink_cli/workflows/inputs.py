"""Check rows of input before the model is loaded, and format rows of output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import CANDIDATES, Query, read_queries
from deepthink_cli.data.rows import RowSource
from deepthink_cli.errors import Problems
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.options import ScoreName
from deepthink_cli.prediction import Correction, Prediction
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring import check_length


@dataclass
class CheckedRows:
    """The result of checking a file's rows.

    `count` is the number of rows, `longest` the bytes of the longest row with its longest candidate; `own_candidates`
    says whether a row has candidates of its own; `other_labels` is the place of the first row whose candidates are not
    the memory's labels.
    """

    count: int = 0
    longest: int = 0
    own_candidates: bool = False
    other_labels: str | None = None


def check_rows(
    demonstrations: TokenizedDemonstrations, source: str | RowSource, problems: Problems, labelled: bool = False
) -> CheckedRows | None:
    """Check every row of a file, in constant memory, before any model is loaded; mistakes are added to `problems`.

    Standard input can be read only once: its rows are checked as they are scored, and None is returned.
    """
    if RowSource.of(source).is_stdin:
        return None
    checked = CheckedRows()
    template, labels = demonstrations.template, demonstrations.labels
    with problems.collected():
        for query in read_queries(source, template, labels, labelled, problems):
            checked.count += 1
            checked.longest = max(checked.longest, _bytes(demonstrations, query))
            checked.own_candidates = checked.own_candidates or _brings_candidates(query)
            if checked.other_labels is None and set(query.candidates) != set(labels):
                checked.other_labels = query.where
    return checked


def check_tokens(
    demonstrations: TokenizedDemonstrations,
    spec: ModelSpec,
    source: str | RowSource,
    checked: CheckedRows | None,
    score: ScoreName = "sum",
) -> None:
    """Tokenise the rows of a file that may be too long or have candidates, before the weights are loaded.

    The file is not read again if `checked` shows that it has no such row. Raises InputError for demonstrations that
    the tokenizer's chat template no longer writes as it did.
    """
    problems, length = Problems(), len(demonstrations.token_ids)
    tokenize = query_tokenizer(spec.tokenizer, demonstrations, score)
    most = spec.limits.most_tokens(length)
    # No text has more tokens than bytes, so most files need no tokenisation here; an end has at most one token.
    room = math.inf if most is None else most - length - tokenize.added - bool(tokenize.end)
    if checked is None or (checked.longest <= room and not checked.own_candidates):
        return
    for query in read_queries(source, demonstrations.template, demonstrations.labels):
        if _bytes(demonstrations, query) <= room and not _brings_candidates(query):
            continue
        with problems.collected():
            (tokenized,) = tokenize([query])
            check_length(spec.limits, spec.id, length, tokenized)
    problems.raise_any()


def output_row(
    index: int, prediction: Prediction, several: bool, calibrate: Sequence[str] = (), score: ScoreName = "sum"
) -> dict[str, Any]:
    """One row of output, as `deepthink predict` writes it; with `several`, including the iteration.

    Label and probability are those of the first calibration in `calibrate`, scores are the model's; `score` says which,
    unless they are sums.
    """
    row: dict[str, Any] = {"index": index}
    if several:
        row["iteration"] = prediction.iteration
    calibrated = {name: prediction.calibrated[name] for name in calibrate if name in prediction.calibrated}
    first = calibrated.get("".join(calibrate[:1]))
    answer = prediction if first is None else first.prediction
    row |= {"label": answer.label, "probability": answer.probability, **scored_by(score), "scores": prediction.scores}
    if calibrated:
        row["calibrated"] = {name: _correction(each) for name, each in calibrated.items()}
    return {
        **row,
        "input": {name: jsonable(value) for name, value in (prediction.query.fields or {}).items()},
    }


def scored_by(score: ScoreName) -> dict[str, str]:
    """What outputs say of the score: nothing for the default."""
    return {} if score == "sum" else {"score": score}


def _correction(correction: Correction) -> dict[str, Any]:
    return {
        "label": correction.prediction.label,
        "probability": correction.prediction.probability,
        "scores": correction.prediction.scores,
        correction.counted: correction.inputs,
        "bias": correction.bias,
    }


def _bytes(demonstrations: TokenizedDemonstrations, query: Query) -> int:
    return len((demonstrations.template.query(query.text) + max(query.candidates, key=len)).encode())


def _brings_candidates(query: Query) -> bool:
    return CANDIDATES in (query.fields or {})


def jsonable(value: Any) -> Any:
    """The value, or None for NaN, which pandas writes to Parquet for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
