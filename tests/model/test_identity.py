"""A command hashes a model's weights once, and once more only where they were downloaded or changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.families import write_model
from helpers.tiny import run_words

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import read_results
from deepthink_cli.model.fingerprint import weights_sha256
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

pytestmark = pytest.mark.usefixtures("loaded_anew")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the weight files of every call that hashes weights."""
    calls: list[list[str]] = []

    def counting(files: list[Path]) -> str:
        calls.append([file.name for file in files])
        return weights_sha256(files)

    monkeypatch.setattr("deepthink_cli.model.spec.weights_sha256", counting)
    return calls


def many_jobs(folder: Path, model: str) -> list[str]:
    """The words of a run of two tasks and three seeds, each with two gates."""
    members = {"one": {}, "two": {"shots": 2}}
    return run_words(folder, Path(model), "-T", "2", "--seeds", "3", "--eta", "0.1,0.2", "-q", members=members)


def test_a_run_of_many_jobs_hashes_the_weights_once(models: Models, tmp_path: Path, hashed: list[list[str]]) -> None:
    command = many_jobs(tmp_path, str(models("llama")))
    assert run(command) == 0
    assert hashed == [["model.safetensors"]]
    digest = load_model(str(models("llama"))).identity.weights_sha256
    rows = read_results(tmp_path / "out")
    assert (len(rows), {row.setting.weights_sha256 for row in rows}) == (24, {digest})
    hashed.clear()
    assert run(command) == 0  # compares the rows of the folder before and after the weights are loaded
    assert hashed == [["model.safetensors"]]


def test_think_and_predict_hash_the_weights_once_each(
    models: Models, demos: Path, tmp_path: Path, hashed: list[list[str]]
) -> None:
    memory, rows = str(tmp_path / "mem.safetensors"), str(write_rows(tmp_path / "in.jsonl", [{"review": "fine"}]))
    for command in (["think", str(demos), "-m", str(models("llama")), "-o", memory], ["predict", memory, rows]):
        hashed.clear()
        assert run([*command, "-q"]) == 0
        assert hashed == [["model.safetensors"]]


def test_an_identity_is_one_object_until_the_weights_change(tmp_path: Path, hashed: list[list[str]]) -> None:
    model = write_model(tmp_path / "model", "llama")
    spec = open_model(ModelOptions(model=str(model)))
    assert hashed == []
    first = spec.identify()
    assert spec.identify() is first
    write_model(tmp_path / "other", "llama", seed=1)
    os.replace(tmp_path / "other" / "model.safetensors", model / "model.safetensors")
    assert load_model(spec).identity.weights_sha256 == spec.identify().weights_sha256 != first.weights_sha256
    assert len(hashed) == 2
