"""A step of another package: one class changes the answers of every command, of serve and of scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.forks import Forks
from helpers.guests import TASK, Guest, install
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.scoring.score import SCORES
from deepthink_cli.scoring.scoring import Scoring

STEP = '''
from typing import Annotated
from deepthink_cli.options import DATA, Flag
from deepthink_cli.scoring.step import Step

class Preface(Step):
    """A line before every query."""

    preface: Annotated[str | None, Flag(DATA, "A line before every query.", "TEXT")] = None

    def written(self, asked):
        return f"{self.preface}\\n{asked}"
'''
PREFACED = "Today.\nsun all day"  # the text with which a query without the step reads as one with `--preface Today.`
SERVED = """
import json
from starlette.testclient import TestClient
from deepthink_cli import Scorer, Scoring
from deepthink_cli.plugins.serve.app import Server
from deepthink_cli.plugins.serve.served import ServedMemory
from deepthink_cli.plugins.serve.options import ServeOptions
from deepthink_cli.plugins.sklearn.classifier import DeepThinkingClassifier

served = ServedMemory(Scorer.open("mem.safetensors", scoring=Scoring.of(preface="Today.")))
served.load()
with TestClient(Server(served, ServeOptions.checked(), None).app(), base_url="http://127.0.0.1:8000") as client:
    print(json.dumps(client.post("/predict", json={"text": "sun all day"}).json()["scores"]))
X, y = ["sun", "rain"], ["yes", "no"]
for scoring, text in (({"preface": "Today."}, "sun all day"), (None, "Today.\\nsun all day")):
    made = DeepThinkingClassifier(template="{text} Warm: {label}", scoring=scoring).fit(X, y)
    print(json.dumps(made.predict_proba([text])[0].tolist()))
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory, libraries: Forks) -> Iterator[Guest]:
    """A folder with an installed package, rows, and a memory of demonstrations."""
    folder = tmp_path_factory.mktemp("step")
    installed = install(folder, libraries, {"steps": "preface = preface:Preface"}, preface=STEP)
    for name, text in (("rows", "sun all day"), ("prefaced", PREFACED)):
        (folder / f"{name}.jsonl").write_text(json.dumps({"text": text, "label": "yes"}) + "\n")
    with installed.warmed("--template", "{text} Warm: {label}") as warmed:
        yield warmed


def test_predict_and_eval_score_the_query_that_the_step_writes(guest: Guest) -> None:
    done = guest.run(
        "predict mem.safetensors rows.jsonl --preface Today. -q",
        "predict mem.safetensors prefaced.jsonl -q",
        "eval mem.safetensors rows.jsonl --preface Today. --json -q",
        "eval mem.safetensors prefaced.jsonl --json -q",
    )
    assert done.returncode == 0, done.stderr
    first, second, told, plain = (json.loads(line) for line in done.stdout.splitlines())
    assert first["scores"] == second["scores"]
    assert (first["preface"], told["preface"], "preface" in second, "preface" in plain) == (
        "Today.",
        "Today.",
        False,
        False,
    )
    figures = [[each["log_probability"] for each in report["results"]] for report in (told, plain)]
    assert figures[0] == figures[1]


def test_a_stored_correction_is_of_the_step(guest: Guest) -> None:
    done = guest.run("calibrate mem.safetensors --calibrate domain --preface Today. -o corrected.safetensors -q")
    assert done.returncode == 0, done.stderr
    assert guest.run("predict corrected.safetensors rows.jsonl --preface Today. -q").returncode == 0
    refused = guest.run("predict corrected.safetensors rows.jsonl -q")
    assert (refused.returncode, "stores is of --preface Today.; give the same" in refused.stderr) == (2, True)


@pytest.mark.plugins
def test_serve_and_scikit_learn_take_the_step(guest: Guest) -> None:
    done = guest.program(SERVED)
    assert done.returncode == 0, done.stderr
    served, fitted, prefaced = (json.loads(line) for line in done.stdout.splitlines())
    asked = guest.run("predict mem.safetensors prefaced.jsonl -q")
    assert served == pytest.approx(json.loads(asked.stdout)["scores"], abs=1e-4)
    assert fitted == pytest.approx(prefaced, abs=1e-4)


def test_run_and_tune_take_the_step(guest: Guest) -> None:
    (guest.folder / "weather.yaml").write_text(TASK)
    (guest.folder / "weather").mkdir()
    for split in ("train", "test"):
        rows = [{"text": f"{split} {n}", "label": ("yes", "no")[n % 2]} for n in range(12)]
        (guest.folder / "weather" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = "run --task weather.yaml --data-dir . -T 1 -o runs -q"
    done = guest.run(
        words,
        f"{words} --preface Today.",
        "tune weather/train.jsonl -T 1 --technique deep-thinking --preface Today. -o tuned.safetensors",
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (guest.folder / "runs" / "results.jsonl").read_text().splitlines()]
    assert [row["setting"].get("scoring") for row in rows] == [None, "preface=Today."]
    assert rows[0]["key"] != rows[1]["key"]
    assert "next: deepthink predict tuned.safetensors INPUTS --preface Today." in done.stderr


def test_a_form_of_score_is_one_object_of_the_registry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    end = SCORES["end"]
    monkeypatch.delitem(SCORES, "end")
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "bug"}\n{"text": "b", "label": "bug report"}\n')
    assert run(["think", str(tmp_path / "rows.jsonl"), "-m", "pocket", "-T", "1", "-o", str(tmp_path / "m"), "-q"]) == 0
    assert "--score" not in capsys.readouterr().err.partition("can never be predicted")[2]
    monkeypatch.setitem(SCORES, "end", end)
    assert Scoring.of(score="end").recorded == {"score": "end"}
