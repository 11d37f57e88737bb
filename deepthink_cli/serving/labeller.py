"""A loaded model that labels lists of rows, as `deepthink predict` labels those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from deepthink_cli.artifact.opening import OpenedMemory, find_its_model, load_both
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.notes import check_supported, row_check, skipping
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.examples import Query, Skipped, query_or_skipped
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import ScoreName
from deepthink_cli.prediction.predict import members_of
from deepthink_cli.scoring.pipeline import ANYTHING, CHUNK, Part, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import in_columns

REQUEST = "request"


class Labeller:
    """A memory, or an ensemble, with its model; raises InputError for a calibration that is estimated from rows.

    The answer to a row would depend on the rows of other requests.
    """

    def __init__(
        self,
        memory: OpenedMemory,
        others: Sequence[OpenedMemory] = (),
        options: ModelOptions | None = None,
        calibrate: Sequence[str] = (),
        score: ScoreName = "sum",
        tell: Tell = silent,
    ) -> None:
        for name in from_rows(calibrate):
            raise InputError.of("calibrate", name, "is estimated from rows, which a server answers one by one")
        check_supported(calibrate, memory, None)
        self.memory, self.calibrate, self.score = memory, tuple(calibrate), score
        self.demonstrations = memory.provenance.demonstrations
        self.source = in_columns(memory, RowSource(REQUEST, "jsonl"))
        spec = find_its_model(memory, options, tell)
        check_inputs(calibrate, self.demonstrations, spec, score)
        self.engine, memories = load_both(memory, spec, tell)
        self.members = [memories, *members_of(others, self.engine, tell)]
        self._check = row_check(calibrate, self.demonstrations, self.engine, score)
        self._calibrator = Calibrator(self.engine, self.members, self.calibrate, score)

    def rows(self, values: Sequence[object]) -> list[Query | Skipped]:
        """The row of each value, a text or an object, or why it is none; needs no model."""
        field = self.demonstrations.template.text_fields[0]
        return [self._row(value, f"{REQUEST}:{number}", field) for number, value in enumerate(values, start=1)]

    def _row(self, value: object, where: str, field: str) -> Query | Skipped:
        fields = {field: value} if isinstance(value, str) else value
        row: Row | InputError = (
            Row(fields, where)
            if isinstance(fields, dict)
            else InputError(f'{where}: neither a text nor an object; write {{"{field}": "..."}}')
        )
        return query_or_skipped(self.source, row, self.demonstrations.template, self.demonstrations.labels)

    def __call__(self, rows: Sequence[Query | Skipped]) -> list[Part]:
        """For each row a prediction for each iteration, or why there is none."""
        checked = skipping(rows, self._check)
        parts = predictions(self.engine, self.members, checked, size=CHUNK, score=self.score, skip=ANYTHING)
        answers = (each for part in self._calibrator.corrected(parts) for each in part)
        return [list(_of_row(answers, len(self.memory.iterations))) for _ in rows]


def _of_row(answers: Iterator[Prediction | Skipped], iterations: int) -> Iterator[Prediction | Skipped]:
    """The answers to the next row: one for each iteration, or the one that says why there is none."""
    for answer in islice(answers, 1):
        yield answer
        if not isinstance(answer, Skipped):
            yield from islice(answers, iterations - 1)
