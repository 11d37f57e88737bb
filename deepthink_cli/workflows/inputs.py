"""Rows on their way through a workflow: checked before the model is loaded, and made into rows of output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import CANDIDATES, Query, read_queries
from deepthink_cli.data.rows import STDIN
from deepthink_cli.errors import Problems
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.prediction import Prediction
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring import check_length


@dataclass
class CheckedRows:
    """What a first look at a file's rows found.

    `count` rows, the longest with its longest candidate of `longest` bytes; `own_candidates` says that a row brings
    candidates of its own.
    """

    count: int = 0
    longest: int = 0
    own_candidates: bool = False


def check_rows(
    demonstrations: TokenizedDemonstrations, source: str, problems: Problems, labelled: bool = False
) -> CheckedRows | None:
    """Check every row of a file, in constant memory, before any model is loaded; mistakes go to `problems`.

    Standard input can be read only once: its rows are checked as they are scored, and None is returned.
    """
    if source == STDIN:
        return None
    checked = CheckedRows()
    template, labels = demonstrations.template, demonstrations.labels
    with problems.collected():
        for query in read_queries(source, template, labels, labelled, problems):
            checked.count += 1
            checked.longest = max(checked.longest, _bytes(demonstrations, query))
            checked.own_candidates = checked.own_candidates or _brings_candidates(query)
    return checked


def check_tokens(
    demonstrations: TokenizedDemonstrations, spec: ModelSpec, source: str, checked: CheckedRows | None
) -> None:
    """Tokenise the rows of a file that may be too long, or bring candidates, before the weights are loaded.

    Rows that were `checked` are not read again where none can be of that kind.
    """
    problems, length = Problems(), len(demonstrations.token_ids)
    most = spec.limits.most_tokens(length)
    # No tokenizer makes more tokens than there are bytes, so most rows need no second look.
    room = math.inf if most is None else most - length
    if checked is None or (checked.longest <= room and not checked.own_candidates):
        return
    for query in read_queries(source, demonstrations.template, demonstrations.labels):
        if _bytes(demonstrations, query) <= room and not _brings_candidates(query):
            continue
        with problems.collected():
            (tokenized,) = tokenize_queries(spec.tokenizer, demonstrations.template, [query])
            check_length(spec.limits, spec.id, length, tokenized)
    problems.raise_any()


def output_row(index: int, prediction: Prediction, several: bool) -> dict[str, Any]:
    """One row of output, as `deepthink predict` writes it; `several` says that there are several iterations."""
    row: dict[str, Any] = {"index": index}
    if several:
        row["iteration"] = prediction.iteration
    return {
        **row,
        "label": prediction.label,
        "probability": prediction.probability,
        "scores": prediction.scores,
        "input": {name: _jsonable(value) for name, value in (prediction.query.fields or {}).items()},
    }


def _bytes(demonstrations: TokenizedDemonstrations, query: Query) -> int:
    return len((demonstrations.template.query(query.text) + max(query.candidates, key=len)).encode())


def _brings_candidates(query: Query) -> bool:
    return CANDIDATES in (query.fields or {})


def _jsonable(value: Any) -> Any:
    """The field, or null for the NaN that pandas writes to Parquet where a value is missing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
