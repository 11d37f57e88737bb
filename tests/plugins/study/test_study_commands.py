"""`deepthink study list`, `show`, `plan` and `run`, and `report` of the folder of a study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of, output, refused
from helpers.tiny import tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments import prepare
from deepthink_cli.plugins.study.study import Origin, open_study, origin_of, packaged

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "study" / "shots.yaml"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of the tiny task: two numbers of demonstrations with two gates, T = 2."""
    tiny_task(tmp_path)
    path = tmp_path / "films.yaml"
    fields = {"tasks": "tiny.yaml", "data_dir": "data", "protocols": "paper", "iterations": 2, "shots": [2, 4]}
    path.write_text(yaml.safe_dump(fields | {"etas": [0.01, 0.1], "title": "Films"}))
    return path


def test_every_packaged_study_is_listed_and_can_be_shown(capsys: Captured) -> None:
    assert [each["study"] for each in json_of(capsys, "study", "list", "--json")] == list(packaged())
    assert output(capsys, "study", "show", "example") == packaged()["example"].read_text()
    assert json_of(capsys, "study", "show", "example", "--json")["seeds"] == [0, 1, 2]


def test_a_study_is_found_by_a_name_that_is_nearly_right(capsys: Captured) -> None:
    assert run(["study", "show", "exampel"]) == 2
    assert capsys.readouterr().err == "deepthink: exampel: no such study; did you mean example?\n"
    assert "gone.yaml: no such study file" in refused(capsys, "study", "plan", "gone.yaml")


def test_listing_and_showing_studies_does_not_import_torch() -> None:
    assert not modules_after(["study", "list"], ["study", "show", "example", "--json"]) & HEAVY


def test_the_example_of_the_documentation_has_the_combinations_it_says(capsys: Captured) -> None:
    page = EXAMPLE.parent.parent.parent / "docs" / "experiments.md"
    assert f"```yaml\n{EXAMPLE.read_text()}```" in page.read_text()
    counted = output(capsys, "study", "plan", EXAMPLE, "--no-probe").splitlines()[2]
    assert counted == "work     15 combinations in 3 runs of 1 model"
    assert counted in page.read_text()


def test_the_small_example_runs_and_is_reported(tmp_path: Path, capsys: Captured) -> None:
    out = str(tmp_path / "out")
    assert run(["study", "run", str(EXAMPLE), "--scale", "small", "-o", out, "-q"]) == 0
    assert run(["report", out]) == 0
    assert capsys.readouterr().out.startswith(f"{out}:")


def test_the_study_of_a_folder_is_that_of_its_shards(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for shard in ("1/2", "2/2"):
        assert run(["study", "run", str(study), "--shard", shard, "-o", str(out), "--quiet"]) == 0
    assert origin_of([out]) == Origin.of(str(study), None)
    (out / "shard-1-of-2" / "study.json").write_text("{}")
    with pytest.raises(InputError, match=r"study\.json: is not what deepthink study run writes; remove it"):
        origin_of([out])


def test_a_plan_counts_what_is_there_and_what_is_missing(study: Path, tmp_path: Path, capsys: Captured) -> None:
    words = [str(study), "-o", str(tmp_path / "out")]
    assert run(["study", "run", *words, "--quiet"]) == 0
    study.write_text(study.read_text().replace("- 4\n", "- 4\n- 6\n"))
    values = json_of(capsys, "study", "plan", *words, "--no-probe", "--json")
    (plan,) = values["plan"]
    assert (values["combinations"], values["runs"]) == (6, 3)
    assert (plan["rows"], plan["written"], plan["inputs"]) == (12, 8, 36)
    assert (plan["seconds"], plan["reason"]) == (None, "--no-probe")
    assert plan["tokens"] > 0


def test_a_plan_of_a_model_that_is_not_here_has_its_rows(study: Path, capsys: Captured) -> None:
    words = ["study", "plan", study, "-m", "no-such/model,pocket", "--no-probe"]
    unknown, known = json_of(capsys, *words, "--json")["plan"]
    assert (unknown["rows"], unknown["inputs"], unknown["seconds"]) == (known["rows"], None, None)
    assert "is not on this machine" in unknown["reason"]
    assert re.search(r"^no-such/model +8 +0 +$", output(capsys, *words), re.MULTILINE)


def test_a_plan_times_a_model_whose_weights_are_here(study: Path, capsys: Captured) -> None:
    line = next(
        line
        for line in output(capsys, "study", "plan", study, "-m", "pocket").splitlines()
        if line.startswith("pocket")
    )
    assert line.split()[:4] == ["pocket", "8", "0", "72"]
    assert line.endswith(" s")


def test_options_are_checked_as_those_of_run(study: Path, capsys: Captured) -> None:
    wrong = ["--seeds", "x", "--limit", "0", "-T", "none"]
    assert run(["study", "plan", str(study), *wrong]) == 2
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [
        " --seeds x",
        " --limit 0",
        " --iterations none",
    ]
    assert run(["study", "plan", str(study), "-m", "a,a", "--task", "sst3"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["--task sst3", "-m a,a"]
    assert "does not name it; the study has no scales" in refused(capsys, "study", "plan", study, "--scale", "small")


def test_an_exclusion_may_name_what_an_option_has_removed(study: Path) -> None:
    study.write_text(study.read_text() + "exclude:\n- {shots: 4, etas: 0.1, models: pocket}\n")
    assert run(["study", "plan", str(study), "-m", "gpt2", "--quiet"]) == 0


def test_a_note_is_told_once() -> None:
    heard: list[object] = []
    tell = prepare.once(heard.append)
    for text in ("a", "a", "b"):
        tell(prepare.Note(text))
    assert heard == [prepare.Note("a"), prepare.Note("b")]


def test_a_study_knows_where_its_fields_are_written(study: Path) -> None:
    opened = open_study(str(study), options={"seeds": ("--seeds 3", [0, 1, 2])})
    assert opened.where("seeds", 1) == "--seeds 3"
    assert opened.where("data_dir") == f"{study}:1"
    assert opened.study.name == "films"
