"""`think --technique ct-kv` as users run it: what is written and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Models, write_rows
from helpers import said
from helpers.said import Captured, json_of, refused
from helpers.tiny import tiny_task

from deepthink_cli import DemonstrationSet, load_memory
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Progress
from deepthink_cli.experiments.results import read_results
from deepthink_cli.make_memory import ThinkPlan, plan_thinking, think_and_save
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.context_tuning.technique import ContextTuning
from deepthink_cli.techniques.registry import TechniqueOptions

STEPS = 4


@pytest.fixture
def plan(reviews: DemonstrationSet) -> ThinkPlan:
    """A short training of the four reviews."""
    options = TechniqueOptions.checked(technique=f"ct-kv:steps={STEPS}")
    return plan_thinking(reviews, ModelOptions.checked(), MethodOptions.checked(iterations=1), technique=options)


def test_a_training_tells_of_every_step_and_gives_the_same_bytes_again(plan: ThinkPlan, tmp_path: Path) -> None:
    one, other, events = tmp_path / "one.safetensors", tmp_path / "other.safetensors", list[Event]()
    think_and_save(plan, one, events.append)
    think_and_save(plan, other)
    assert [event.done for event in events if isinstance(event, Progress)] == [0, 1, 2, 3, 4]
    assert one.read_bytes() == other.read_bytes()


def test_a_trained_memory_says_what_made_it_and_answers(tmp_path: Path, demos: Path, capsys: Captured) -> None:
    output = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "--technique", "ct-kv:steps=3,lr=0.01", "-o", str(output)]) == 0
    assert "tokens trained in 3 steps, " in capsys.readouterr().err
    provenance = load_memory(output).provenance
    assert provenance.technique.values == {"steps": 3, "lr": 0.01, "dropout": 0.05, "seed": 0}
    assert "T = 1 is one reading, then trained" in said.output(capsys, "eval", output, demos, "-q")
    assert "made by   ct-kv" in said.output(capsys, "inspect", output)


def test_a_dry_run_names_the_technique(demos: Path, capsys: Captured) -> None:
    plan = json_of(capsys, "think", demos, "--technique", "ct-kv:steps=7", "--dry-run", "--json")
    assert plan["technique"] == "ct-kv steps=7 lr=0.001 dropout=0.05 seed=0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--technique", "ct-kv", "-T", "5"], "--iterations 5: not with --technique ct-kv alone, which trains"),
        (["--technique", "ct-kv:steps=0"], "--technique ct-kv:steps=0: steps: must be 1 or more"),
        (["--technique", "ct-kv:lr=0"], "--technique ct-kv:lr=0: lr: must be more than 0"),
        (["--technique", "ct-kv:rate=1"], "no parameter 'rate'; its parameters are steps, lr, dropout, seed"),
        (["--technique", "fresh:steps=9"], "--technique fresh:steps=9: no parameter 'steps'; it has no parameters"),
        (["--technique", "ct-kv:steps"], "write NAME:PARAMETER=VALUE,..., each parameter once"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], message: str, demos: Path, capsys: Captured) -> None:
    assert message in refused(capsys, "think", demos, *words)


def test_one_reading_may_be_named(tmp_path: Path, demos: Path) -> None:
    output = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "--technique", "ct-kv:steps=1", "-T", "1", "-q", "-o", str(output)]) == 0


def test_fewer_than_four_demonstrations_are_trained_with_a_note(tmp_path: Path, capsys: Captured) -> None:
    rows = write_rows(tmp_path / "two.jsonl", [{"text": "warm", "kind": "good"}, {"text": "dull", "kind": "bad"}])
    assert run(["think", str(rows), "--technique", "ct-kv:steps=1", "-o", str(tmp_path / "mem.safetensors")]) == 0
    assert "fewer than 4 different demonstrations" in capsys.readouterr().err


def test_quantized_weights_are_refused(plan: ThinkPlan) -> None:
    spec = replace(plan.spec, options=plan.spec.options.model_copy(update={"quantize": "8bit"}))
    with pytest.raises(InputError, match="quantize 8bit: technique ct-kv needs gradients"):
        ContextTuning("ct-kv").check(spec, plan.demonstrations)


def test_the_seed_of_demonstrations_is_not_that_of_the_tokens_that_are_hidden(models: Models, tmp_path: Path) -> None:
    """The same demonstrations make the same memory, from a task with any seed, from a file, and in a run."""
    task, data = tiny_task(tmp_path)
    rows = tmp_path / "drawn.jsonl"
    common = ["--task", str(task), "-m", str(models("llama")), "--technique", "ct-kv:steps=2", "-q"]
    drawn, given = tmp_path / "drawn.safetensors", tmp_path / "given.safetensors"
    assert run(["think", *common, "--data-dir", str(data), "--seed", "1", "-o", str(drawn)]) == 0
    provenance = load_memory(drawn).provenance
    examples = provenance.demonstrations.examples
    write_rows(rows, [{"text": example.text, "kind": example.label} for example in examples])
    assert run(["think", str(rows), *common, "-o", str(given)]) == 0
    for one, other in zip(load_memory(drawn).keys, load_memory(given).keys, strict=True):
        assert torch.equal(one, other)
    assert run(["run", *common, "--data-dir", str(data), "--seeds", "1,", "-o", str(tmp_path / "out")]) == 0
    assert provenance.technique.values["seed"] == 0
    recorded = {row.setting.technique for row in read_results(tmp_path / "out")}
    assert recorded == {"ct-kv steps=2 lr=0.001 dropout=0.05 seed=0"}


def test_options_of_readings_are_refused_from_python_too(reviews: DemonstrationSet) -> None:
    technique = TechniqueOptions.checked(technique="ct-kv")
    with pytest.raises(InputError, match=r"eta 0\.01: not with technique ct-kv alone"):
        plan_thinking(reviews, ModelOptions.checked(), MethodOptions.checked(eta=0.01), technique=technique)
