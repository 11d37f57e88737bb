"""`deepthink generate` and `deepthink chat`: rows, plain text on a terminal, questions one after another."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_reviews, write_rows
from helpers.chats import write_chat_model
from helpers.forks import Child, Forks
from helpers.said import Captured, refused, rows_of

from deepthink_cli import Decoding, generate, load_memory, load_model
from deepthink_cli.artifact.opening import load_both
from deepthink_cli.cli.main import run
from deepthink_cli.data.rows import read_rows
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.chat.dialogue import Dialogue

ROWS: list[dict[str, object]] = [{"id": 1, "review": "a kind film"}, {"id": 2, "review": "so so, and long"}]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of two iterations."""
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "2", "--keep", "all")


@pytest.fixture(scope="module")
def chat_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of a conversation."""
    folder = tmp_path_factory.mktemp("chat")
    demos, path = write_reviews(folder / "demos.jsonl"), folder / "mem.safetensors"
    model = write_chat_model(folder / "model")
    assert run(["think", str(demos), "-m", str(model), "-T", "2", "--chat", "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl", ROWS)


def words(memory: Path, inputs: Path | str, *more: str) -> list[str]:
    return ["generate", str(memory), str(inputs), "--max-new-tokens", "8", "-q", *more]


def test_each_input_has_a_row_with_its_answer(memory: Path, inputs: Path, capsys: Captured) -> None:
    rows = rows_of(capsys, *words(memory, inputs))
    assert [row["input"] for row in rows] == ROWS
    assert [(row["index"], row["tokens"] <= 8) for row in rows] == [(0, True), (1, True)]
    loaded = load_memory(memory)
    engine = load_model(loaded.provenance.model.id)
    texts = [str(row["review"]) for row in ROWS]
    expected = list(generate(engine, loaded, texts, Decoding(max_new_tokens=8)))
    assert [(row["text"], row["finish"]) for row in rows] == [(each.text, each.finish) for each in expected]


@pytest.mark.parametrize("text", ["a kind film", "film", "good or/and bad? "])
def test_a_text_in_place_of_a_file_is_the_one_input(memory: Path, text: str, capsys: Captured) -> None:
    (row,) = rows_of(capsys, *words(memory, text))
    assert row["input"] == {"review": text}


@pytest.mark.parametrize("name", ["nofile.csv", "no/file", "nofile.jsonl.gz"])
def test_what_looks_like_a_file_is_none(memory: Path, name: str, capsys: Captured) -> None:
    assert run(words(memory, name)) == 2
    assert f"{name}: no such file" in capsys.readouterr().err


def test_every_iteration_answers(memory: Path, inputs: Path, capsys: Captured) -> None:
    rows = rows_of(capsys, *words(memory, inputs, "--at", "all"))
    assert [(row["index"], row["iteration"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_seed_gives_the_same_answers_whatever_precedes_an_input(
    memory: Path, inputs: Path, tmp_path: Path, capsys: Captured
) -> None:
    sampled = ("--temperature", "1.2", "--top-p", "0.9")
    both = rows_of(capsys, *words(memory, inputs, *sampled, "--seed", "4"))
    last = write_rows(tmp_path / "last.jsonl", ROWS[1:])
    (alone,) = rows_of(capsys, *words(memory, last, *sampled, "--seed", "5"))
    assert alone["text"] == both[1]["text"]
    assert rows_of(capsys, *words(memory, inputs, *sampled, "--seed", "7"))[0]["text"] != both[0]["text"]


def test_an_answer_ends_where_demonstrations_do_unless_told_otherwise(
    memory: Path, inputs: Path, capsys: Captured
) -> None:
    free = rows_of(capsys, *words(memory, inputs, "--stop", ""))[0]
    assert free["finish"] in ("length", "end")
    stop = free["text"][2]
    stopped = rows_of(capsys, *words(memory, inputs, "--stop", "\\\\never", "--stop", stop))[0]
    assert (stopped["finish"], stopped["text"]) == ("stop", free["text"][: free["text"].index(stop)])


def test_bad_rows_are_refused_together_or_skipped(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "mixed.jsonl"
    long = json.dumps({"review": "fine " * 3000})
    path.write_text(f'{{"review": "a"}}\nnot json\n{{"text": "b"}}\n{long}\n{{"review": "c"}}\n')
    assert run(words(memory, path)) == 2
    err = capsys.readouterr().err
    assert "mixed.jsonl:2" in err
    assert "mixed.jsonl:3: field 'review' is missing" in err
    rows = _skipped(memory, path, capsys)
    assert ["error" in row for row in rows] == [False, True, True, True, False]
    assert "too long" in rows[3]["error"]


def _skipped(memory: Path, path: Path, capsys: Captured) -> list[dict[str, Any]]:
    return rows_of(capsys, *words(memory, path, "--on-error", "skip", "--allow-errors", "3"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--temperature", "warm"], "--temperature warm: a number, 0"),
        (["--top-p", "0"], "--top-p 0: a probability above 0"),
        (["--max-new-tokens", "0"], "--max-new-tokens 0: a number of tokens, 1 or more"),
        (["--max-new-tokens", "5000"], "--max-new-tokens "),
    ],
)
def test_what_cannot_be_done_is_one_line(
    more: list[str], told: str, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    one = write_rows(tmp_path / "one.jsonl", ROWS[:1])
    line = refused(capsys, "generate", memory, one, "-q", *more)
    assert told in line


def test_a_chat_of_a_memory_uses_its_template(chat_memory: Path, inputs: Path, capsys: Captured) -> None:
    rows = rows_of(capsys, *words(chat_memory, inputs))
    loaded = load_memory(chat_memory)
    engine: Any = load_model(loaded.provenance.model.id)
    tokenizer, demonstrations = engine.tokenizer, loaded.provenance.demonstrations
    turns = [
        turn
        for example in demonstrations.examples
        for turn in (
            {"role": "user", "content": f"Review: {example.text}\nSentiment:"},
            {"role": "assistant", "content": example.label},
        )
    ]
    turns.append({"role": "user", "content": f"Review: {ROWS[0]['review']}\nSentiment:"})
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    out = engine.model.network.generate(
        ids,
        attention_mask=ids.new_ones(ids.shape),
        past_key_values=loaded.as_cache(),
        max_new_tokens=8,
        do_sample=False,
        eos_token_id=[0, tokenizer.eos_token_id],
        pad_token_id=0,
    )
    new = out[0, ids.shape[1] :].tolist()
    assert rows[0]["tokens"] == len(new)
    assert rows[0]["text"] == tokenizer.decode(new, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["memory", "chat_memory"])
def test_a_dialogue_continues_from_what_was_said(kind: str, request: pytest.FixtureRequest) -> None:
    loaded = load_memory(request.getfixturevalue(kind), 2)
    engine = load_model(loaded.provenance.model.id)
    dialogue = Dialogue(engine, loaded, Decoding(max_new_tokens=6))
    answers = ["".join(dialogue.ask(text)) for text in ("a warm film", "so so", "again")]
    assert [answer for _, answer in dialogue.exchanges] == answers
    other = Dialogue(engine, loaded, Decoding(max_new_tokens=6))
    other.exchanges = dialogue.exchanges[:2]  # not read before the question
    assert "".join(other.ask("again")) == answers[2]


def test_a_dialogue_forgets_its_oldest_part_when_the_context_is_full(memory: Path) -> None:
    loaded = load_memory(memory)
    engine = load_model(loaded.provenance.model.id)
    dialogue = Dialogue(engine, loaded, Decoding(max_new_tokens=20, stop=()))
    for number in range(12):
        assert list(dialogue.ask(f"a film that is {number} times as long as the others, and as dull"))
    assert dialogue.forgotten > 0
    with pytest.raises(InputError, match="this question: too long"):
        list(dialogue.ask("long " * 2000))


def test_lines_of_standard_input_are_questions(memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a warm film\n\nso so\n"))
    assert run(["chat", str(memory), "--max-new-tokens", "4", "-q", "--stop", "\\n"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert err == ""


def test_a_chat_refuses_several_iterations_and_several_fields(
    memory: Path, models: Models, tmp_path: Path, capsys: Captured
) -> None:
    for at in ("all", "1,2"):
        assert run(["chat", str(memory), "--at", at]) == 2
        assert f"--at {at}: " in capsys.readouterr().err
    rows = [{"a": f"x{n}", "b": "y", "c": label} for n, label in enumerate(["no", "yes"])]
    two, path = write_rows(tmp_path / "two.jsonl", rows), tmp_path / "two.safetensors"
    assert run(["think", str(two), "-m", str(models("llama")), "-T", "1", "-q", "-o", str(path)]) == 0
    capsys.readouterr()
    assert run(["chat", str(path), "-q"]) == 2
    assert "the memory's template needs the fields a, b; use deepthink generate" in capsys.readouterr().err


def _terminal(forks: Forks, arguments: list[str]) -> tuple[Child, int]:
    leader, follower = pty.openpty()
    program = forks.start(arguments, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    return program, leader


def _read_until(leader: int, text: bytes, seconds: float = 60) -> bytes:
    output, end = b"", time.monotonic() + seconds
    while text not in output and time.monotonic() < end:
        try:
            output += os.read(leader, 4096)
        except OSError:  # the program has ended
            break
    return output


@pytest.mark.parametrize("leaving", [b"\x04", b"/quit\n"])
def test_ctrl_c_stops_an_answer_and_ctrl_d_or_quit_leaves(memory: Path, forks: Forks, leaving: bytes) -> None:
    program, leader = _terminal(forks, ["chat", str(memory), "--max-new-tokens", "300", "--stop", ""])
    try:
        assert b"Ctrl-D or /quit leaves" in _read_until(leader, b"\n> ")
        os.write(leader, b"a warm film\n")
        _read_until(leader, b"\n")
        os.read(leader, 1)  # the answer has begun
        program.interrupt()
        assert _read_until(leader, b"> ").endswith(b"> ")
        time.sleep(0.8)  # longer than Ctrl-C takes to end other commands
        assert program.runs()
        os.write(leader, leaving)
        assert program.wait(30) == 0
    finally:
        program.kill()
        os.close(leader)


def test_a_terminal_gets_plain_text(memory: Path, inputs: Path, forks: Forks) -> None:
    program, leader = _terminal(forks, words(memory, inputs))
    try:
        output = _read_until(leader, b"\x00")
        assert program.wait(30) == 0
        assert b'"index"' not in output
        assert output.count(b"\n") >= 2
    finally:
        program.kill()
        os.close(leader)


def test_answers_to_rows_that_change_while_the_model_is_loaded_are_not_written(
    memory: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def loading(*arguments: Any) -> Any:
        inputs.write_text(json.dumps(ROWS[1]) + "\n" + json.dumps(ROWS[0]) + "\n")
        return load_both(*arguments)

    monkeypatch.setattr("deepthink_cli.artifact.opening.load_both", loading)
    assert run(words(memory, inputs, "-o", str(tmp_path / "out.jsonl"))) == 1
    assert f"deepthink: {inputs}: has changed since its rows were checked" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_the_suffix_is_the_format(memory: Path, inputs: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = rows_of(capsys, *words(memory, inputs))
    for name in ("out.jsonl", "out.csv", "out.parquet"):
        assert run(words(memory, inputs, "-o", str(tmp_path / name))) == 0
        cells = [row.fields for row in read_rows(str(tmp_path / name))]
        assert [cell["text"] for cell in cells] == [row["text"] for row in rows]
    assert list(cells[0]) == ["index", "text", "tokens", "finish", "id", "review"]
