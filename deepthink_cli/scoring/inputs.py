"""Check rows of input before the model is loaded, and format rows of output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deepthink_cli.data.examples import CANDIDATES, Query, queries_or_skipped, read_queries
from deepthink_cli.data.rows import RowSource
from deepthink_cli.errors import Problems
from deepthink_cli.io.tables import Kind, kind_of, merged
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Correction, Prediction
from deepthink_cli.scoring.same_rows import RowsDigest
from deepthink_cli.scoring.score import check_length

MOST_FIELDS = 1000  # different fields of rows that are remembered


@dataclass
class CheckedRows:
    """The result of checking a file's rows.

    `digest` is that of the rows, with which later reads are compared; `longest` is the bytes of the longest row with
    its longest candidate; `own_candidates` says whether a row has candidates of its own; `other_labels` is the place of
    the first row whose candidates are not the memory's labels. `fields` are the names of the rows' fields, at most
    `MOST_FIELDS`, with the kind of column that holds their values, None if all are null. `bad` rows cannot be used;
    they are part of the count.
    """

    digest: RowsDigest = field(default_factory=RowsDigest)
    bad: int = 0
    longest: int = 0
    own_candidates: bool = False
    other_labels: str | None = None
    fields: dict[str, Kind | None] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.digest.count

    def add(self, query: Query, size: int, labels: Sequence[str]) -> None:
        """Add a row whose text has `size` bytes with its longest candidate."""
        self.longest = max(self.longest, size)
        self.own_candidates = self.own_candidates or _brings_candidates(labels, query)
        if self.other_labels is None and set(query.candidates) != set(labels):
            self.other_labels = query.where
        for name, value in (query.fields or {}).items():
            if name in self.fields or len(self.fields) < MOST_FIELDS:
                known, kind = self.fields.get(name), None if value is None else kind_of(value)
                self.fields[name] = merged((known, kind)) if known and kind else known or kind


def check_rows(
    demonstrations: TokenizedDemonstrations,
    source: str | RowSource,
    problems: Problems,
    labelled: bool = False,
    skip: bool = False,
    free: bool = False,
) -> CheckedRows | None:
    """Check every row of a file, in constant memory, before any model is loaded; mistakes are added to `problems`.

    With `skip`, bad rows are counted; their mistakes are added only if there is no other row. With `free`, rows have no
    candidates. The rows of a source that is read once are checked as they are used, and None is returned.
    """
    if RowSource.of(source).read_once:
        return None
    checked, messages, at_end = CheckedRows(), list[str](), Problems()
    template, labels = demonstrations.template, demonstrations.labels
    with at_end.collected():
        for row in queries_or_skipped(source, template, labels, labelled, free):
            checked.digest.add(row)
            if isinstance(row, Query):
                checked.add(row, _bytes(demonstrations, row), labels)
                continue
            checked.bad += 1
            if not skip or len(messages) < Problems.MOST:
                messages.extend(row.messages)
    if not skip or checked.bad == checked.count:
        problems.messages.extend(messages)
    problems.messages.extend(at_end.messages)
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
        if _bytes(demonstrations, query) <= room and not _brings_candidates(demonstrations.labels, query):
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
    answer = answer_of(prediction, calibrate)
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


def answer_of(prediction: Prediction, calibrate: Sequence[str]) -> Prediction:
    """The prediction that gives the label: the one corrected by the first calibration, if that is a correction."""
    first = prediction.calibrated.get("".join(calibrate[:1]))
    return prediction if first is None else first.prediction


def _correction(correction: Correction) -> dict[str, Any]:
    return {
        "label": correction.prediction.label,
        "probability": correction.prediction.probability,
        "scores": correction.prediction.scores,
        correction.counted: correction.inputs,
        "bias": correction.bias,
    }


def _bytes(demonstrations: TokenizedDemonstrations, query: Query) -> int:
    return len((demonstrations.template.query(query.text) + max(query.candidates, key=len, default="")).encode())


def _brings_candidates(labels: Sequence[str], query: Query) -> bool:
    return CANDIDATES in (query.fields or {}) or query.candidates != tuple(labels)


def jsonable(value: Any) -> Any:
    """The value, or None for NaN, which pandas writes to Parquet for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
