"""pandas: label the rows of a DataFrame with a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import text_value
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.plugins.sklearn.texts import given_values

if TYPE_CHECKING:
    import pandas as pd

    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory
    from deepthink_cli.provenance import TokenizedDemonstrations

ADDED = ("label", "probability")


def label_frame(engine: Engine, memory: Memory, frame: pd.DataFrame, chunk: int = 256) -> pd.DataFrame:
    """A copy of a frame with two more columns: each row's `label`, and its `probability` among the memory's labels.

    The memory's template names the columns that are read; all columns and the index are kept. `chunk` rows are scored
    together. Raises InputError, before the first row is scored, for a memory without labels, a missing or empty value,
    and a frame that already has one of the new columns; and as `predict` does.
    """
    from deepthink_cli.prediction.predict import predict

    if memory.provenance is None:
        raise InputError("this memory has no template; use one from think() or load_memory()")
    queries = _queries(memory.provenance.demonstrations, frame)
    predictions = list(predict(engine, memory, queries, chunk))
    return frame.assign(
        label=[prediction.label for prediction in predictions],
        probability=[prediction.probability for prediction in predictions],
    )


def _queries(demonstrations: TokenizedDemonstrations, frame: pd.DataFrame) -> list[Query]:
    """One query a row; raises InputError with every mistake."""
    names, columns = demonstrations.template.text_fields, list(frame.columns)
    problems = Problems()
    if not demonstrations.labels:
        problems.add("this memory has no labels of its own; use predict() with queries that have candidates")
    problems.add(*[f"column {name!r} would be overwritten; rename it" for name in ADDED if name in columns])
    for name in names:
        if columns.count(name) != 1:
            problems.add(f"{columns.count(name)} columns are called {name!r}; the memory's template needs one")
    problems.raise_any()
    queries = []
    for place, *values in zip(frame.index, *(given_values(frame[name]) for name in names), strict=True):
        with problems.collected():
            texts = {name: text_value(value, f"row {place}", name) for name, value in zip(names, values, strict=True)}
            queries.append(Query(texts, demonstrations.labels))
    problems.raise_any()
    return queries
