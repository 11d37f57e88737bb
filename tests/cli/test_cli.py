"""The program as a user meets it: results on stdout, people on stderr, one exit code for each ending."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.forks import Forks
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.cli.process import INTERRUPTED

INPUTS = [{"review": "a wise and tender film"}, {"review": "long and dull", "id": 7}]
LABELLED = [
    {"review": "wise and tender", "sentiment": "positive"},
    {"review": "long and dull", "sentiment": "negative"},
    {"review": "a joy", "sentiment": "positive"},
]


@pytest.fixture
def tiny(models: Models) -> str:
    return str(models("llama"))


@pytest.fixture
def memory(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    return thought_of(tmp_path / "mem.safetensors", "llama", "-T", "3", "--keep", "2,3")


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / "weightless"
    folder.mkdir()
    for file in models("gpt2").iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "out.safetensors"
    assert run(["think", str(demos), "-m", str(folder), "-T", "4", "--dry-run", "--json", "-o", str(path)]) == 0
    (plan,) = rows(capsys.readouterr().out)
    assert plan["tokens_attended"] == 2 * int(str(plan["tokens"]))
    assert plan["window"] is None
    assert (plan["passes"], plan["context"]) == (4, 512)
    assert not path.exists()


def test_the_planned_size_is_the_size_on_disk(tiny: str, demos: Path, memory: Path, capsys: Captured) -> None:
    run(["think", str(demos), "-m", tiny, "-T", "3", "--keep", "2,3", "--dry-run", "--json"])
    (plan,) = rows(capsys.readouterr().out)
    assert 0 < memory.stat().st_size - int(str(plan["file_bytes"])) < 10_000


def test_predict_writes_the_rows_of_the_contract(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["predict", str(memory), str(write_rows(tmp_path / "in.jsonl", INPUTS))]) == 0
    first, second = rows(capsys.readouterr().out)
    assert list(first) == ["index", "label", "probability", "scores", "input"]
    assert (first["index"], second["index"]) == (0, 1)
    assert second["input"] == INPUTS[1]
    assert list(first["scores"]) == ["positive", "negative"]  # type: ignore[call-overload]


@pytest.mark.parametrize("at", ["all", "3,2", "2, 3,2"])
def test_predict_gives_kept_iterations_on_request(at: str, memory: Path, tmp_path: Path, capsys: Captured) -> None:
    run(["predict", str(memory), str(write_rows(tmp_path / "in.jsonl", INPUTS)), "--at", at])
    found = [(row["index"], row["iteration"]) for row in rows(capsys.readouterr().out)]
    assert found == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_eval_reports_what_the_predictions_say(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    labelled, samples = write_rows(tmp_path / "in.jsonl", LABELLED), tmp_path / "samples.jsonl"
    assert run(["eval", str(memory), str(labelled), "--json", "-o", str(samples)]) == 0
    (found,) = rows(capsys.readouterr().out)
    assert [result["iteration"] for result in found["results"]] == [1, 2, 3]  # type: ignore[attr-defined]
    assert found["majority"] == {"label": "positive", "accuracy": pytest.approx(2 / 3)}
    for result in found["results"]:  # type: ignore[attr-defined]
        mine = [row for row in rows(samples.read_text()) if row["iteration"] == result["iteration"]]
        assert result["accuracy"] == pytest.approx(sum(row["label"] == row["gold"] for row in mine) / 3)


@pytest.mark.parametrize(
    ("threshold", "code", "told"),
    [
        ("0.0", 0, ""),
        ("1.0", 3, "accuracy 0.5000 is below --fail-under 1.0"),
        ("macro_f1=0", 0, ""),
        ("macro_f1=1", 3, "macro_f1 0.3333 is below --fail-under macro_f1=1"),
        ("log_probability=-50", 0, ""),
        ("log_probability=0", 3, "log_probability -"),
        ("macro-f1=0.8", 2, "unknown metric 'macro-f1'; did you mean macro_f1? there are accuracy"),
        ("=0.8", 2, "unknown metric ''"),
        ("macro_f1=2", 2, "as in macro_f1=0.8"),
        ("log_probability=nan", 2, "0 or less"),
    ],
)
def test_eval_fails_under_a_value_of_any_metric(
    threshold: str, code: int, told: str, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    labelled = write_rows(
        tmp_path / "in.jsonl", [{"review": "x", "sentiment": label} for label in ("positive", "negative")]
    )
    assert run(["eval", str(memory), str(labelled), "--fail-under", threshold, "-q"]) == code
    assert told in capsys.readouterr().err


@pytest.mark.plugins
def test_inspect_tells_the_memory_from_its_header(memory: Path, capsys: Captured) -> None:
    assert run(["inspect", str(memory), "--verify"]) == 0
    out = capsys.readouterr().out
    for told in (
        "T = 3, eta 0.01",
        "iteration 2, 3",
        "positive, negative",
        "a dull and lifeless mess",
        "digest verified",
    ):
        assert told in out
    run(["inspect", str(memory), "--json"])
    assert rows(capsys.readouterr().out)[0]["shots"] == 4


@pytest.mark.plugins
def test_doctor_can_be_pasted(capsys: Captured) -> None:
    assert run(["doctor", "--json"]) == 0
    (found,) = rows(capsys.readouterr().out)
    assert "threads" in found["devices"]["cpu"]  # type: ignore[index]
    assert run(["doctor"]) == 0
    assert "transformers" in capsys.readouterr().out


def test_a_reader_that_leaves_ends_the_program_quietly(memory: Path, tmp_path: Path, forks: Forks) -> None:
    inputs = write_rows(tmp_path / "in.jsonl", [{"review": f"film {n}"} for n in range(3000)])
    reading, outward = os.pipe()
    # With --calibrate, even none, predict does not advise a calibration on stderr.
    child = forks.start(["predict", str(memory), str(inputs), "--calibrate", "none"], stdout=outward)
    os.close(outward)
    with os.fdopen(reading) as output:
        assert json.loads(output.readline())["index"] == 0
    assert child.wait(30) == 1
    assert child.said.read_text() == ""


@pytest.mark.parametrize(
    "words", ["predict MEMORY INPUTS", pytest.param("inspect MEMORY", marks=pytest.mark.plugins), "--version"]
)
def test_a_full_disk_behind_standard_output_is_an_error(words: str, memory: Path, tmp_path: Path, forks: Forks) -> None:
    inputs = write_rows(tmp_path / "in.jsonl", INPUTS)
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    given = [{"MEMORY": str(memory), "INPUTS": str(inputs)}.get(word, word) for word in words.split()]
    with open("/dev/full", "w") as full:
        done = forks.run(given, stdout=full.fileno())
    assert done == (1, "deepthink: standard output: cannot be written: No space left on device\n")


def test_ctrl_c_ends_with_130_and_leaves_no_file(tiny: str, demos: Path, tmp_path: Path, forks: Forks) -> None:
    out = tmp_path / "out.safetensors"
    child = forks.start(["think", str(demos), "-m", tiny, "-T", "1000000", "-v", "-o", str(out)])
    assert child.until(lambda: "packed engine" in child.said.read_text())
    child.interrupt()
    assert child.wait(30) == 130
    assert child.said.read_text().splitlines()[-1] == INTERRUPTED
    assert [path.name for path in tmp_path.iterdir()] == ["demos.jsonl"]


def test_ctrl_c_ends_predict_while_it_waits_for_input(memory: Path, forks: Forks) -> None:
    inward, feeding = os.pipe()
    child = forks.start(["predict", str(memory), "-", "-v"], stdin=inward)
    os.close(inward)
    assert child.until(lambda: "packed engine" in child.said.read_text())
    time.sleep(0.2)
    sent = time.monotonic()
    child.interrupt()
    assert child.wait(30) == 130
    assert time.monotonic() - sent < 5  # seconds go by where Python itself would wait for the reader
    os.close(feeding)
    assert child.said.read_text().splitlines()[-1] == INTERRUPTED


def test_no_command_shows_the_help_and_an_unknown_one_a_suggestion(capsys: Captured) -> None:
    assert run([]) == 2
    assert "Usage: deepthink" in capsys.readouterr().out
    assert run(["thnk"]) == 2
    assert capsys.readouterr().err == "deepthink: No such command 'thnk'. Did you mean 'think'?\n"


def test_a_bug_is_reported_shortly_and_in_full_with_debug(
    demos: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("deepthink_cli.data.examples.read_demonstrations", broken)
    assert run(["think", str(demos)]) == 70
    err = capsys.readouterr().err
    assert err.startswith("deepthink: a bug in deepthink: ZeroDivisionError: by zero (test_cli.py:")
    assert "Traceback" not in err
    assert run(["think", str(demos), "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_window_is_named_beside_the_context(models: Models, demos: Path, capsys: Captured) -> None:
    for family, words in (
        ("gemma3_text", "context 512, window 256 in 2 of 3 layers\n"),
        ("mistral", "context 512, window 256 in 2 of 2 layers\n"),
        ("llama", "context 512\n"),
    ):
        assert run(["think", str(demos), "-m", str(models(family)), "--dry-run"]) == 0
        assert words in capsys.readouterr().out


REVIEWS = Path(__file__).resolve().parent.parent.parent / "examples" / "reviews"


@pytest.mark.plugins
def test_the_demo_tells_the_whole_story_in_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    out, err = capsys.readouterr()
    assert len((out + err).splitlines()) <= 60
    labelled = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [set(row["scores"]) for row in labelled] == [{"negative", "positive"}] * 4
    assert f"/reviews/sentences.jsonl: {len((REVIEWS / 'sentences.jsonl').read_text().splitlines())} inputs" in out
    assert re.findall(r"^(\d+) +\d+\.\d%", out, re.MULTILINE) == ["1", "2", "4", "8", "12"]
    for step in ("Think:", "Predict:", "Evaluate:", "deepthink think demos.jsonl -m gpt2"):
        assert step in err
    assert "no model named" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.plugins
def test_a_step_that_fails_ends_the_demo(tmp_path: Path, capsys: Captured) -> None:
    assert run(["demo", "-m", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, "no config.json in this directory" in err, "Predict:" in err) == ("", True, False)
