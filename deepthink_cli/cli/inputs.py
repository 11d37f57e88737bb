"""Rows on their way through a command: checked before the model is loaded, and written out again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import Problems

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.data.examples import Query
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.prediction import Prediction


@dataclass
class Checked:
    """What a first look at a file's rows found: how many, the longest in bytes, and whether one brings candidates."""

    count: int = 0
    longest: int = 0
    own: bool = False


def check_inputs(header: Header, inputs: str, problems: Problems, labelled: bool = False) -> Checked | None:
    """Check every row of a file, in constant memory, before any model is loaded.

    Standard input can be read only once: its rows are checked as they are scored, and None is returned.
    """
    from deepthink_cli.data.examples import read_queries
    from deepthink_cli.data.rows import STDIN

    if inputs == STDIN:
        return None
    found = Checked()
    with problems.collected():
        for query in read_queries(inputs, header.metadata.template, header.metadata.labels, labelled, problems):
            found.count += 1
            found.longest = max(found.longest, _bytes(header, query))
            found.own = found.own or _brings_candidates(query)
    return found


def check_tokens(header: Header, spec: ModelSpec, inputs: str, checked: Checked | None) -> None:
    """Tokenise the rows of a file that may be too long, or carry candidates of their own, before the weights are loaded.

    Rows that were `checked` are not read again where none can be of that kind.
    """
    from deepthink_cli.data.examples import read_queries
    from deepthink_cli.model.tokens import tokenize_queries
    from deepthink_cli.scoring import check_length

    metadata, problems = header.metadata, Problems()
    length = len(metadata.demonstrations.token_ids)
    most = spec.limits.most_tokens(length)
    # No tokenizer makes more tokens than there are bytes, so most rows need no second look.
    room = math.inf if most is None else most - length
    if checked is None or (checked.longest <= room and not checked.own):
        return
    for query in read_queries(inputs, metadata.template, metadata.labels):
        if _bytes(header, query) <= room and not _brings_candidates(query):
            continue
        with problems.collected():
            (ids,) = tokenize_queries(spec.tokenizer, metadata.template, [query])
            check_length(spec.limits, spec.id, length, ids)
    problems.raise_any()


def _bytes(header: Header, query: Query) -> int:
    return len((header.metadata.template.query(query.text) + max(query.candidates, key=len)).encode())


def _brings_candidates(query: Query) -> bool:
    from deepthink_cli.data.examples import CANDIDATES

    return CANDIDATES in (query.fields or {})


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
