"""The rows that `deepthink generate` answers, and the rows that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.data.examples import Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.decoding import Decoding
from deepthink_cli.errors import Problems
from deepthink_cli.generation import ended
from deepthink_cli.io.tables import Kind
from deepthink_cli.model.limits import check_continuation
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.prediction.rows import OutputRows
from deepthink_cli.scoring.inputs import CheckedRows


def rows_to_answer(
    memory: OpenedMemory, source: RowSource, checked: CheckedRows | None, skip: bool
) -> Iterator[Query | Skipped]:
    """The rows that are `checked`, or that can be read only once; with `skip`, bad rows are `Skipped`, or raise."""
    template = memory.provenance.demonstrations.template
    if checked is None and not skip:
        return read_queries(source, template, None)
    rows = queries_or_skipped(source, template, None)
    return rows if checked is None else checked.same(rows, source.name)


def check_prompts(
    memory: OpenedMemory, spec: ModelSpec, source: RowSource, checked: CheckedRows, decoding: Decoding
) -> None:
    """Raise InputError for every row of a file that is too long, before the weights are loaded."""
    demonstrations, problems = memory.provenance.demonstrations, Problems()
    length, new = len(demonstrations.token_ids), ended(decoding, spec.tokenizer, demonstrations).max_new_tokens
    tokenize, most = query_tokenizer(spec.tokenizer, demonstrations), spec.limits.max_tokens()
    # No text has more tokens than bytes, so most files need no tokenisation here.
    if most is None or checked.longest + tokenize.added + length + new <= most:
        return
    for query in read_queries(source, demonstrations.template, None):
        with problems.collected():
            (ids,) = tokenize.prompts([query])
            check_continuation(spec.limits, spec.id, length, ids, new, query.where)
    problems.raise_any()


@dataclass(frozen=True)
class GeneratedRows(OutputRows):
    """The contents of the output rows of `generate`, and the columns of their table."""

    def row(self, index: int, row: Any) -> dict[str, Any]:
        """One row of output for a `Generation`, or for a row that was skipped."""
        if isinstance(row, Skipped):
            return self.skipped(index, row)
        several = {"iteration": row.iteration} if self.several else {}
        answer = {"text": row.text, "tokens": row.tokens, "finish": row.finish}
        return {"index": index, **several, **answer, **self._input(row.query.fields)}

    @cached_property
    def _output(self) -> dict[str, Kind]:
        several: dict[str, Kind] = {"iteration": "integer"} if self.several else {}
        return {"index": "integer", **several, "text": "text", "tokens": "integer", "finish": "text"}
