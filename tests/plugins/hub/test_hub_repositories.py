"""`deepthink push` and `pull` against a hub on the loopback: only known files, asked before, verified after."""

from __future__ import annotations

import json
import pty
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import safetensors.torch
import yaml
from conftest import write_rows
from helpers.hub_server import TOKEN, HubState, hub
from helpers.said import Captured, json_of, output, refused

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.hub.card import MEMORY, card_of
from deepthink_cli.plugins.hub.memories import FILES

REPO = "me/reviews"


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of four reviews, two of its iterations kept."""
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "2", "--keep", "all")


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubState]:
    """A hub on the loopback, which this process uses."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub() as (address, state):
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield state


@pytest.fixture(scope="module")
def published() -> list[HubState]:
    """What a hub stores after the first test has pushed the memory."""
    return []


@pytest.fixture
def pushed(state: HubState, memory: Path, published: list[HubState]) -> dict[str, bytes]:
    """The files of a repository with the memory, which may be changed."""
    if not published:
        assert run(["push", str(memory), REPO, "--yes", "-q"]) == 0
        published.append(deepcopy(state))
    state.repos, state.objects = deepcopy((published[0].repos, published[0].objects))
    return state.repos[REPO]["main"]


def test_a_memory_is_published_and_fetched_with_the_same_bytes(
    pushed: dict[str, bytes], memory: Path, tmp_path: Path, state: HubState
) -> None:
    assert pushed.keys() - {".gitattributes"} == set(FILES)
    assert run(["pull", REPO, "-o", str(tmp_path / "got.safetensors"), "-q"]) == 0
    assert (tmp_path / "got.safetensors").read_bytes() == memory.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["got.safetensors"]
    assert state.private == set()


def test_what_is_published_and_fetched_is_reported_as_json(
    state: HubState, memory: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    published = json_of(capsys, "push", memory, REPO, "--yes", "--private", "--json")
    assert published["files"].keys() == set(FILES)
    assert published["url"].endswith(f"/{REPO}")
    assert f"/{REPO}/commit/" in published["commit"]
    assert state.private == {REPO}
    fetched = json_of(capsys, "pull", REPO, "--json")
    assert fetched["file"] == "reviews.safetensors"
    assert fetched["sha256"] == published["memory"] == read_header(memory).metadata.sha256


def test_the_demonstrations_are_not_published_unasked(state: HubState, memory: Path, capsys: Captured) -> None:
    line = refused(capsys, "push", memory, REPO)
    assert "contains 4 demonstrations, which would be published with it; look at them with --dry-run" in line
    assert state.repos == {}


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_on_a_terminal_the_demonstrations_are_shown_and_asked_about(
    answer: bytes, code: int, state: HubState, memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    control, terminal = pty.openpty()
    with open(terminal, "r+b", buffering=0) as raw, open(terminal, encoding="utf-8", closefd=False) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        with open(control, "wb", buffering=0) as keys:
            keys.write(answer)
            assert run(["push", str(memory), REPO]) == code
        del raw
    shown = capsys.readouterr().err
    assert '{"text": "a warm and funny film", "label": "positive"}' in shown
    assert f"Publish these 4 demonstrations at {REPO}? [y/N]" in shown
    assert (REPO in state.repos) == (code == 0)
    assert "names its model by a path of this machine" in shown


def test_a_dry_run_shows_the_card_and_sends_nothing(state: HubState, memory: Path, capsys: Captured) -> None:
    out = output(capsys, "push", memory, REPO, "--dry-run")
    assert "not published: this is a dry run" in out
    assert "adapter_model.safetensors" in out
    assert "## Demonstrations" in out
    assert not [line for line in state.requests if line.startswith(("POST", "PUT"))]


def test_the_card_names_what_made_the_memory_and_no_path(pushed: dict[str, bytes], memory: Path) -> None:
    front, _, body = pushed["README.md"].decode().removeprefix("---\n").partition("---\n")
    assert yaml.safe_load(front) == {
        "library_name": "peft",
        "tags": ["deep-thinking", "in-context-learning", "prefix-tuning"],
    }
    assert str(memory.parent.parent) not in body
    assert "T = 2, eta 0.01" in body
    assert f"deepthink pull {REPO}" in body
    assert '{"text": "far too long", "label": "negative"}' in body


def test_the_card_has_the_figures_of_this_memory_only(
    state: HubState, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "a fine film", "sentiment": "positive"}])
    (tmp_path / "eval.json").write_text(output(capsys, "eval", memory, rows, "--json", "-q"))
    words = ["push", str(memory), REPO, "--dry-run", "--json", "--results", str(tmp_path / "eval.json")]
    card = json_of(capsys, *words)["card"]
    assert "| T | accuracy | 95 % interval |" in card
    assert "On 1 rows (rows.jsonl)" in card
    changed = json.loads((tmp_path / "eval.json").read_text())
    changed["memory"]["sha256"] = "0" * 64
    (tmp_path / "eval.json").write_text(json.dumps(changed))
    assert "results of another memory" in refused(capsys, *words)
    (tmp_path / "eval.json").write_text('{"n": 3}')
    assert "not the output of deepthink eval --json" in refused(capsys, *words)


def test_the_card_of_a_memory_with_a_correction_has_its_corrected_figures(
    state: HubState, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    stored = tmp_path / "stored.safetensors"
    assert run(["calibrate", str(memory), "-q", "-o", str(stored)]) == 0
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "a fine film", "sentiment": "positive"}])
    evaluated = json_of(capsys, "eval", stored, rows, "--json", "-q")
    evaluated["results"][-1]["calibrated"]["stored"] |= {"accuracy": 0.875, "ci95": [0.25, 0.9375]}
    (tmp_path / "eval.json").write_text(json.dumps(evaluated))
    words = ["push", str(stored), REPO, "--dry-run", "--json", "--results", str(tmp_path / "eval.json")]
    published = json_of(capsys, *words)
    assert "corrected contextual calibration of 3 texts" in published["card"]
    assert "| 87.5% | 25.0% to 93.8% |" in published["card"]
    assert published["files"].keys() == set(FILES)


def test_texts_cannot_leave_their_code_block(memory: Path) -> None:
    header = read_header(memory)
    header.metadata.demonstrations.texts[0] = "````\n# Not a heading\n---\nlicense: mit"
    card = card_of(header, REPO, True, "apache-2.0")
    assert "\n# Not a heading" not in card
    assert "`````json\n" in card
    assert card.count("\n---\n") == 1
    assert "license: apache-2.0" in card


def test_a_branch_is_written_and_read(state: HubState, memory: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["push", str(memory), REPO, "--yes", "-q", "--revision", "trial"]) == 0
    assert MEMORY in state.repos[REPO]["trial"]
    assert MEMORY not in state.repos[REPO]["main"]
    words = ["pull", REPO, "-o", str(tmp_path / "m.safetensors")]
    assert run([*words, "--revision", "trial"]) == 0
    capsys.readouterr()
    assert f"{REPO} at other: no such branch, tag or commit" in refused(capsys, *words, "--revision", "other", code=1)


def test_a_memory_replaces_the_one_before_and_its_adapter(
    pushed: dict[str, bytes], memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.hub.memories._adapter", lambda *arguments: {})
    assert run(["push", str(memory), REPO, "--yes"]) == 0
    assert pushed.keys() - {".gitattributes"} == {MEMORY, "README.md"}
    assert b"library_name" not in pushed["README.md"]


def test_a_repository_of_something_else_is_not_overwritten(state: HubState, memory: Path, capsys: Captured) -> None:
    state.repos[REPO] = {"main": {"README.md": b"a model", "model.safetensors": b"weights"}}
    line = refused(capsys, "push", memory, REPO, "--yes")
    assert f"{REPO}: has a README.md and no {MEMORY}: it holds something else" in line
    assert state.repos[REPO]["main"]["README.md"] == b"a model"


def test_other_files_are_never_downloaded(pushed: dict[str, bytes], state: HubState, tmp_path: Path) -> None:
    pushed |= {"pickle.bin": b"x", "../../evil.py": b"x", "modeling.py": b"x", "other.safetensors": b"x"}
    assert run(["pull", REPO, "-o", str(tmp_path / "m.safetensors")]) == 0
    assert set(state.downloads) == {MEMORY}


def flipped(content: bytes, place: int) -> bytes:
    """The content with one bit of one byte changed."""
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


DAMAGES: dict[str, Callable[[dict[str, bytes], HubState], object]] = {
    "a byte of a tensor": lambda files, _: files.update({MEMORY: flipped(files[MEMORY], -1)}),
    "not a memory": lambda files, _: files.update({MEMORY: safetensors.torch.save({})}),
    "another file is served": lambda files, state: state.served.update({MEMORY: flipped(files[MEMORY], -1)}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_repository_is_refused_with_nothing_written(
    damage: str, pushed: dict[str, bytes], state: HubState, tmp_path: Path, capsys: Captured
) -> None:
    DAMAGES[damage](pushed, state)
    assert run(["pull", REPO, "-o", str(tmp_path / "m.safetensors"), "-q"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"deepthink: {REPO}: ")
    assert str(tmp_path) not in line
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_larger_than_listed_is_not_downloaded_to_its_end(
    pushed: dict[str, bytes], state: HubState, tmp_path: Path, capsys: Captured
) -> None:
    state.endless.add(MEMORY)
    assert run(["pull", REPO, "-o", str(tmp_path / "m.safetensors"), "-q"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    larger = f"{MEMORY} is larger than the {len(pushed[MEMORY]):,} bytes that the hub records"
    assert line == f"deepthink: {REPO}: damaged or changed: {larger}; nothing was written"
    assert state.sent < 2**27
    assert list(tmp_path.iterdir()) == []


def test_a_refused_memory_leaves_the_file_before_as_it_was(pushed: dict[str, bytes], tmp_path: Path) -> None:
    pushed[MEMORY] = flipped(pushed[MEMORY], -1)
    (tmp_path / "m.safetensors").write_bytes(b"before")
    assert run(["pull", REPO, "-o", str(tmp_path / "m.safetensors"), "-q"]) == 1
    assert (tmp_path / "m.safetensors").read_bytes() == b"before"


@pytest.mark.parametrize("words", [["push", "{memory}", REPO, "--yes"], ["pull", REPO]])
def test_without_a_connection_there_is_one_line(
    words: list[str], state: HubState, memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the library's attempts
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run([word.format(memory=memory) for word in words]) == 1
    message = f"deepthink: {REPO}: the hub cannot be reached; check the connection, and try again\n"
    assert capsys.readouterr().err == message
    assert list(tmp_path.iterdir()) == []


def test_without_a_token_the_hub_refuses(
    state: HubState, memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    line = refused(capsys, "push", memory, REPO, "--yes", code=1)
    assert f"{REPO}: the hub denies access; log in with hf auth login" in line


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pull", "me/absent"], 1, "me/absent: no such repository, or it is private"),
        (["pull", "me/empty"], 1, f"me/empty: has no {MEMORY}"),
        (["pull", "reviews"], 2, "reviews: not a repository of the hub; name one as OWNER/NAME"),
        (["pull", "https://example.org/me/x"], 2, "not a repository of the hub"),
        (["pull", REPO, "-o", "missing/m.safetensors"], 2, "there is no directory"),
        (["push", "absent.safetensors", REPO, "--yes"], 2, "absent.safetensors: no such file"),
    ],
)
def test_what_is_not_there_is_named(
    words: list[str],
    code: int,
    message: str,
    state: HubState,
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    state.repos["me/empty"] = {"main": {}}
    assert run(words) == code
    assert message in capsys.readouterr().err


def test_a_memory_that_peft_cannot_hold_is_published_without_it(
    state: HubState, memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise InputError("mem: has keys and values of several shapes")

    monkeypatch.setattr("deepthink_cli.plugins.exports.peft.write_peft", refuse)
    assert run(["push", str(memory), REPO, "--yes"]) == 0
    assert "warning: no adapter for PEFT is published: mem: has keys" in capsys.readouterr().err
    assert state.repos[REPO]["main"].keys() - {".gitattributes"} == {MEMORY, "README.md"}
