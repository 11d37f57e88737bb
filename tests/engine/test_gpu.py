"""On a GPU, everything gives what it gives on the processor: memories, scores, texts, gradients, files and commands.

Run by `make gpu`; skipped where torch sees no GPU, and in the rest of the suite, which runs on the processor.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, Models, readings_of, write_rows
from helpers.families import FAMILIES
from queries import DEMOS, QUERIES, assert_close, tensors

from deepthink_cli import (
    Decoding,
    DemonstrationSet,
    Gate,
    Memory,
    Method,
    generate,
    load_memory,
    load_model,
    score,
    tokenize_demonstrations,
)
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.plugins.context_tuning.training import answer_gradient, training_rows

if not torch.cuda.is_available():
    pytest.skip("needs a GPU that torch sees: make gpu", allow_module_level=True)

CPU, THREE = torch.device("cpu"), Method(3, Gate(0.1, 0.5))
Both = tuple[BatchedEngine, BatchedEngine]
ROWS = [
    {"review": f"a {word} and {other} film", "sentiment": label}
    for label, words in (("positive", ("warm", "wise", "kind", "fine")), ("negative", ("dull", "flat", "cold", "long")))
    for word in words
    for other in words
]


@pytest.fixture(params=FAMILIES)
def both(request: pytest.FixtureRequest, models: Models) -> Both:
    """A tiny model of every family on the processor and on the GPU."""
    return loaded(models, request.param)


def loaded(models: Models, family: str, **options: Any) -> Both:
    folder = str(models(family))
    engines = (load_model(folder, device=device, dtype="float32", **options) for device in ("cpu", "cuda"))
    on_cpu, on_gpu = engines
    assert isinstance(on_cpu, BatchedEngine)
    assert isinstance(on_gpu, BatchedEngine)
    return on_cpu, on_gpu


def on_cpu(memory: Memory) -> Memory:
    return memory.to([CPU] * len(memory.keys))


def thought(engine: Engine, reviews: DemonstrationSet, method: Method = THREE) -> Memory:
    """The memory of the last reading."""
    return list(readings_of(engine, reviews, method))[-1]


def test_the_same_engine_is_chosen(both: Both) -> None:
    assert both[0].name == both[1].name


def test_thinking_gives_the_same_memory(both: Both, reviews: DemonstrationSet) -> None:
    expected, found = (thought(engine, reviews) for engine in both)
    assert found.keys[0].device.type == "cuda"
    assert_close(on_cpu(found), expected)
    assert [change.keys for change in found.drift] == [
        pytest.approx(change.keys, rel=1e-2, abs=1e-4) for change in expected.drift
    ]


def test_scores_are_the_same(both: Both) -> None:
    sums = []
    for engine in both:
        (memory,) = engine.read([Reading(DEMOS)])
        sums.append([scored.sums for scored in score(engine, memory, QUERIES)])
    assert sums[1] == [pytest.approx(row, abs=1e-4) for row in sums[0]]


def test_a_memory_of_the_other_device_is_scored(both: Both) -> None:
    made_on_cpu, made_on_gpu = (engine.read([Reading(DEMOS)])[0] for engine in both)
    crossed = [score(both[0], on_cpu(made_on_gpu), QUERIES), score(both[1], made_on_cpu, QUERIES)]
    assert [row.sums for row in crossed[1]] == [pytest.approx(row.sums, abs=1e-4) for row in crossed[0]]


def test_hidden_states_are_the_same(both: Both) -> None:
    expected, found = (list(engine.observe(None, engine.plan(QUERIES))) for engine in both)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other.hidden, one.hidden, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_the_same(both: Both, reviews: DemonstrationSet) -> None:
    results = []
    for engine in both:
        demonstrations = tokenize_demonstrations(engine.tokenizer, reviews)
        rows = training_rows(engine.tokenizer, demonstrations, "--technique ct-kv")
        (memory,) = engine.read([Reading(demonstrations.token_ids)])
        loss, gradient = answer_gradient(engine, memory, rows)
        results.append((loss, gradient))
    (expected, slopes), (loss, found) = results
    assert loss == pytest.approx(expected, rel=1e-4)
    for tensor, slope in zip(tensors(on_cpu(found)), tensors(slopes), strict=True):
        torch.testing.assert_close(tensor, slope, rtol=1e-3, atol=1e-4)


def test_generated_texts_are_the_same(both: Both, reviews: DemonstrationSet) -> None:
    texts = []
    for engine in both:
        answers = generate(engine, thought(engine, reviews), [Query("so so", ())], Decoding(max_new_tokens=6))
        texts.append([answer.text for answer in answers])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_near_float32(dtype: str, models: Models, reviews: DemonstrationSet) -> None:
    half = load_model(str(models("llama")), device="cuda", dtype=dtype)
    exact = load_model(str(models("llama")), device="cpu", dtype="float32")
    sums = [[scored.sums for scored in score(each, thought(each, reviews), QUERIES)] for each in (exact, half)]
    assert sums[1] == [pytest.approx(row, abs=0.3) for row in sums[0]]


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    """Demonstrations and inputs, and folders for the results of each device."""
    rows = [{"review": text, "sentiment": label} for text, label in REVIEWS]
    found = {"demos": write_rows(tmp_path / "demos.jsonl", rows), "rows": write_rows(tmp_path / "rows.jsonl", ROWS)}
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
    return {**found, "cpu": tmp_path / "cpu", "cuda": tmp_path / "cuda"}


def made(command: list[str], device: str, models: Models) -> None:
    """Run a command that loads a model on a device."""
    model = ["-m", str(models("llama"))] if command[0] in ("think", "tune", "select") else []
    assert run([*command, *model, "--device", device, "--dtype", "float32"]) == 0


METHODS = (
    ["--momentum", "0.5"],
    ["--positions", "restarted"],
    ["--technique", "ct-kv:steps=4"],
    ["--technique", "repeat-2"],
)


@pytest.mark.parametrize("words", METHODS, ids=lambda words: words[1])
def test_memory_files_are_the_same(words: list[str], paths: dict[str, Path], models: Models) -> None:
    iterations = [] if "--technique" in words else ["-T", "3"]
    memories = []
    for device in ("cpu", "cuda"):
        output = paths[device] / "mem.safetensors"
        made(["think", str(paths["demos"]), *iterations, *words, "-q", "-o", str(output)], device, models)
        memories.append(load_memory(output))
    for found, expected in zip(tensors(memories[1]), tensors(memories[0]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 if "ct-kv" in words else 1e-4)


@pytest.mark.parametrize("calibration", ["batch", "contextual", "domain", "pmi", "prior"])
def test_labels_are_the_same(calibration: str, paths: dict[str, Path], models: Models) -> None:
    lines = []
    for device in ("cpu", "cuda"):
        memory, output = str(paths[device] / "mem.safetensors"), paths[device] / "labels.jsonl"
        made(["think", str(paths["demos"]), "-T", "2", "-q", "-o", memory], device, models)
        words = ["predict", memory, str(paths["rows"]), "--calibrate", calibration, "-q", "-o", str(output)]
        made(words, device, models)
        lines.append([json.loads(line) for line in output.read_text().splitlines()])
    assert [row["label"] for row in lines[0]] == [row["label"] for row in lines[1]]
