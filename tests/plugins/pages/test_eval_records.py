"""`report --output-format eee`: records that the schema of Every Eval Ever accepts, and nothing but the results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Models
from helpers.said import Captured
from helpers.tiny import run_words

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.plugins.pages.every_eval_ever import write_records
from deepthink_cli.report.job_results import read_jobs

SCHEMAS = Path(__file__).parent / "every_eval_ever"


@pytest.fixture(scope="module")
def runs(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds with samples, and the same without."""
    folder = tmp_path_factory.mktemp("runs")
    words = run_words(folder, models("llama"), "-T", "2", "--seeds", "2", "--choose-on", "dev", "--quiet")
    assert run([*words, "--samples"]) == 0
    assert run([*words, "-o", str(folder / "plain"), "--calibrate", "none,contextual"]) == 0
    return folder


def validator(name: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((SCHEMAS / name).read_text())
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


def written(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The aggregates below a folder."""
    return [(path, json.loads(path.read_text())) for path in sorted(folder.rglob("*.json"))]


def test_the_aggregates_and_the_instances_are_valid(runs: Path, tmp_path: Path) -> None:
    for name in ("out", "plain"):
        assert run(["report", str(runs / name), "--output-format", "eee", "-o", str(tmp_path / name), "-q"]) == 0
    aggregates = [record for name in ("out", "plain") for _, record in written(tmp_path / name)]
    assert len(aggregates) == 2 + 4
    for record in aggregates:
        assert list(validator("eval.schema.json").iter_errors(record)) == []
    lines = [line for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 2 * 2 * 12
    for line in lines:
        assert list(validator("instance_level_eval.schema.json").iter_errors(json.loads(line))) == []


def test_a_record_has_the_figures_of_its_rows(runs: Path, tmp_path: Path) -> None:
    assert run(["report", str(runs / "out"), "--output-format", "eee", "-o", str(tmp_path), "-q"]) == 0
    rows = {row.key: row for row in read_results(runs / "out") if row.setting.part == "test"}
    scores = {
        result["evaluation_result_id"]: result["score_details"]["score"]
        for _, record in written(tmp_path)
        for result in record["evaluation_results"]
    }
    assert scores == {f"{key}/accuracy": row.accuracy for key, row in rows.items()} | {
        f"{key}/macro_f1": row.macro_f1 for key, row in rows.items()
    }


def test_the_instances_belong_to_their_aggregate(runs: Path, tmp_path: Path) -> None:
    assert run(["report", str(runs / "out"), "--output-format", "eee", "-o", str(tmp_path), "-q"]) == 0
    for path, record in written(tmp_path):
        detailed = record["detailed_evaluation_results"]
        content = (tmp_path / detailed["file_path"]).read_bytes()
        assert (tmp_path / detailed["file_path"]).parent == path.parent
        assert hashlib.sha256(content).hexdigest() == detailed["checksum"]
        instances = [json.loads(line) for line in content.splitlines()]
        assert len(instances) == detailed["total_rows"]
        assert {each["evaluation_id"] for each in instances} == {record["evaluation_id"]}
        for result in record["evaluation_results"]:
            if result["metric_config"]["metric_id"] == "accuracy":
                key = result["evaluation_result_id"]
                right = [each["evaluation"]["score"] for each in instances if each["evaluation_result_id"] == key]
                assert sum(right) / len(right) == result["score_details"]["score"]


def test_writing_records_again_replaces_them(runs: Path, tmp_path: Path) -> None:
    jobs = read_jobs([runs / "out"])
    first = write_records(jobs, tmp_path, 1)
    assert write_records(jobs, tmp_path, 2) == first
    assert len(list(tmp_path.rglob("*.*"))) == 4


def test_no_path_of_this_machine_is_in_a_record(runs: Path, tmp_path: Path) -> None:
    run(["report", str(runs / "out"), "--output-format", "eee", "-o", str(tmp_path), "-q"])
    assert not any(str(runs) in path.read_text() for path in tmp_path.rglob("*.*"))
    assert all(record["model_info"]["id"] == "llama" for _, record in written(tmp_path))


def test_one_iteration_can_be_written(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["report", str(runs / "out"), "--output-format", "eee", "-o", str(tmp_path / "records"), "--at"]
    assert run([*words, "2"]) == 0
    iterations = [
        result["generation_config"]["additional_details"]["iteration"]
        for _, record in written(tmp_path)
        for result in record["evaluation_results"]
    ]
    assert set(iterations) == {"2"}
    assert run([*words, "9"]) == 2
    assert "--at 9: no row has it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "--output-format eee: writes a folder; name it, as in -o records"),
        (["-o", "{runs}/out"], "holds a run, and only deepthink run writes there"),
        (["-o", "{runs}/out/records"], "holds a run, and only deepthink run writes there"),
        (["-o", f"{{runs}}/out/{FILE}"], "a file; name a folder"),
        (["-o", "{runs}/r", "--published"], "--published: is about tables"),
        (["-o", "{runs}/r", "--json"], "--json and --output-format eee: two formats"),
    ],
)
def test_what_does_not_fit_is_refused(more: list[str], message: str, runs: Path, capsys: Captured) -> None:
    words = [word.format(runs=runs) for word in more]
    assert run(["report", str(runs / "out"), "--output-format", "eee", *words]) == 2
    assert message in capsys.readouterr().err
