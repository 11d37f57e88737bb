"""From Python, evaluation gives what the command prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import write_rows
from tiny import tiny_task
from torch import Tensor

from deepthink_cli import Method, evaluate, load_memory, load_model, think, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import read_demonstrations
from deepthink_cli.errors import InputError
from deepthink_cli.options import ModelOptions
from deepthink_cli.prediction import Prediction
from deepthink_cli.tasks.sources import Source
from deepthink_cli.updates.base import Place, UpdateRule
from deepthink_cli.updates.registry import RULES
from deepthink_cli.workflows.evaluated_rows import rows_of_file, rows_of_task
from deepthink_cli.workflows.events import Event, Note, Progress, Warn
from deepthink_cli.workflows.memories import open_memory


@dataclass(frozen=True)
class Still(UpdateRule):
    """Leaves the memory as it is; its parameter has the name of one of the method's."""

    iterations: int = 0

    def __call__(self, history: Tensor, present: Tensor, state: Tensor | None, place: Place) -> tuple[Tensor, None]:
        return history, None


TIMES = ("seconds", "inputs_per_second")


@pytest.fixture
def memory(tmp_path: Path, demos: Path) -> Path:
    """A memory of three iterations of which two are kept, by the built-in model."""
    path = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "-T", "3", "--keep", "2,3", "-q", "-o", str(path)]) == 0
    return path


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What a command prints as JSON, without times."""
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    values: dict[str, object] = json.loads(capsys.readouterr().out)
    return {name: value for name, value in values.items() if name not in TIMES}


def test_evaluate_returns_what_the_command_prints(
    memory: Path, demos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = evaluate(memory, demos)
    values = {name: value for name, value in report.as_json().items() if name not in TIMES}
    assert json.loads(json.dumps(values)) == printed(["eval", str(memory), str(demos)], capsys)
    assert list(report.evaluation.results) == [1, 2, 3]
    assert report.accuracy == report.evaluation.last.accuracy
    assert report.inputs_per_second > 0


def test_a_task_is_evaluated_as_the_command_does(
    memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, data = tiny_task(tmp_path, template="Review: {review}\nSentiment: {sentiment}", fields={"review": "body"})
    opened = open_memory(memory)
    report = evaluate(opened, rows_of_task(opened, str(task), "paper", Source(data)))
    words = ["eval", str(memory), "--task", str(task), "--data-dir", str(data), "--protocol", "paper"]
    values = {name: value for name, value in report.as_json().items() if name not in TIMES}
    assert json.loads(json.dumps(values)) == printed([*words, "--iteration", "last"], capsys)


def test_memories_in_no_file_are_evaluated_with_the_model_that_made_them(demos: Path) -> None:
    engine = load_model()
    demonstrations = tokenize_demonstrations(engine.tokenizer, read_demonstrations(str(demos)))
    memories = list(think(engine, demonstrations, Method(2)))
    seen: list[Prediction] = []
    report = evaluate(memories, demos, engine=engine, observe=seen.append)
    assert report.as_json()["memory"]["file"] == "this memory"
    assert [prediction.iteration for prediction in seen] == [1, 2] * report.evaluation.n


def test_events_tell_progress_and_what_the_user_should_know(memory: Path, demos: Path) -> None:
    events: list[Event] = []
    evaluate(memory, demos, options=ModelOptions.checked(dtype="bfloat16"), tell=events.append)
    assert any(isinstance(event, Warn) and "is used in bfloat16" in event.text for event in events)
    assert [event.done for event in events if isinstance(event, Progress)] == [1, 2, 3, 4]
    assert not any(isinstance(event, Note) for event in events)


def test_mistakes_in_rows_are_told_before_a_model_is_loaded(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.engine.choice.load_network", lambda _: pytest.fail("weights were loaded"))
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "good", "sentiment": "odd"}, {"review": "bad"}])
    with pytest.raises(InputError) as error:
        evaluate(memory, rows)
    assert len(error.value.messages) == 2


def test_rows_can_be_evaluated_several_times(memory: Path, demos: Path) -> None:
    rows = rows_of_file(memory, demos)
    assert evaluate(memory, rows).evaluation == evaluate(memory, rows).evaluation


def test_rows_that_were_read_for_another_memory_are_refused(memory: Path, demos: Path, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "other.jsonl", [{"text": "a", "kind": "x"}, {"text": "b", "kind": "y"}])
    assert run(["think", str(other), "-T", "1", "-q", "-o", str(tmp_path / "other.safetensors")]) == 0
    with pytest.raises(InputError, match="read for a memory with the labels positive, negative"):
        evaluate(tmp_path / "other.safetensors", rows_of_file(memory, demos))


def test_standard_input_cannot_be_evaluated(memory: Path) -> None:
    with pytest.raises(InputError, match="reads its rows twice"):
        evaluate(memory, "-")


def test_a_report_names_the_update_rule_that_made_the_memory(demos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "still", Still)
    engine = load_model()
    demonstrations = tokenize_demonstrations(engine.tokenizer, read_demonstrations(str(demos)))
    memories = list(think(engine, demonstrations, Method(2, Still(7))))
    described = evaluate(memories, demos, engine=engine).as_json()["memory"]
    assert described["update"] == {"name": "still", "values": {"iterations": 7}}
    assert described["iterations"] == 2


def test_a_memory_of_another_model_is_refused(memory: Path, demos: Path, llama: object) -> None:
    with pytest.raises(InputError, match="made by another model"):
        evaluate(load_memory(memory), demos, engine=llama)  # type: ignore[arg-type]
