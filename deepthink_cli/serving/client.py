"""Have rows labelled by a server in place of a model: what `deepthink predict --server` does."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.notes import OneLabelWarning, check_same_labels, skipping, tell_of_bias
from deepthink_cli.data.examples import CANDIDATES, Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.io.prefetch import chunks
from deepthink_cli.io.text import json_line
from deepthink_cli.scoring.inputs import CheckedRows
from deepthink_cli.scoring.pipeline import CHUNK, Part, predicted
from deepthink_cli.scoring.prediction import Correction, Prediction, Scores, prediction_of
from deepthink_cli.serving.options import TOKEN
from deepthink_cli.serving.schema import Health, Mistakes, OutputRow, OutputRowList

SECONDS = 600.0  # for the answer to a chunk of rows, and in which a busy server is asked again


T = TypeVar("T", bound=BaseModel)


def _seconds(retry_after: str | None) -> float:
    """When a busy server says to try again; a proxy may give a date, which counts as no answer."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 1.0


@dataclass(frozen=True)
class Remote:
    """A server, by its address: `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`.

    Raises InputError for another address. The token is that of the variable `DEEPTHINK_SERVE_TOKEN`.
    """

    address: str

    def __post_init__(self) -> None:
        try:
            url = urlsplit(self.address)
            at_root = url.path in ("", "/") and not (url.query or url.fragment or url.username)
            valid = at_root and bool(url.hostname) and url.port != 0 if url.scheme != "unix" else bool(url.path)
        except ValueError:
            valid = False
        if not valid or url.scheme not in ("http", "https", "unix"):
            raise InputError.of("server", self.address, "give http://HOST:PORT or unix:/PATH, as serve prints it")

    def health(self) -> Health:
        """What is served; raises DeepThinkError for a server that cannot be reached or is another program."""
        return self._parsed(Health, self._request("GET", "/health"))

    def label(self, rows: Sequence[dict[str, Any]]) -> list[OutputRow]:
        """The answers to rows, with the errors of those that cannot be labelled in their places."""
        body = json_line(list(rows)).encode()
        return self._parsed(OutputRowList, self._request("POST", "/predict?on_error=skip", body)).root

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        began = time.monotonic()
        while True:
            status, headers, answer = self._once(method, path, body)
            if status == 200:
                return answer
            if status != 503 or time.monotonic() - began > SECONDS:
                raise self._refused(status, answer)
            time.sleep(_seconds(headers.get("Retry-After")))

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DeepThinkError.of(
                "server", self.address, f"gives no answer ({reason}); start one with deepthink serve MEMORY"
            ) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        url = urlsplit(self.address)
        if url.scheme == "unix":
            return _UnixConnection(url.path)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        return kind(url.hostname or "", url.port, timeout=SECONDS)

    def _refused(self, status: int, answer: bytes) -> DeepThinkError:
        try:
            messages = "; ".join(each.message for each in Mistakes.model_validate_json(answer).errors)
        except ValidationError:
            messages = "no server of deepthink"
        advice = f"; set {TOKEN} to the server's token" if status == 401 else ""
        return DeepThinkError.of("server", self.address, f"HTTP {status}: {messages}{advice}")

    def _parsed(self, kind: type[T], answer: bytes) -> T:
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            raise DeepThinkError.of("server", self.address, "its answer is not one of deepthink serve") from error


def served(remote: Remote, memory: OpenedMemory) -> tuple[OpenedMemory, Health]:
    """The memory with the iterations that the server uses, and what it serves.

    Raises InputError if that is another memory, or if the server accepts fewer rows than are labelled together.
    """
    health = remote.health()
    if health.memory != memory.sha256:
        raise InputError.of(
            "server", remote.address, f"serves another memory (SHA-256 {health.memory[:12]}...) than {memory.name}"
        )
    if health.max_rows < CHUNK:
        raise InputError.of(
            "server",
            remote.address,
            f"accepts {health.max_rows} rows of a request, not {CHUNK}; start it with {option('max_rows')} {CHUNK}",
        )
    return replace(memory, iterations=tuple(health.iterations)).asked_again(health.reread), health


def predict_by_server(
    remote: Remote,
    memory: OpenedMemory,
    source: RowSource,
    *,
    checked: CheckedRows | None,
    chunk: int = CHUNK,
    calibrate: Sequence[str] = (),
    skip: bool = False,
    same_labels: bool = False,
    start: int = 0,
    before: Iterable[Sequence[Prediction]] = (),
    flush: bool = False,
    tell: Tell = silent,
) -> Iterator[Part]:
    """Yield what `predict_file` yields, of the same chunks of rows, scored by a server.

    Raises DeepThinkError for a server that does not answer, and InputError for a bad row unless rows are to be skipped.
    `before` are the predictions of the first rows, which are left out, in chunks.
    """
    demonstrations = memory.provenance.demonstrations
    prompt = (demonstrations.template, demonstrations.labels)
    rows: Iterator[Query | Skipped] = queries_or_skipped(source, *prompt)
    if checked is not None:
        rows = checked.digest.same(rows, source.name)
    elif not skip:
        rows = read_queries(source, *prompt)
    if same_labels and skip:
        rows = skipping(rows, lambda query: check_same_labels(query, demonstrations.labels))
    progress = Progress("predicting", start, None if checked is None else checked.count)
    told = silent if calibrate else tell
    warning, last = OneLabelWarning(demonstrations.labels, memory.name, told, checked is None), list[Prediction]()
    for earlier in before:
        warning.add(earlier)
    for part in chunks(islice(rows, start, None), chunk, flush):
        for row in part if same_labels else ():
            if isinstance(row, Query):
                check_same_labels(row, demonstrations.labels)
        answered = _labelled(remote, memory, part, skip)
        progress = replace(progress, done=progress.done + len(part))
        tell(progress)
        yield answered
        last = predicted(answered)
        warning.add(last)
    warning.end()
    tell_of_bias(last, calibrate, demonstrations.labels, tell)


def _labelled(remote: Remote, memory: OpenedMemory, part: Sequence[Query | Skipped], skip: bool) -> Part:
    """The predictions of a chunk; a row that the server cannot label is skipped, or raises InputError."""
    queries = [row for row in part if isinstance(row, Query)]
    answers: list[list[OutputRow]] = [[] for _ in queries]
    for answer in remote.label([_sent(query, memory) for query in queries]) if queries else ():
        answers[answer.index].append(answer)
    by_row, found = iter(answers), list[Prediction | Skipped]()
    for row in part:
        if isinstance(row, Skipped):
            found.append(row)
            continue
        for answer in next(by_row):
            if answer.error is None:
                found.append(_prediction(row, answer, memory.iterations[-1]))
                continue
            message = f"{row.where}: {answer.error}"
            if not skip:
                raise InputError(message)
            found.append(Skipped(InputError(message).problems, fields=row.fields))
    return found


def _sent(query: Query, memory: OpenedMemory) -> dict[str, Any]:
    """A query as a row: the fields of the template, and its candidates if they are not the memory's labels."""
    demonstrations = memory.provenance.demonstrations
    (first, *_) = demonstrations.template.text_fields
    fields = {first: query.text} if isinstance(query.text, str) else dict(query.text)
    own = {} if query.candidates == demonstrations.labels else {CANDIDATES: list(query.candidates)}
    return {**fields, **own}


def _prediction(query: Query, answer: OutputRow, iteration: int) -> Prediction:
    """The prediction that an answer states; means per token, which no output holds, are left equal to the scores."""
    made = _of_scores(query, answer.iteration or iteration, answer.scores or {})
    corrections = {
        name: Correction(
            _of_scores(query, made.iteration, each.scores),
            each.bias,
            each.texts if each.texts is not None else each.rows or 0,
            "texts" if each.texts is not None else "rows",
        )
        for name, each in (answer.calibrated or {}).items()
    }
    return replace(made, calibrated=corrections)


def _of_scores(query: Query, iteration: int, scores: dict[str, float]) -> Prediction:
    sums = tuple(scores[candidate] for candidate in query.candidates)
    return prediction_of(query, iteration, Scores(sums, sums))


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
