"""The ablations of the gate, against equations that are written out here, and in runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Models
from helpers.said import Captured, output
from helpers.tiny import run_words

from deepthink_cli import Gate, Memory
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import read_results
from deepthink_cli.memory import State
from deepthink_cli.registry import split_names
from deepthink_cli.updates import RULES, checked_rule, parse_rule, rule_text, values_of

LAYERS = 3
Eta = Callable[[int, int, str], float]  # of the reading, the layer from 0 and the part, for eta = 1

# The share of eta that each rule has, as docs/think.md has it.
SHARES: dict[str, Eta] = {
    "gate": lambda t, layer, part: 1.0,
    "keys-only": lambda t, layer, part: {"keys": 1.0, "values": 0.0}[part],
    "values-only": lambda t, layer, part: {"keys": 0.0, "values": 1.0}[part],
    "layer-ramp": lambda t, layer, part: [0.0, 0.5, 1.0][layer],
    "layer-ramp:first=1,last=0.5": lambda t, layer, part: [1.0, 0.75, 0.5][layer],
    "lower-half": lambda t, layer, part: [1.0, 0.0, 0.0][layer],
    "upper-half": lambda t, layer, part: [0.0, 1.0, 1.0][layer],
    "inverse-time": lambda t, layer, part: {2: 1.0, 3: 1 / 2, 4: 1 / 3, 5: 1 / 4}[t],
    "cosine:readings=4": lambda t, layer, part: {2: 1.0, 3: 0.75, 4: 0.25, 5: 0.0}[t],
}


def random_memory(seed: int) -> Memory:
    draw = torch.Generator().manual_seed(seed)
    parts = [torch.randn(2, 3, 4, generator=draw) for _ in range(2 * LAYERS)]
    return Memory(tuple(parts[:LAYERS]), tuple(parts[LAYERS:]))


def arrays(memory: Memory) -> dict[tuple[str, int], np.ndarray]:
    parts = {"keys": memory.keys, "values": memory.values}
    return {(part, layer): parts[part][layer].double().numpy() for part in parts for layer in range(LAYERS)}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("text", SHARES)
def test_a_rule_moves_every_tensor_by_its_own_gate(text: str, momentum: float) -> None:
    rule, memory, state = parse_rule(text, Gate(0.4, momentum)), random_memory(0), State()
    expected = arrays(memory)
    steps = dict.fromkeys(expected, np.zeros((2, 3, 4)))
    for t in (2, 3, 4, 5):
        present = random_memory(t)
        new = arrays(present)
        for (part, layer), old in expected.items():
            steps[part, layer] = new[part, layer] - old + momentum * steps[part, layer]
            expected[part, layer] = old + 0.4 * SHARES[text](t, layer, part) * steps[part, layer]
        memory, state = memory.updated(present, rule, state)
    for place, array in arrays(memory).items():
        np.testing.assert_allclose(array, expected[place], rtol=1e-5, atol=1e-6)


def test_every_rule_that_changes_the_gate_has_an_equation_here() -> None:
    assert {text.partition(":")[0] for text in SHARES} == RULES.keys()


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "think.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z-]+)[:`]", page.partition("\n## Ablations")[2].partition("\n### ")[0]))
    assert documented >= RULES.keys()


@pytest.mark.parametrize("text", SHARES)
def test_a_rule_has_one_text(text: str) -> None:
    rule = parse_rule(text, Gate(0.3, 0.5))
    assert parse_rule(checked_rule(text), Gate(0.3, 0.5)) == rule
    assert checked_rule(checked_rule(text)) == checked_rule(text) == (rule_text(rule) or "gate")
    assert str(rule).startswith(text.partition(":")[0] if text != "gate" else "eta 0.3")


def test_the_same_rule_written_in_other_ways_is_one_rule() -> None:
    ramp = "layer-ramp:first=0,last=1"
    assert [checked_rule(way) for way in ("layer-ramp", " layer-ramp:last=1.0 , first=0.0")] == [ramp] * 2
    assert values_of(parse_rule(ramp, Gate(0.2, 0.9))) == {"eta": 0.2, "momentum": 0.9, "first": 0.0, "last": 1.0}


def test_a_list_of_rules_is_separated_by_commas_as_parameters_are() -> None:
    text = "gate,layer-ramp:first=0,last=0.5, keys-only,cosine:readings=3"
    assert split_names(text) == ["gate", "layer-ramp:first=0,last=0.5", "keys-only", "cosine:readings=3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys", "'keys' is unknown here; the known ones are gate, cosine"),
        ("cosine:readings", "write NAME:PARAMETER=VALUE"),
        ("cosine:readings=3,readings=4", "each parameter once"),
        ("cosine:readings=1", "readings: must be 2 or more"),
        ("cosine:first=1", "no parameter 'first'; its parameters are eta, momentum, readings"),
        ("layer-ramp:last=nan", "last: must be"),
        ("keys-only:eta=0.1", "eta is not a parameter here; use --eta"),
    ],
)
def test_a_text_that_is_no_rule_says_what_would_be(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="update rule") as raised:
        checked_rule(text)
    assert message in str(raised.value)


@pytest.fixture
def words(models: Models, tmp_path: Path) -> Callable[..., list[str]]:
    command = run_words(tmp_path, models("llama"), "-T", "2", "--quiet", "--eta", "0.5")
    return lambda *more: [*command, *more]


def test_every_rule_has_its_own_rows_and_they_share_the_first_reading(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    rules = "gate,values-only,layer-ramp:last=0,first=1,inverse-time"
    assert run(words("--update", rules, "--eta", "0.1,0.5", "--seeds", "2")) == 0
    rows = read_results(tmp_path / "out")
    assert len({row.key for row in rows}) == len(rows) == 4 * 2 * 2 * 2
    assert [*dict.fromkeys(row.setting.update for row in rows)] == [
        None,
        "values-only",
        "layer-ramp:first=1,last=0",
        "inverse-time",
    ]
    assert len({row.correct for row in rows if row.setting.iteration == 1 and row.setting.seed == 0}) == 1
    assert {row.drift[0] for row in rows if row.drift and row.setting.update == "values-only"} == {0.0}


def test_a_rule_that_cannot_be_used_is_refused(words: Callable[..., list[str]], capsys: Captured) -> None:
    assert run(words("--update", "gate,cosine:readings=0")) == 2
    assert "update rule 'cosine': readings: must be 2 or more" in capsys.readouterr().err


def test_a_memory_says_by_which_rule_it_was_made(models: Models, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    memory = str(tmp_path / "mem.safetensors")
    rule = ["--update", "cosine:readings=3", "--eta", "0.5"]
    assert run(["think", str(demos), "-m", str(models("llama")), "-T", "2", *rule, "-o", memory]) == 0
    assert "cosine, eta 0.5, momentum 0.0, readings 3" in output(capsys, "inspect", memory)
