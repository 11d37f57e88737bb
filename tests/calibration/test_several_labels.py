"""Heads for rows with several labels, against transformers over whole prompts and against labels of chance."""

from __future__ import annotations

import random
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Models, write_rows
from helpers.by_hand import changed, parts, write_parts
from helpers.said import Captured, json_of, refused, rows_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from deepthink_cli import load_memory
from deepthink_cli.calibrate_memory import calibrate
from deepthink_cli.cli.main import run
from deepthink_cli.multilabel import each_against_rest
from deepthink_cli.scoring.scoring import Scoring

LABELS = ("bug", "account", "billing")
DEMONSTRATIONS: list[dict[str, object]] = [
    {"text": "It crashes when I log in", "labels": ["bug", "account"]},
    {"text": "The invoice is wrong", "labels": ["billing"]},
    {"text": "My password is rejected", "labels": ["account"]},
]
WORDS = {"bug": "crash", "account": "password", "billing": "invoice"}


def tickets(count: int, seed: int, by_chance: bool = False) -> list[dict[str, object]]:
    """Rows whose words tell their labels, or rows with labels of chance."""
    draw, rows = random.Random(seed), list[dict[str, object]]()
    for place in range(count):
        said, true = (draw.sample(LABELS, draw.choice([1, 1, 2])) for _ in range(2))
        text = f"{' and '.join(WORDS[label] for label in said)} in ticket {place}"
        rows.append({"text": text, "labels": true if by_chance else said})
    return rows


@pytest.fixture
def memory(models: Models, tmp_path: Path) -> Path:
    """A memory of tickets with several labels, T = 2, by the tiny Llama."""
    demonstrations, path = write_rows(tmp_path / "demos.jsonl", DEMONSTRATIONS), tmp_path / "mem.safetensors"
    words = ["think", demonstrations, "-m", models("llama"), "-T", "2", "--keep", "all", "-q", "-o", path]
    assert run(list(map(str, words))) == 0
    return path


def test_the_labels_are_those_whose_share_of_hidden_states_passes_the_threshold(
    models: Models, memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    calibrate(memory, write_rows(tmp_path / "rows.jsonl", tickets(60, 0)), calibrate="head")
    inputs = write_rows(tmp_path / "in.jsonl", tickets(20, 1))
    first = load_memory(memory, 1).provenance
    assert first is not None
    assert first.thresholds is not None
    head, least = (first.thresholds.head or {})["1"], first.thresholds.at["1"]
    weights = {name: np.frombuffer(b64decode(each), "<f4").astype(float) for name, each in head.weights.items()}
    model = AutoModelForCausalLM.from_pretrained(models("llama")).double().eval()
    tokenizer, read, said = AutoTokenizer.from_pretrained(models("llama")), first.demonstrations, []
    for row in tickets(20, 1):
        pairs = [(each.text, each.label) for each in read.examples]
        prompt = read.template.demonstrations(pairs) + read.template.query(str(row["text"])).rstrip()
        with torch.no_grad():
            states = model(torch.tensor([tokenizer(prompt)["input_ids"]]), output_hidden_states=True).hidden_states
        seen = np.concatenate([states[layer][0, -1].numpy() for layer in head.layers])
        shares = {name: 1 / (1 + np.exp(-(weights[name] @ seen + head.bias[name]))) for name in LABELS}
        said.append((shares, [label for label in LABELS if shares[label] > least[label]]))
    found = rows_of(capsys, "predict", memory, inputs, "--at", "1", "--top", "3")
    for row, (shares, labels) in zip(found, said, strict=True):
        top = {each["label"]: each["probability"] for each in row["top"]}
        assert top == pytest.approx(shares, abs=1e-3)
        assert row["label"] == max(shares, key=lambda label: shares[label]) == row["top"][0]["label"]
        assert row["probability"] == row["top"][0]["probability"]
        assert set(row["labels"]) == set(labels)
    assert len({tuple(row["labels"]) for row in found}) > 1


def test_eval_gives_other_rows_nearly_what_the_cross_validation_said(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    stored = calibrate(memory, write_rows(tmp_path / "a.jsonl", tickets(100, 0)), calibrate="head").metadata.thresholds
    found = json_of(capsys, "eval", memory, write_rows(tmp_path / "b.jsonl", tickets(100, 1)), "--json")
    assert set(stored.head) == {"1", "2"}
    assert found["results"][-1]["micro_f1"] == pytest.approx(stored.micro_f1, abs=0.1)
    assert stored.micro_f1 > 0.9


def test_labels_of_chance_are_not_learned(memory: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", tickets(60, 0, by_chance=True))
    stored = calibrate(memory, rows, calibrate="head").metadata.thresholds
    assert stored.subset_accuracy < 0.35  # those that the head was fitted to would get nearly all


def test_shares_do_not_depend_on_the_other_labels() -> None:
    draw = np.random.default_rng(0)
    has = draw.random((80, 3)) < 0.4
    states = has @ draw.normal(size=(3, 12)) * 3 + draw.normal(size=(80, 12)) * 0.3
    head = each_against_rest(states[:, None], has, range(80))
    scores = head.scores(states[:, None], np.zeros((80, 3)))
    assert ((scores > 0) == has).all()
    alone = each_against_rest(states[:, None], has[:, :1], range(80))
    np.testing.assert_allclose(alone.scores(states[:, None], np.zeros((80, 1))), scores[:, :1])


@pytest.mark.plugins
def test_what_gives_no_head_is_refused_by_name(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    line = refused(capsys, "calibrate", memory, "--calibrate", "head")
    assert "--calibrate head: is fitted on labelled rows; give a file of them" in line
    few = write_rows(tmp_path / "few.jsonl", [{"text": f"ticket {n}", "labels": ["bug"]} for n in range(30)])
    line = refused(capsys, "calibrate", memory, few, "--calibrate", "head")
    assert "few.jsonl: inputs without the label 'bug': 0; head needs 2, give more" in line
    line = refused(capsys, "calibrate", memory, few, "--calibrate", "centroid")
    assert "store thresholds, or a head with thresholds: deepthink calibrate" in line


@pytest.mark.plugins
def test_a_head_is_of_one_way_to_write_queries(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", tickets(40, 0))
    calibrate(memory, rows, calibrate="head", scoring=Scoring.of(score="mean"))
    assert rows_of(capsys, "predict", memory, rows)  # other scores of labels have the same hidden states
    line = refused(capsys, "predict", memory, rows, "--reread", "2")
    assert "ROWS --calibrate head" in line


@pytest.mark.plugins
def test_a_damaged_head_is_named(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    calibrate(memory, write_rows(tmp_path / "rows.jsonl", tickets(40, 0)), calibrate="head")
    metadata, tensors, body = parts(memory)
    metadata = changed(metadata, ("thresholds", "head", "1", "weights"), {"bug": "", "account": ""})
    write_parts(memory, metadata, tensors, body)
    assert "thresholds.head: of account, bug, not of the labels" in refused(capsys, "inspect", memory)
