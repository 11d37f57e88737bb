"""`deepthink study run`: the rows of a study are those of `deepthink run` with the same values, each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Models
from helpers.said import Captured
from helpers.tiny import run_words, tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments import run as run_here
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.plugins.study.crossing import cross_study
from deepthink_cli.plugins.study.study import open_study


@pytest.fixture
def study(models: Models, tmp_path: Path) -> Callable[..., Path]:
    """Writes a study of the tiny task and a tiny model; None omits a field."""
    tiny_task(tmp_path)
    common = {"models": str(models("llama")), "tasks": "tiny.yaml", "data_dir": "data"}
    common |= {"protocols": "paper", "iterations": 2}

    def write(**fields: Any) -> Path:
        content = {name: value for name, value in (common | fields).items() if value is not None}
        path = tmp_path / "films.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


def study_run(study: Path, out: Path, *more: str) -> int:
    return run(["study", "run", str(study), "-o", str(out), "--quiet", *more])


ONE_LINE = [
    ({}, ""),
    ({"seeds": [3], "shots": 2, "etas": [0.01, 0.1]}, "--seeds 3, --shots 2 --eta 0.01,0.1"),
    (
        {"techniques": ["deep-thinking", "repeat-2"], "calibrations": ["none", "contextual"], "limit": 6, "at": [1, 2]},
        "--technique deep-thinking,repeat-2 --calibrate none,contextual --limit 6 --at 1,2",
    ),
    (
        {"choose_on": "dev:5", "positions": "restarted", "scoring": {"score": "mean"}, "momentums": [0, 0.9]},
        "--choose-on dev:5 --positions restarted --score mean --momentum 0,0.9",
    ),
    (
        {"shots": [2, 4], "positions": ["continued", "restarted"], "limit": 3},
        "--shots 2,4 --positions continued,restarted --limit 3",
    ),
]


@pytest.mark.plugins
@pytest.mark.parametrize(("fields", "words"), ONE_LINE, ids=[words for _, words in ONE_LINE])
def test_a_study_with_the_values_of_a_run_writes_its_rows(
    fields: dict[str, Any], words: str, study: Callable[..., Path], models: Models, tmp_path: Path
) -> None:
    command = run_words(tmp_path / "line", models("llama"), "-T", "2", "--quiet", *words.split())
    assert study_run(study(**fields, tasks="line/tiny.yaml", data_dir="line/data"), tmp_path / "study") == 0
    assert run(command) == 0
    assert (tmp_path / "study" / FILE).read_bytes() == (tmp_path / "line" / "out" / FILE).read_bytes()


def test_every_axis_is_crossed(study: Callable[..., Path], tmp_path: Path) -> None:
    fields = {"shots": [2, 4], "orders": [0, 1], "positions": ["continued", "restarted"]}
    fields |= {"protocols": ["paper", "official"], "sampling": ["random", "stratified"]}
    assert study_run(study(**fields, iterations=1, limit=4), tmp_path / "out") == 0
    rows = read_results(tmp_path / "out")
    assert len({row.key for row in rows}) == len(rows) == 2**5
    for name in ("shots", "order_seed", "positions", "protocol", "sampling"):
        assert len({getattr(row.setting, name) for row in rows}) == 2


def test_excluded_combinations_have_no_rows(study: Callable[..., Path], tmp_path: Path) -> None:
    path = study(
        seeds=3, etas=[0.01, 0.1], shots=[2, 4], exclude=[{"seeds": [1, 2], "etas": 0.1}, {"shots": 4, "seeds": 0}]
    )
    assert study_run(path, tmp_path / "out") == 0
    rows = {(row.setting.seed, row.setting.eta, row.setting.shots) for row in read_results(tmp_path / "out")}
    assert rows == {(0, 0.01, 2), (0, 0.1, 2), (1, 0.01, 2), (1, 0.01, 4), (2, 0.01, 2), (2, 0.01, 4)}


def test_each_model_is_loaded_once_and_its_rows_stand_together(
    study: Callable[..., Path], models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = run_here.load
    monkeypatch.setattr(run_here, "load", lambda spec, tell: (loaded.append(spec.id), load(spec, tell))[1])
    names = [str(models("llama")), str(models("gpt2"))]
    path = study(models=names, shots=[2, 4], orders=[0, 1], exclude=[{"models": names[0], "orders": 1, "shots": 4}])
    assert study_run(path, tmp_path / "out") == 0
    assert loaded == names
    rows = [row.setting.model for row in read_results(tmp_path / "out")]
    assert rows == sorted(rows, key=names.index)
    assert len(rows) == 2 * 7


def test_an_interrupted_study_continues_with_the_same_bytes(
    study: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = study(shots=[2, 4], seeds=2)
    assert study_run(path, tmp_path / "whole") == 0
    events, seen = run_here.work, []

    def stop(*arguments: Any) -> Any:
        for event in events(*arguments):
            seen.append(event)
            if len(seen) == 12:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(run_here, "work", stop)
    assert study_run(path, tmp_path / "out") == 130
    whole = (tmp_path / "whole" / FILE).read_bytes()
    begun = (tmp_path / "out" / FILE).read_bytes()
    assert 0 < len(begun) < len(whole)
    assert whole.startswith(begun)
    monkeypatch.undo()
    assert study_run(path, tmp_path / "out") == 0
    assert (tmp_path / "out" / FILE).read_bytes() == whole
    assert study_run(path, tmp_path / "out") == 0
    assert (tmp_path / "out" / FILE).read_bytes() == whole


def test_a_scale_and_options_replace_fields(study: Callable[..., Path], tmp_path: Path) -> None:
    path = study(seeds=3, limit=8, scales={"small": {"seeds": 2, "iterations": 1}})
    small = cross_study(open_study(str(path), "small"))
    assert [(each.seeds, each.iterations, each.limit) for each in small.runs] == [((0, 1), 1, 8)]
    assert study_run(path, tmp_path / "out", "--scale", "small", "--seeds", "5,", "--limit", "4", "-T", "3") == 0
    rows = read_results(tmp_path / "out")
    assert {(row.setting.seed, row.setting.limit, row.n) for row in rows} == {(5, 4, 4)}
    assert [row.setting.iteration for row in rows] == [1, 2, 3]


def test_variables_of_the_environment_do_not_change_what_is_measured(
    study: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = study(models=[{"model": "pocket", "dtype": "float32"}])
    for name, value in {"ITERATIONS": "9", "SEEDS": "4", "LIMIT": "2", "DTYPE": "bfloat16"}.items():
        monkeypatch.setenv(f"DEEPTHINK_{name}", value)
    assert study_run(path, tmp_path / "out") == 0
    assert [(row.setting.dtype, row.n) for row in read_results(tmp_path / "out")] == [("float32", 12)] * 2


def test_options_of_the_machine_hold_for_every_model(study: Callable[..., Path], tmp_path: Path) -> None:
    assert study_run(study(models=["pocket"]), tmp_path / "out", "--dtype", "bfloat16") == 0
    assert {row.setting.dtype for row in read_results(tmp_path / "out")} == {"bfloat16"}


def test_rows_that_two_runs_have_in_common_are_made_once(study: Callable[..., Path], tmp_path: Path) -> None:
    own = yaml.safe_load((tmp_path / "tiny.yaml").read_text())["shots"]
    models = ["pocket", {"model": "pocket", "dtype": "float32"}]
    assert study_run(study(models=models, shots=[own, None], iterations=1), tmp_path / "out", "--device", "cpu") == 0
    assert len(read_results(tmp_path / "out")) == 1


def test_a_model_that_is_not_there_is_named_with_its_line(
    study: Callable[..., Path], tmp_path: Path, capsys: Captured
) -> None:
    path = study(models=["pocket", "no-such/model", "no-such/other"], seeds=2)
    assert study_run(path, tmp_path / "out", "--offline") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" -m ")[1].split(":")[0] for line in lines] == ["no-such/model", "no-such/other"]
    assert all(line.startswith(f"deepthink: {path}:") and ": models: " in line for line in lines)


def test_paths_are_relative_to_the_study(
    study: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = study(exclude=[{"tasks": "tiny.yaml", "seeds": 1}], seeds=2)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (only,) = cross_study(open_study(f"../{path.name}")).runs
    assert only.tasks == ("../tiny.yaml",)
    assert only.data_dir == "../data"
    assert only.seeds == (0,)
    with pytest.raises(InputError, match=r"gone\.yaml: no such task file"):
        cross_study(open_study(str(study(tasks=["gone.yaml"]))))
