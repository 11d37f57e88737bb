"""A loaded memory that labels lists of rows, as `deepthink predict` labels the rows of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice

from deepthink_cli.calibration.notes import skipping
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.examples import Query, Skipped, query_or_skipped
from deepthink_cli.data.formats.json import array_rows, parsed_object
from deepthink_cli.data.formats.lines import decoded, whole_text
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.rows import OutputRows, output_rows
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.pipeline import EVERY_REASON, Part
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import in_columns

REQUEST = "request"
_PLACE = re.compile(rf"^{REQUEST}:\d+: ")


class TooManyRows(Exception):
    """A request has more rows than are accepted."""


class ServedMemory:
    """A memory with its model; nothing is loaded before `load`.

    Raises InputError for calibrations that do not fit the memory, and for one that is estimated from rows: the answer
    to a row would depend on the rows of other requests.
    """

    def __init__(self, scorer: Scorer) -> None:
        for name in from_rows(scorer.calibrate):
            reason = (
                "is estimated from rows, and a server answers them one by one; store it with deepthink calibrate "
                f"{scorer.memory.name} ROWS, or use contextual or domain"
            )
            raise InputError.of("calibrate", name, reason)
        if scorer.gives_several:
            raise InputError(
                f"{scorer.memory.name}: its rows may have several labels; label them with deepthink predict"
            )
        self.scorer, self.loaded, self.demonstrations = scorer, False, scorer.demonstrations
        self.source = in_columns(scorer.memory, RowSource(REQUEST, "json"))
        self.form: OutputRows = output_rows(
            scorer, None, False, LabelOptions.checked(), ErrorOptions.checked(on_error="skip")
        )

    def load(self, options: ModelOptions | None = None, tell: Tell = silent) -> None:
        """Load the model; raises InputError for one that is not the memory's."""
        spec = self.scorer.find(options, tell)
        self.scorer.check_labels(spec.tokenizer, tell)
        self._label = self.scorer.load(spec, tell)
        self.engine = self._label.engine
        self._check = self.scorer.row_check(spec)
        self.loaded = True

    def rows(self, body: bytes, most: int) -> list[Query | Skipped]:
        """The rows of a body: one object, or an array of objects; a wrong row has the reason in its place.

        Needs no model. Raises InputError for a body that is neither, and TooManyRows for more rows than `most`.
        """
        body = body.lstrip()
        if not body.startswith(b"["):
            where = f"{REQUEST}:1"
            found: list[Row | InputError] = [Row(parsed_object(decoded(body, where), where, "send one object"), where)]
        else:
            text = whole_text(body, BytesIO(), REQUEST, 1)
            found = list(islice(array_rows(text, REQUEST, 1), most + 1))
        if len(found) > most:
            raise TooManyRows
        template, labels = self.demonstrations.template, self.demonstrations.labels
        return [query_or_skipped(self.source, row, template, labels) for row in found]

    def __call__(self, rows: Sequence[Query | Skipped]) -> list[Part]:
        """For each row a prediction for each iteration, or why there is none."""
        answers = (each for part in self._label(skipping(rows, self._check), skip=EVERY_REASON) for each in part)
        return [list(_of_row(answers, len(self.scorer.memory.iterations))) for _ in rows]


def without_place(message: str) -> str:
    """A message about a row without its place in the request."""
    return _PLACE.sub("", message)


def _of_row(answers: Iterator[Prediction | Skipped], iterations: int) -> Iterator[Prediction | Skipped]:
    """The answers to the next row: one for each iteration, or the reason why there is none."""
    for answer in islice(answers, 1):
        yield answer
        if not isinstance(answer, Skipped):
            yield from islice(answers, iterations - 1)
