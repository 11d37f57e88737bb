"""An unreachable hub is told from a missing name, and named in the same words for a model and for a data set."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.errors import Problem
from deepthink_cli.io.hub import forbidden_by, is_unreachable, unreachable


@pytest.fixture(autouse=True)
def _may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


class LocalEntryNotFoundError(FileNotFoundError):
    """Of the hub's library, for a file that is not in the cache."""


def test_the_reason_is_found_behind_the_errors_of_other_libraries() -> None:
    behind = OSError("We couldn't connect")
    behind.__cause__ = LocalEntryNotFoundError()
    assert is_unreachable(behind)
    assert is_unreachable(ConnectionRefusedError())
    assert not is_unreachable(OSError("no such repository"))


def test_the_hint_depends_on_what_forbids_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        str(unreachable(Problem("x"), True, "y"))
        == "x: not in the cache, and offline forbids downloads; omit offline, or y"
    )
    assert (
        str(unreachable(Problem("x"), False, "y"))
        == "x: not in the cache, and the hub cannot be reached; check the connection, or y"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    assert forbidden_by(False) == "HF_HUB_OFFLINE"
    assert str(unreachable(Problem("x"), False, "y")).endswith(
        "HF_HUB_OFFLINE forbids downloads; unset HF_HUB_OFFLINE, or y"
    )


def test_a_model_and_a_data_set_end_with_the_same_code_and_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the library's attempts
    demos = write_rows(tmp_path / "demos.jsonl", [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}])
    reason = "not in the cache, and the hub cannot be reached; check the connection, or give"
    for words in (["think", str(demos), "-m", "no-such-owner/no-such-model"], ["think", "--task", "snli"]):
        assert run(words) == 1
        assert reason in capsys.readouterr().err.splitlines()[-1]
