"""Verdicts of the probe are kept on this machine, for all that they depend on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Models

from deepthink_cli import load_model
from deepthink_cli.engine import findings, kernels, probe
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.probe import Verdict

pytestmark = pytest.mark.usefixtures("loaded_anew")


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The dtypes of the models that are probed, with an empty cache that also keeps verdicts of small models."""
    dtypes: list[str] = []
    whole = probe.try_packed

    def noted(model: LanguageModel) -> Verdict:
        dtypes.append(model.identity.dtype)
        return whole(model)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(findings, "_SMALL", 0)
    monkeypatch.setattr(probe, "try_packed", noted)
    return dtypes


def kept(folder: Path) -> list[Path]:
    """The files of kept verdicts."""
    return sorted((folder / "deepthink" / "probes").glob("*"))


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_a_verdict_is_kept_and_used_again(family: str, models: Models, probed: list[str]) -> None:
    first, second = (load_model(str(models(family))) for _ in range(2))
    assert probed == ["float32"]
    assert (type(second), second.description) == (type(first), first.description)


def test_another_dtype_is_probed_by_itself(models: Models, probed: list[str]) -> None:
    for dtype in ("float32", "bfloat16", "float32", "bfloat16"):
        load_model(str(models("llama")), dtype=dtype)
    assert probed == ["float32", "bfloat16"]


def test_other_code_of_the_engines_is_probed_again(
    models: Models, probed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_model(str(models("llama")))
    monkeypatch.setattr(findings, "_engine_sha256", lambda: "0" * 64)
    load_model(str(models("llama")))
    assert len(probed) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"verdict": {}}', "é"])
def test_a_damaged_entry_is_made_again(damage: str, models: Models, probed: list[str], tmp_path: Path) -> None:
    load_model(str(models("llama")))
    (entry,) = kept(tmp_path)
    whole = entry.read_bytes()
    entry.write_text(damage, encoding="utf-8")
    load_model(str(models("llama")))
    assert len(probed) == 2
    assert entry.read_bytes() == whole


def test_the_entry_of_another_model_is_made_again(models: Models, probed: list[str], tmp_path: Path) -> None:
    load_model(str(models("llama")))
    (entry,) = kept(tmp_path)
    foreign = json.loads(entry.read_text())
    foreign["depends_on"]["weights"] = "0" * 64
    entry.write_text(json.dumps(foreign))
    load_model(str(models("llama")))
    assert len(probed) == 2


def test_an_error_is_no_verdict_to_keep(
    models: Models, probed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise NotImplementedError("no such kernel")

    with monkeypatch.context() as context:
        context.setattr(kernels, "_kernel", lambda _: broken)
        with pytest.warns(RuntimeWarning, match="no such kernel"):
            load_model(str(models("llama")))
    assert kept(tmp_path) == []
    assert load_model(str(models("llama"))).warning is None


def test_a_cache_that_cannot_be_written_only_costs_time(models: Models, probed: list[str], tmp_path: Path) -> None:
    (tmp_path / "deepthink").write_text("a file where the folder would be")
    for _ in range(2):
        load_model(str(models("llama")))
    assert len(probed) == 2
