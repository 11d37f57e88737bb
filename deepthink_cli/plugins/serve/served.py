"""A loaded memory that labels lists of rows as `deepthink predict` labels those of a file, in a thread of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from io import BytesIO
from itertools import islice
from queue import Queue
from threading import Thread
from typing import Any

from deepthink_cli.calibration.notes import skipping
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.examples import Query, Skipped, query_or_skipped
from deepthink_cli.data.formats.json import array_rows, parsed_object
from deepthink_cli.data.formats.lines import decoded, whole_text
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Tell, silent
from deepthink_cli.io.prefetch import OURS
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.rows import OutputRows, output_rows
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.pipeline import EVERY_REASON, Part
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import in_columns

REQUEST = "request"
_OF_FILES = re.compile(rf"^{REQUEST}:\d+: | Read it as .* with --map .*$")


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
        self._check = self.scorer.row_check(spec)
        self.loaded = True

    def rows(self, body: bytes, most: int) -> list[Query | Skipped]:
        """The rows of a body: one object, or an array of objects, at most one more than `most`.

        A wrong row has the reason in its place. Needs no model. Raises InputError for a body that is neither.
        """
        body = body.lstrip()
        if not body.startswith(b"["):
            where = f"{REQUEST}:1"
            found: list[Row | InputError] = [Row(parsed_object(decoded(body, where), where, "send one object"), where)]
        else:
            text = whole_text(body, BytesIO(), REQUEST, 1)
            found = list(islice(array_rows(text, REQUEST, 1), most + 1))
        template, labels = self.demonstrations.template, self.demonstrations.labels
        return [query_or_skipped(self.source, row, template, labels) for row in found]

    def __call__(self, rows: Sequence[Query | Skipped]) -> list[Part]:
        """For each row a prediction for each iteration, or why there is none."""
        answers = (each for part in self._label(skipping(rows, self._check), skip=EVERY_REASON) for each in part)
        return [list(_of_row(answers, len(self.scorer.memory.iterations))) for _ in rows]


def without_place(message: str) -> str:
    """A message about a row without its place in the request, and without advice for commands that read files."""
    return _OF_FILES.sub("", message)


def _of_row(answers: Iterator[Prediction | Skipped], iterations: int) -> Iterator[Prediction | Skipped]:
    """The answers to the next row: one for each iteration, or the reason why there is none."""
    for answer in islice(answers, 1):
        yield answer
        if not isinstance(answer, Skipped):
            yield from islice(answers, iterations - 1)


class Batches:
    """The one thread that owns the model: it answers requests that wait together by one call, at most `most` of them.

    At most `waiting` requests wait.
    """

    def __init__(self, answer: Callable[[Sequence[Any]], list[Any]], most: int, waiting: int) -> None:
        self._answer, self._most = answer, most
        self._queue: Queue[tuple[Sequence[Any], bool, Future[list[Any]]]] = Queue(waiting)
        Thread(target=self._run, name=f"{OURS} labelling", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._queue.qsize()

    def submit(self, rows: Sequence[Any], alone: bool) -> Future[list[Any]]:
        """The future answers to a request; unless it is `alone`, it shares a call with others. Raises queue.Full."""
        future: Future[list[Any]] = Future()
        self._queue.put_nowait((rows, alone, future))
        return future

    def _run(self) -> None:
        following = None
        while True:
            rows, alone, future = following or self._queue.get()
            together, following = [(rows, future)], None
            while not alone and len(together) < self._most and not self._queue.empty():
                rows, alone, future = following = self._queue.get()
                if not alone:
                    together.append((rows, future))
                    following = None
            self._score(together)

    def _score(self, together: Sequence[tuple[Sequence[Any], Future[list[Any]]]]) -> None:
        running = [(rows, future) for rows, future in together if future.set_running_or_notify_cancel()]
        try:
            answers = iter(self._answer([row for rows, _ in running for row in rows]))
            for rows, future in running:
                future.set_result([next(answers) for _ in rows])
        except Exception as error:
            for _, future in running:
                if not future.done():
                    future.set_exception(error)
