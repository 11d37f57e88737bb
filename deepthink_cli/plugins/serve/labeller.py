"""A loaded memory that labels lists of rows, as `deepthink predict` labels those of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BufferedReader, BytesIO
from itertools import islice

from deepthink_cli.artifact.opening import OpenedMemory, find_its_model
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.extended_labels import check_labels
from deepthink_cli.calibration.notes import check_supported, row_check, skipping
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.calibration.stored import in_use
from deepthink_cli.data.examples import Query, Skipped, query_or_skipped
from deepthink_cli.data.formats.json import array_rows, parsed_object
from deepthink_cli.data.formats.lines import decoded
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import has_several
from deepthink_cli.options import ScoreName
from deepthink_cli.prediction.labeller import RowLabeller
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.rows import OutputRows, output_rows
from deepthink_cli.scoring.pipeline import Part
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import in_columns

REQUEST = "request"
_PLACE = re.compile(rf"^{REQUEST}:\d+: ")


class TooManyRows(Exception):
    """A request has more rows than are accepted."""


class Labeller:
    """A memory with its model; nothing is loaded before `load`.

    Raises InputError for calibrations that do not fit the memory, and for one that is estimated from rows: the answer
    to a row would depend on the rows of other requests.
    """

    def __init__(
        self,
        memory: OpenedMemory,
        calibrate: Sequence[str] = (),
        score: ScoreName = "sum",
    ) -> None:
        for name in from_rows(calibrate):
            raise InputError.of("calibrate", name, "is estimated from rows, which a server answers one by one")
        if has_several(memory.provenance):
            raise InputError(f"{memory.name}: its rows may have several labels; label them with deepthink predict")
        self.memory, self.calibrate, self.score = memory, in_use(calibrate, [memory], score), score
        check_supported(self.calibrate, memory, None)
        self.loaded = False
        self.demonstrations = memory.provenance.demonstrations
        self.source = in_columns(memory, RowSource(REQUEST, "json"))
        self.form: OutputRows = output_rows(
            memory, None, False, self.calibrate, score, LabelOptions.checked(), ErrorOptions.checked(on_error="skip")
        )

    def load(self, options: ModelOptions | None = None, tell: Tell = silent) -> None:
        """Load the model; raises InputError for one that is not the memory's."""
        spec = find_its_model(self.memory, options, tell)
        check_inputs(self.calibrate, self.demonstrations, spec, self.score)
        check_labels(spec.tokenizer, self.demonstrations, self.score, self.calibrate, tell)
        self._label = RowLabeller(self.memory, (), spec, self.calibrate, self.score, skip=True, tell=tell)
        self.engine = self._label.engine
        self._check = row_check(self.calibrate, self.demonstrations, spec.tokenizer, spec.limits, spec.id, self.score)
        self.loaded = True

    def rows(self, body: bytes, most: int) -> list[Query | Skipped]:
        """The rows of a body: one object, or an array of objects; each row that is wrong says why.

        Needs no model. Raises InputError for a body that is neither, and TooManyRows for more rows than `most`.
        """
        body = body.lstrip()
        if not body.startswith(b"["):
            where = f"{REQUEST}:1"
            found: list[Row | InputError] = [Row(parsed_object(decoded(body, where), where, "send one object"), where)]
        else:
            stream = BufferedReader(BytesIO(body))
            found = list(islice(array_rows(stream, REQUEST, 1), most + 1))
        if len(found) > most:
            raise TooManyRows
        template, labels = self.demonstrations.template, self.demonstrations.labels
        return [query_or_skipped(self.source, row, template, labels) for row in found]

    def __call__(self, rows: Sequence[Query | Skipped]) -> list[Part]:
        """For each row a prediction for each iteration, or why there is none."""
        answers = (each for part in self._label(skipping(rows, self._check)) for each in part)
        return [list(_of_row(answers, len(self.memory.iterations))) for _ in rows]


def without_place(message: str) -> str:
    """A message about a row without its place, which is that of the row in the request."""
    return _PLACE.sub("", message)


def _of_row(answers: Iterator[Prediction | Skipped], iterations: int) -> Iterator[Prediction | Skipped]:
    """The answers to the next row: one for each iteration, or the one that says why there is none."""
    for answer in islice(answers, 1):
        yield answer
        if not isinstance(answer, Skipped):
            yield from islice(answers, iterations - 1)
