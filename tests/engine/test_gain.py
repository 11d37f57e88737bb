"""What bfloat16 would gain on this processor: measured on a copy of one layer, and told by doctor and `-v`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Loaded

from deepthink_cli import Engine, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.engine import gain
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.delegating import DelegatingEngine
from deepthink_cli.engine.gain import bfloat16_gain


class Clock:
    """A clock that only moves when it is told to, or by `step` whenever it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def work(self, *seconds: float) -> Callable[[], object]:
        """Work that takes these seconds, the last of them from then on."""
        left = list(seconds)

        def working() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return working


def test_the_gain_is_the_ratio_of_the_median_times() -> None:
    clock = Clock()
    assert gain._ratio(clock.work(9.0, 0.3), clock.work(0.1), clock) == pytest.approx(3)
    assert clock.now == pytest.approx(9.9)  # three rounds, though the first one took longer than all should


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "bloom", "phi", "falcon", "mpt", "gemma3_text", "gpt_neox"])
def test_one_layer_of_a_model_runs_alone_in_both_dtypes_and_the_model_stays_as_it_was(
    family: str, loaded: Loaded
) -> None:
    engine = loaded(family)
    assert isinstance(engine, BatchedEngine)
    network = engine.model.network
    before = {name: (id(tensor), tensor.dtype) for name, tensor in network.state_dict(keep_vars=True).items()}
    assert bfloat16_gain(engine, Clock(step=0.125)) == 1
    after = {name: (id(tensor), tensor.dtype) for name, tensor in network.state_dict(keep_vars=True).items()}
    assert after == before


def test_nothing_is_measured_for_a_quantized_model_another_engine_or_a_layer_that_does_not_run(
    models: Callable[[str], Path], llama: Engine
) -> None:
    engine = load_model(str(models("llama")))
    assert isinstance(engine, BatchedEngine)
    assert bfloat16_gain(DelegatingEngine(llama)) is None
    quantized = replace(engine.model, identity=replace(engine.identity, quantize="8bit"))
    assert bfloat16_gain(type(engine)(quantized)) is None
    engine.model.network.base_model.layers = torch.nn.ModuleList([torch.nn.Bilinear(3, 3, 3)])
    assert bfloat16_gain(engine, Clock(step=0.125)) is None


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (
            2.34,
            "2.3 times as fast as in float32 on this processor: see --dtype bfloat16; scores of SmolLM2",
        ),
        (0.4, "0.4 times as fast as in float32 on this processor: float32 is the better choice"),
        (None, "not measured: "),
    ],
)
def test_doctor_says_what_bfloat16_gains_and_costs(
    measured: float | None, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gain, "bfloat16_gain", lambda engine: measured)
    assert run(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bfloat16  ")]
    assert told in line


def test_a_model_in_float32_by_default_names_the_way_to_measure_bfloat16(
    models: Callable[[str], Path], demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["think", str(demos), "-m", str(models("llama")), "-T", "1", "-v", "-o"]
    assert run([*command, str(tmp_path / "auto.safetensors")]) == 0
    assert "`deepthink doctor -m MODEL` measures what --dtype bfloat16 gains" in capsys.readouterr().err
    assert run([*command, str(tmp_path / "float32.safetensors"), "--dtype", "float32"]) == 0
    assert "bfloat16" not in capsys.readouterr().err
