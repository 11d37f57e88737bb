"""From Python, evaluation gives what the command prints."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_rows
from helpers.said import Captured, json_of
from helpers.tiny import tiny_task
from torch import Tensor

from deepthink_cli import Method, evaluate, load_memory, load_model, think, tokenize_demonstrations
from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import read_demonstrations
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Note, Progress, Warn
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.rows import rows_of_file, rows_of_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.updates import RULES, Place, UpdateRule


@dataclass(frozen=True)
class Still(UpdateRule):
    """Leaves the memory as it is; its parameter has the name of one of the method's."""

    iterations: int = 0

    def __call__(self, history: Tensor, present: Tensor, state: Tensor | None, place: Place) -> tuple[Tensor, None]:
        return history, None


TEXTS = ("A fine film.", "Awful.", "Dull and long.", "I loved it.", "A mess without a plot.", "Charming and witty.")
TIMES = ("seconds", "inputs_per_second")


@pytest.fixture
def memory(tmp_path: Path, demos: Path) -> Path:
    """A memory of three iterations of which two are kept, by the built-in model."""
    path = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "-T", "3", "--keep", "2,3", "-q", "-o", str(path)]) == 0
    return path


def printed(words: list[str], capsys: Captured) -> dict[str, Any]:
    """What a command prints as JSON, without times."""
    values: dict[str, Any] = json_of(capsys, *words, "--json")
    return {name: value for name, value in values.items() if name not in TIMES}


def test_evaluate_returns_what_the_command_prints(memory: Path, demos: Path, capsys: Captured) -> None:
    report = evaluate(memory, demos)
    values = {name: value for name, value in report.as_json().items() if name not in TIMES}
    assert json.loads(json.dumps(values)) == printed(["eval", str(memory), str(demos)], capsys)
    assert list(report.evaluation.results) == [1, 2, 3]
    assert report.accuracy == report.evaluation.last.accuracy
    assert report.inputs_per_second > 0


def test_a_task_is_evaluated_as_the_command_does(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path, template="Review: {review}\nSentiment: {sentiment}", fields={"review": "body"})
    opened = open_memory(memory)
    report = evaluate(opened, rows_of_task(opened, str(task), "paper", Source(data)))
    words = ["eval", str(memory), "--task", str(task), "--data-dir", str(data), "--protocol", "paper"]
    values = {name: value for name, value in report.as_json().items() if name not in TIMES}
    assert json.loads(json.dumps(values)) == printed([*words, "--at", "last"], capsys)


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
    assert [event.done for event in events if isinstance(event, Progress)] == [4]
    assert [event.text.partition(": ")[2][:15] for event in events if isinstance(event, Note)] == ["pocket is a toy"]


def test_where_no_row_fits_the_model_the_reason_of_the_first_is_told(demos: Path, tmp_path: Path) -> None:
    engine = load_model()
    demonstrations = tokenize_demonstrations(engine.tokenizer, read_demonstrations(str(demos)))
    memories = list(think(engine, demonstrations, Method(1)))
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "fine " * 5000, "sentiment": "positive"}])
    with pytest.raises(InputError, match=r"no row can be evaluated; the first: .*rows\.jsonl:1: too long"):
        evaluate(memories, rows, engine=engine)


def test_mistakes_in_rows_are_told_before_a_model_is_loaded(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
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


def test_what_thinking_did_is_what_the_samples_of_every_iteration_give(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    labelled = [{"review": text, "sentiment": label} for text, label in zip(TEXTS, "pnnpnp", strict=True)]
    words = {"p": "positive", "n": "negative"}
    rows = write_rows(tmp_path / "rows.jsonl", [{**row, "sentiment": words[row["sentiment"]]} for row in labelled])
    samples = tmp_path / "samples.jsonl"
    values = printed(["eval", str(memory), str(rows), "-o", str(samples)], capsys)
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    by_iteration = {t: [line for line in lines if line["iteration"] == t] for t in (1, 2, 3)}
    logs = {t: np.array([gold_log_probability(line) for line in each]) for t, each in by_iteration.items()}
    for result in values["results"]:
        now, first = by_iteration[result["iteration"]], by_iteration[1]
        assert result["log_probability"] == pytest.approx(logs[result["iteration"]].mean())
        assert result["predicted"] == dict(Counter(line["label"] for line in now))
        if result["iteration"] == 1:
            assert result["changes"] is None
            continue
        right = [[line["label"] == line["gold"] for line in each] for each in (first, now)]
        assert result["changes"]["fixed"] == sum(now and not before for before, now in zip(*right, strict=True))
        assert result["changes"]["broken"] == sum(before and not now for before, now in zip(*right, strict=True))
        assert result["changes"]["changed"] == sum(
            before["label"] != after["label"] for before, after in zip(first, now, strict=True)
        )
        assert result["changes"]["log_probability"] == pytest.approx((logs[result["iteration"]] - logs[1]).mean())
    assert values["true_labels"] == {"positive": 3, "negative": 3}


def gold_log_probability(line: dict[str, Any]) -> float:
    scores = np.array(list(line["scores"].values()))
    return float(line["scores"][line["gold"]] - np.log(np.exp(scores).sum()))


def test_memories_in_any_order_are_compared_with_the_first_reading(demos: Path) -> None:
    engine = load_model()
    demonstrations = tokenize_demonstrations(engine.tokenizer, read_demonstrations(str(demos)))
    memories = list(think(engine, demonstrations, Method(3)))
    ordered = evaluate(memories, demos, engine=engine).evaluation
    assert evaluate(memories[::-1], demos, engine=engine).evaluation.changes == ordered.changes
    assert list(ordered.changes) == [2, 3]
