"""What a server answers: labels as `predict` writes them, and mistakes, limits and tokens by their HTTP status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from conftest import REVIEWS, write_rows
from starlette.testclient import TestClient

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.serve.app import Server
from deepthink_cli.plugins.serve.options import ServeOptions
from deepthink_cli.plugins.serve.served import Batches, ServedMemory
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.scoring import Scoring

ROWS: list[dict[str, object]] = [{"id": place, "review": review} for place, (review, _) in enumerate(REVIEWS)]
LONG = "fine " * 3000


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory that stores a correction."""
    path, options = tmp_path_factory.mktemp("memory") / "mem.safetensors", ("-T", "2", "--keep", "all")
    return thought_of(path, "llama", *options, "--calibrate", "contextual")


def labeller(memory: Path, **given: Any) -> ServedMemory:
    made = ServedMemory(Scorer.open(memory, **given))
    made.load()
    return made


@pytest.fixture(scope="module")
def loaded_once(memory: Path) -> ServedMemory:
    return labeller(memory)


@pytest.fixture
def client(loaded_once: ServedMemory) -> Iterator[TestClient]:
    with client_of(loaded_once) as made:
        yield made


def client_of(labels: ServedMemory, token: str | None = None, **options: Any) -> TestClient:
    server = Server(labels, ServeOptions.checked(**options), token)
    return TestClient(server.app(), base_url="http://127.0.0.1:8000")


def predicted(memory: Path, rows: list[dict[str, object]], folder: Path, *options: str) -> list[dict[str, Any]]:
    inputs, output = write_rows(folder / "in.jsonl", rows), folder / "out.jsonl"
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(output), *options]) == 0
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def test_one_row_and_many_are_answered_as_predict_answers_them(
    client: TestClient, memory: Path, tmp_path: Path
) -> None:
    assert client.post("/predict", json=ROWS[0]).json() == predicted(memory, ROWS[:1], tmp_path)[0]
    answers = client.post("/predict", json=ROWS).json()
    assert answers == predicted(memory, ROWS, tmp_path)
    assert answers[0]["calibrated"]["stored"]["texts"] > 0
    assert client.post("/predict", json=[]).json() == []


def test_iterations_and_no_correction_are_those_that_the_server_was_started_with(memory: Path, tmp_path: Path) -> None:
    made = client_of(labeller(memory, iteration="all", calibrate=("none",), scoring=Scoring.of(score="mean")))
    options = ["--at", "all", "--calibrate", "none", "--score", "mean"]
    assert made.post("/predict", json=ROWS).json() == predicted(memory, ROWS, tmp_path, *options)
    assert len(made.post("/predict", json=ROWS[0]).json()) == 2


def test_a_calibration_from_rows_is_refused(memory: Path) -> None:
    with pytest.raises(InputError, match="calibrate batch: is estimated from rows"):
        ServedMemory(Scorer.open(memory, calibrate=["batch"]))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not JSON"),
        (b'[{"review": "a"}', 400, "is the file complete"),
        (b'"text"', 400, "not an object"),
        (b"\xff", 400, "UTF-8"),
        (b'{"review": 1e999}', 400, "not a finite number"),
        (b'{"text": "a"}', 422, "field 'review' is missing"),
        (b'{"review": ""}', 422, "empty"),
        (json.dumps({"review": LONG}).encode(), 422, "too long"),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_the_reason(
    client: TestClient, body: bytes, status: int, message: str
) -> None:
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    (error,) = answer.json()["errors"]
    assert message in error["message"]
    assert "request" not in error["message"]


def test_every_wrong_row_is_named_by_its_place_or_answered_in_it(client: TestClient) -> None:
    rows = [ROWS[0], {"text": "a"}, ROWS[1], "words", {"review": LONG}]
    refused = client.post("/predict", json=rows)
    assert (refused.status_code, [each["index"] for each in refused.json()["errors"]]) == (422, [1, 3])
    answers = client.post("/predict?on_error=skip", json=rows).json()
    assert [("error" in each, each["index"]) for each in answers] == [
        (False, 0),
        (True, 1),
        (False, 2),
        (True, 3),
        (True, 4),
    ]
    assert client.post("/predict?on_error=maybe", json=rows).status_code == 400


def test_what_is_no_json_request_is_refused(client: TestClient) -> None:
    assert client.post("/predict", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").json() == {"errors": [{"message": "Not Found"}]}
    for host in ("elsewhere.example", "elsewhere.example:8000", "127.0.0.1.elsewhere.example", ""):
        assert client.get("/health", headers={"Host": host}).status_code == 400
    assert client.get("/health", headers={"Host": "localhost:1"}).status_code == 200


def test_a_bug_is_answered_in_json(loaded_once: ServedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ValueError("minus one")

    monkeypatch.setattr(ServedMemory, "rows", failing)
    made = TestClient(
        Server(loaded_once, ServeOptions.checked()).app(), "http://localhost", raise_server_exceptions=False
    )
    answer = made.post("/predict", json=ROWS)
    assert answer.status_code == 500
    assert answer.json() == {"errors": [{"message": "a bug in deepthink: ValueError('minus one')"}]}


def test_too_many_rows_and_too_large_a_body_are_refused(loaded_once: ServedMemory) -> None:
    made = client_of(loaded_once, max_rows=2, max_body=1)
    assert made.post("/predict", json=ROWS[:2]).status_code == 200
    assert made.post("/predict", json=ROWS[:3]).status_code == 413
    assert made.post("/predict", json={"review": "x" * 2**20}).status_code == 413


def test_requests_beyond_those_that_may_wait_are_told_to_try_again(
    loaded_once: ServedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, released = Event(), Event()
    real = ServedMemory.__call__

    def held(self: ServedMemory, rows: Sequence[Any]) -> Any:
        entered.set()
        assert released.wait(10)
        return real(self, rows)

    monkeypatch.setattr(ServedMemory, "__call__", held)
    server = Server(loaded_once, ServeOptions.checked(max_waiting=1))
    rows = loaded_once.rows(json.dumps(ROWS[0]).encode(), 1)
    waiting = [server.batches.submit(rows, alone=False)]
    assert entered.wait(10)
    waiting.append(server.batches.submit(rows, alone=False))
    made = TestClient(server.app(), base_url="http://localhost")
    refused = made.post("/predict", json=ROWS[0])
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert made.get("/health").json()["waiting"] == 1
    released.set()
    assert all(each.result(10) for each in waiting)
    assert made.post("/predict", json=ROWS[0]).status_code == 200


def test_a_server_with_a_token_answers_nothing_without_it(loaded_once: ServedMemory) -> None:
    made = client_of(loaded_once, token="s3cret")
    assert made.get("/health").status_code == 401
    for wrong in ("Bearer s3cre", "s3cret", "Basic s3cret", "Bearer s3cret2"):
        refused = made.post("/predict", json=ROWS[0], headers={"Authorization": wrong})
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert made.post("/predict", json=ROWS[0], headers={"Authorization": "Bearer s3cret"}).status_code == 200


class Held:
    """Squares numbers once it is released; `calls` are the rows of each call."""

    def __init__(self) -> None:
        self.entered, self.released, self.calls = Event(), Event(), list[list[int]]()

    def __call__(self, rows: Sequence[int]) -> list[int]:
        self.calls.append(list(rows))
        self.entered.set()
        self.released.wait(10)
        if -1 in rows:
            raise ValueError("minus one")
        return [row * row for row in rows]


def test_waiting_requests_share_a_call_unless_one_is_to_be_alone() -> None:
    held = Held()
    batches = Batches(held, most=2, waiting=8)
    requests = [[1], [2], [3], [4], [5, 6], [7, 7], [8], [9]]
    first = batches.submit(requests[0], alone=False)
    assert held.entered.wait(10)
    others = [batches.submit(each, alone=len(each) > 1 or each == [8]) for each in requests[1:]]
    held.released.set()
    assert [each.result(10) for each in (first, *others)] == [[row * row for row in rows] for rows in requests]
    assert held.calls == [[1], [2, 3], [4], [5, 6], [7, 7], [8], [9]]


def test_an_error_ends_its_requests_and_not_the_thread() -> None:
    held = Held()
    held.released.set()
    batches = Batches(held, most=4, waiting=1)
    with pytest.raises(ValueError, match="minus one"):
        batches.submit([-1], alone=False).result(10)
    assert batches.submit([3], alone=False).result(10) == [9]
