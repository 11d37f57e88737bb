"""Check the rows of a file before the model is loaded, and compare them with the rows that are scored later.

The file is read twice, and may change in between.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deepthink_cli.data.examples import Query, Skipped, Text, queries_or_skipped, read_queries
from deepthink_cli.data.field_warnings import text_warnings
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import DeepThinkError, InputError, Problems
from deepthink_cli.events import Warn
from deepthink_cli.io.tables import Kind, kind_of, merged
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import check_fits
from deepthink_cli.scoring.pipeline import CHUNK
from deepthink_cli.scoring.scoring import PLAIN, Scoring

MAX_FIELDS = 1000  # the most field names that are remembered
JUDGED = 1000  # rows whose texts are searched for ids


class RowsDigest:
    """The count and the digest of rows, and 8 bytes of the digest after every `CHUNK` rows."""

    def __init__(self) -> None:
        self.count = 0
        self._digest, self._parts = hashlib.sha256(), array("Q")

    def add(self, row: Query | Skipped) -> None:
        """Add the next row."""
        self._digest.update(repr(row).encode(errors="surrogatepass"))
        self.count += 1
        if self.count % CHUNK == 0:
            self._parts.append(int.from_bytes(self._digest.digest()[:8], "big"))

    @property
    def sha256(self) -> str:
        """The digest of all rows so far."""
        return self._digest.hexdigest()

    def same(self, rows: Iterable[Query | Skipped], name: str) -> Iterator[Query | Skipped]:
        """The rows of a second read of the file `name`, as they come.

        Raises DeepThinkError if they differ, before the last row of the first `CHUNK` that differs: no chunk with
        other rows is ever complete.
        """
        again = RowsDigest()
        try:
            for row in rows:
                again.add(row)
                part, rest = divmod(again.count, CHUNK)
                if again.count >= self.count:
                    same = again.count == self.count and again.sha256 == self.sha256
                else:  # as far as the digests of the chunks show
                    same = rest > 0 or again._parts[part - 1] == self._parts[part - 1]
                if not same:
                    break
                yield row
            if again.count == self.count and again.sha256 == self.sha256:
                return
        except InputError as error:  # rows that are no longer there, or cannot be read any more
            raise _changed(name) from error
        raise _changed(name)


class CheckedRows(RowsDigest):
    """The result of checking a file's rows, with which later reads are compared.

    `longest` is the size in bytes of the longest row with its longest candidate. `other_labels`: the place of the first
    row whose candidates are not the memory's labels. `fields`: the names of the fields, at most `MAX_FIELDS`, each with
    the kind of its column, or None if all values are null. `bad`: the number of rows that cannot be used; they count as
    rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bad, self.longest = 0, 0
        self.other_labels: str | None = None
        self.fields = dict[str, Kind | None]()

    def add_fields(self, fields: Mapping[str, Any]) -> None:
        """Add the names of a row's fields, and the kinds of their values."""
        for name, value in fields.items():
            if name in self.fields or len(self.fields) < MAX_FIELDS:
                known, kind = self.fields.get(name), None if value is None else kind_of(value)
                self.fields[name] = merged((known, kind)) if known and kind else known or kind


def check_rows(
    demonstrations: TokenizedDemonstrations,
    source: str | RowSource,
    labelled: bool = False,
    skip: bool = False,
    free: bool = False,
) -> CheckedRows | None:
    """Check every row of a file, in constant memory, before any model is loaded; raises InputError with all mistakes.

    With `skip`, bad rows are counted; their mistakes are raised only if all rows are bad. With `free`, rows have no
    candidates. None for a source that can be read once only: its rows are checked as they are used.
    """
    if RowSource.of(source).read_once:
        return None
    checked, found, at_end, texts = CheckedRows(), Problems(), Problems(), list[Text]()
    template, labels = demonstrations.template, demonstrations.labels
    with at_end.collected():
        for row in queries_or_skipped(source, template, None if free else labels, labelled):
            checked.add(row)
            checked.add_fields(row.fields or {})
            if isinstance(row, Query):
                texts += [row.text] if len(texts) < JUDGED else []
                checked.longest = max(checked.longest, _bytes(demonstrations, row))
                if checked.other_labels is None and set(row.candidates) != set(labels):
                    checked.other_labels = row.where
                continue
            checked.bad += 1
            if not skip or checked.bad == checked.count:
                found.add(*row.problems)
    for message in text_warnings(template, texts, "think"):
        RowSource.of(source).tell(Warn(message))
    if skip and checked.bad < checked.count:
        found = Problems()
    found.add(*at_end.found)
    found.raise_any()
    return checked


def check_tokens(
    demonstrations: TokenizedDemonstrations,
    spec: ModelSpec,
    source: str | RowSource,
    checked: CheckedRows | None,
    scoring: Scoring = PLAIN,
) -> None:
    """Tokenise the rows of a file before the weights are loaded, if one may be too long or has candidates of its own.

    Otherwise, as `checked` shows, the file is not read again. Raises InputError if the tokenizer's chat template now
    writes the demonstrations differently.
    """
    problems, length = Problems(), len(demonstrations.token_ids)
    tokenize = query_tokenizer(spec.tokenizer, demonstrations, scoring)
    most = spec.limits.after(demonstrations).max_tokens()
    # No text has more tokens than bytes, so most files need no tokenisation here; an end has at most one token.
    remaining = math.inf if most is None else 0 if scoring.of_states else most - length - tokenize.added - 1
    if checked is None or (checked.longest <= remaining and checked.other_labels is None):
        return
    for query in read_queries(source, demonstrations.template, demonstrations.labels):
        if _bytes(demonstrations, query) <= remaining and set(query.candidates) == set(demonstrations.labels):
            continue
        with problems.collected():
            (tokenized,) = tokenize([query])
            check_fits(spec.limits, spec.id, demonstrations, tokenized)
    problems.raise_any()


def _bytes(demonstrations: TokenizedDemonstrations, query: Query) -> int:
    return len((demonstrations.template.query(query.text) + max(query.candidates, key=len, default="")).encode())


def _changed(name: str) -> DeepThinkError:
    return DeepThinkError(f"{name}: has changed since its rows were checked; run the command again")
