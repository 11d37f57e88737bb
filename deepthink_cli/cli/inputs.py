"""Rows on their way through a command: checked before the model is loaded, and written out again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import Problems

if TYPE_CHECKING:
    from deepthink_cli.artifact import Header
    from deepthink_cli.blueprint import Blueprint
    from deepthink_cli.prediction import Prediction


def check_inputs(header: Header, inputs: str, problems: Problems, labelled: bool = False) -> int | None:
    """Check every row of a file, in constant memory, before any model is loaded; returns their number.

    Standard input can be read only once: its rows are checked as they are scored, and None is returned.
    """
    from deepthink_cli.examples import read_queries
    from deepthink_cli.rows import STDIN

    if inputs == STDIN:
        return None
    count = 0
    with problems.collected():
        for _ in read_queries(inputs, header.metadata.template, header.metadata.labels, labelled, problems):
            count += 1
    return count


def check_tokens(header: Header, blueprint: Blueprint, inputs: str) -> None:
    """Tokenise the rows of a file that may be too long, or carry candidates of their own, before the weights are loaded."""
    from deepthink_cli.examples import CANDIDATES, read_queries
    from deepthink_cli.rows import STDIN
    from deepthink_cli.scoring import check_length
    from deepthink_cli.tokens import tokenize_queries

    if inputs == STDIN:
        return
    metadata, problems = header.metadata, Problems()
    length, most = len(metadata.demonstrations.token_ids), blueprint.limits.most_tokens()
    for query in read_queries(inputs, metadata.template, metadata.labels):
        # No tokenizer makes more tokens than there are bytes, so most rows need no second look.
        longest = max(query.candidates, key=len)
        room = most is None or length + len((metadata.template.query(query.text) + longest).encode()) <= most
        if room and CANDIDATES not in (query.fields or {}):
            continue
        with problems.collected():
            (ids,) = tokenize_queries(blueprint.tokenizer, metadata.template, [query])
            check_length(blueprint.limits, blueprint.id, length, ids, query.where)
    problems.raise_any()


def output_row(index: int, prediction: Prediction, several: bool) -> dict[str, Any]:
    """One row of output (DESIGN 4.4)."""
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


def _jsonable(value: Any) -> Any:
    """The field, or null for the NaN that pandas writes to Parquet where a value is missing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
