"""`--chat` and `--system`: stored in the memory, so that predict and eval need nothing, and refused with one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.chats import write_chat_model
from helpers.families import write_model
from helpers.said import Captured, refused
from helpers.tiny import run_words

from deepthink_cli import evaluate, load_memory, load_model, open_memory, predict
from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import FILE, read_results

SYSTEM = "You judge reviews."


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_chat_model(tmp_path / "model")


@pytest.fixture
def memory(model: Path, demos: Path, tmp_path: Path) -> Path:
    path = tmp_path / "mem.safetensors"
    words = ["think", str(demos), "-m", str(model), "-T", "2", "--chat", "--system", SYSTEM, "-q", "-o", str(path)]
    assert run(words) == 0
    return path


def change_template(model: Path) -> None:
    path = model / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant\\n", "assistant:\\n"))


def test_predict_and_eval_need_nothing(memory: Path, demos: Path, capsys: Captured) -> None:
    assert run(["predict", str(memory), str(demos), "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    loaded = load_memory(memory)
    engine = load_model(str(memory.parent / "model"))
    provenance = loaded.provenance
    expected = list(predict(engine, loaded, [example.text for example in provenance.demonstrations.examples]))
    assert [row["scores"] for row in rows] == [pytest.approx(each.scores, abs=1e-5) for each in expected]
    assert run(["eval", str(memory), str(demos), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 4


@pytest.mark.plugins
def test_inspect_shows_the_chat(memory: Path, capsys: Captured) -> None:
    assert run(["inspect", str(memory)]) == 0
    assert f"as a chat, system message '{SYSTEM}'" in capsys.readouterr().out
    assert run(["inspect", str(memory), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["chat"]
    assert shown["system"] == SYSTEM
    assert len(shown["template_sha256"]) == 64


@pytest.mark.parametrize("command", ["predict", "eval"])
def test_a_changed_template_is_noticed_before_the_weights(
    command: str, memory: Path, model: Path, demos: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
    change_template(model)
    line = refused(capsys, command, memory, demos, "-q")
    assert f"{memory}: made with another chat template than the tokenizer's; " in line
    (model / "chat_template.jinja").unlink()
    assert "made with another chat template" in refused(capsys, command, memory, demos, "-q")


def test_a_changed_template_is_noticed_by_an_engine_that_is_loaded(memory: Path, model: Path, demos: Path) -> None:
    change_template(model)
    engine, opened = load_model(str(model)), open_memory(memory)
    with pytest.raises(InputError, match="this memory: made with another chat template"):
        evaluate(opened, demos, engine=engine)


def test_a_chat_needs_a_template(
    demos: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
    model = write_model(tmp_path / "base", "llama")
    line = refused(capsys, "think", demos, "-m", model, "--chat")
    assert f"--chat: the tokenizer of {model} has no chat template; " in line
    line = refused(capsys, *run_words(tmp_path, model, "--chat", "-q"))
    assert f"--chat: the tokenizer of {model} has no chat template; " in line


def test_a_run_carries_its_chat_and_continues(model: Path, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, model, "-T", "2", "-q")
    assert run(words) == 0
    plain = (tmp_path / "out" / FILE).read_bytes()
    assert b'"chat"' not in plain
    for _ in range(2):
        assert run([*words, "--chat"]) == 0
    rows = read_results(tmp_path / "out")
    assert (tmp_path / "out" / FILE).read_bytes().startswith(plain)
    assert [str(row.setting.chat) for row in rows] == ["None"] * 2 + ["as a chat"] * 2
    assert len({row.key for row in rows}) == 4
    capsys.readouterr()
    assert run(["report", str(tmp_path / "out"), "--output-format", "csv"]) == 0
    table = capsys.readouterr().out
    assert "chat" in table.splitlines()[0]
    assert len(table.splitlines()) == 3


def test_rows_that_are_too_long_as_turns_are_found_before_the_weights(
    model: Path, demos: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, bare = str(tmp_path / "mem.safetensors"), ["--template", "{review} {sentiment}"]
    assert run(["think", str(demos), "-m", str(model), "-T", "1", "--chat", *bare, "-q", "-o", memory]) == 0
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
    limit = 512 - len(read_header(memory).metadata.demonstrations.token_ids)
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "x" * (limit - 10)}])
    assert len(f"{'x' * (limit - 10)} negative") < limit
    assert f"{rows}:1: too long" in refused(capsys, "predict", memory, rows, "-q")


def test_a_system_message_needs_a_chat(demos: Path, tmp_path: Path, capsys: Captured) -> None:
    expected = "--system 'Be brief.': only with --chat; add it, or omit this"
    assert expected in refused(capsys, "think", demos, "--system", "Be brief.")
    assert "--system" in refused(capsys, "think", demos, "--chat", "--system", "\udcff")
