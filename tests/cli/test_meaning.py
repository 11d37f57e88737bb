"""Every option changes what is done, or is refused: over all pairs of options of `think` and `run`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, Soak, write_reviews, write_rows
from helpers.chats import write_chat_model
from helpers.said import Captured
from helpers.tiny import reviews, run_words, tiny_task

from deepthink_cli import make_memory
from deepthink_cli.cli.main import program, run
from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import InputError
from deepthink_cli.events import silent
from deepthink_cli.experiments import prepare
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job
from deepthink_cli.experiments.jobs import planned as plan_run
from deepthink_cli.experiments.prepare import prepare_jobs
from deepthink_cli.experiments.results import read_results
from deepthink_cli.make_memory import ThinkPlan
from deepthink_cli.techniques.base import Trained

PROGRAM: Any = program()


@dataclass(frozen=True)
class Given:
    """An option as it is typed, and the other ones that it is only for."""

    words: str
    needs: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return self.words.split()[0]


METHODS = {
    "repeated": Given("--technique repeat-2"),
    "trained": Given("--technique ct-kv"),
    "steps": Given("--technique ct-kv:steps=3"),
    "iterations": Given("--iterations 3"),
    "eta": Given("--eta 0.2"),
    "momentum": Given("--momentum 0.5"),
    "positions": Given("--positions restarted"),
    "update": Given("--update keys-only"),
    "chat": Given("--chat"),
    "shots": Given("--shots 2"),
}
RUN = METHODS | {
    "iterations": Given("--iterations 1"),  # beside ct-kv, T says how many demonstrations fit, as in other runs
    "at": Given("--at 1,2"),
    "score": Given("--score mean"),
    "reread": Given("--reread 2"),
    "choose_on": Given("--choose-on dev:1"),
    "seeds": Given("--seeds 7,"),
    "demos_by": Given("--demos-by herding"),
    "calibrate": Given("--calibrate domain"),
    "demos": Given("--demos {demos}"),
    "limit": Given("--limit 3"),
}
THINK = METHODS | {
    "keep": Given("--keep all"),
    "tokens": Given("--tokens parts"),
    "system": Given("--system Briefly.", ("chat",)),
    "protocol": Given("--protocol paper"),
    "seed": Given("--seed 3"),
    "template": Given(r"--template R:{{review}}\nS:{{sentiment}}"),
    "label_field": Given("--label-field review"),
    "labels": Given("--labels positive,negative,neither"),
    "separator": Given(r"--separator \n"),
    "label_separator": Given("--label-separator /"),
    "calibrate": Given("--calibrate contextual"),
}
# Options that do not say what is computed, but with which model, where, how fast, and what is shown of it.
ELSEWHERE = {
    *("model", "revision", "dtype", "device", "device_map", "quantize", "engine", "offline"),
    *("trust_remote_code", "batch_tokens", "json", "quiet", "verbose", "debug", "config", "dry_run"),
    *("out", "output", "samples", "log", "workers", "shard", "run_code"),
    *("data_dir", "format", "map", "no_header", "no_quotes", "task"),  # where rows are, and their form
}


@pytest.mark.parametrize(
    ("command", "options"), [pytest.param("run", RUN, marks=pytest.mark.plugins), ("think", THINK)]
)
def test_every_option_is_tried(command: str, options: dict[str, Given]) -> None:
    names = {str(each.name) for each in PROGRAM.commands[command].params} - ELSEWHERE
    assert names - {"demos"} == (options.keys() | {"technique"}) - {"repeated", "trained", "steps", "demos"}


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    """A task with two evaluated splits, one of which shares rows with the training split, and demonstrations."""
    protocols = {"official": {"split": "test"}, "paper": {"split": "other"}}
    task, folder = tiny_task(tmp_path, protocols=protocols)
    write_rows(folder / "tiny" / "other.jsonl", [*reviews("play", 20)[3:17], *reviews("book", 4)])
    demos = write_reviews(tmp_path / "demos.jsonl")
    columns = write_rows(tmp_path / "columns.jsonl", reviews("song", 4))
    return {"task": str(task), "data": str(folder), "file": str(demos), "demos": str(columns)} | {
        "model": str(chat_model(tmp_path / "model")),
        "out": str(tmp_path / "out"),
    }


def chat_model(folder: Path) -> Path:
    """A model with a chat template that holds every conversation of these tests."""
    config = write_chat_model(folder) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": 8192}))
    return folder


class Planned(Exception):
    """Raised in place of the work, with what would be done."""


def effect_of_run(runs: Sequence[Experiment]) -> Any:
    """What a run reads and scores, without what it only records."""
    (options,) = runs
    spec = opened(options.models[0])
    run = plan_run(options, spec)
    (task,) = run.tasks
    limit = spec.limits.largest(run.options.positions[0], options.iterations)
    done: list[Any] = [options.scoring, limit, options.calibrations]
    for job in prepare_jobs(run, task, {}):
        if isinstance(job, Job):
            rows = sorted(job.rows_sha256.items())
            done += [job.seed, [(each.token_ids, each.examples) for each in job.members], rows, _points(job)]
        else:
            done += [job.pool.sha256, job.pool.queries, job.choice, run.chat, job.evaluated.rows_sha256, options.tokens]
            techniques = options.chosen_techniques
            done += [(each.name, options.points(each), options.dev_size) for each in techniques]
            done += [each for each in techniques if isinstance(each, Trained)]
    return repr(done)


def _points(job: Job) -> list[Any]:
    scored = job.run.options.points(job.technique)
    return [(part, iteration, job.tuning or (gate, job.run.options.positions[0])) for part, gate, iteration in scored]


def effect_of_thinking(plan: ThinkPlan) -> Any:
    """What a memory is made of, and how."""
    read, method = plan.demonstrations, plan.options.method
    made = plan.tuning or (method, plan.options.kept)
    return repr(
        [read.token_ids, read.examples, read.labels, read.template, read.chat, plan.technique, plan.calibrate, made]
    )


opened = cache(lambda model: find_model(model, silent))


@pytest.fixture
def effect(data: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What a command line would do, as text; the messages of one that is refused."""

    def stop_run(runs: Sequence[Experiment], *_: object) -> None:
        raise Planned(effect_of_run(runs))

    def stop_thinking(*arguments: Any) -> None:
        raise Planned(effect_of_thinking(planned(*arguments)))

    planned = make_memory.plan_thinking
    monkeypatch.setattr(prepare, "prepare", stop_run)
    monkeypatch.setattr(make_memory, "plan_thinking", stop_thinking)
    monkeypatch.setattr(make_memory, "find_model", lambda model, *_: opened(model))

    @cache
    def of(words: str) -> Any:
        try:
            PROGRAM.main([word.format(**data) for word in words.split()], standalone_mode=False)
        except Planned as plan:
            return plan.args[0]
        except InputError as error:
            return error.messages
        raise AssertionError("the work was done")

    return of


def pairs_of(options: dict[str, Given], every: int) -> list[tuple[str, str]]:
    """Pairs of options, of which only each `every`-th; and single options, as pairs with what they need."""
    return [*list(combinations(options, 2))[::every], *((name, name) for name in options)]


def without_effect(
    base: str, options: dict[str, Given], pairs: Iterable[tuple[str, str]], effect: Callable[..., Any]
) -> Iterator[str]:
    """Pairs in which an option changes nothing and is not refused."""
    for pair in pairs:
        flags = {options[name].flag for name in pair}
        if len(flags) < len(set(pair)):
            continue  # two values of one option
        needed = {other for name in pair for other in options[name].needs if options[other].flag not in flags}
        whole = dict.fromkeys([*pair, *sorted(needed)])
        done = effect(line(base, options, whole))
        for name in whole if isinstance(done, str) else ():
            others = [each for each in whole if each != name]
            if not any(name in options[each].needs for each in others) and effect(line(base, options, others)) == done:
                yield f"{options[name].words} changes nothing in {line(base, options, whole)}"


def line(base: str, options: dict[str, Given], names: Any) -> str:
    return " ".join([base, *(options[name].words for name in sorted(names))])


@pytest.mark.parametrize(
    ("base", "options"),
    [
        pytest.param("run --task {task} --data-dir {data} -m {model} -o {out}", RUN, marks=pytest.mark.plugins),
        ("think {file} -m {model} -o {out}", THINK),
        pytest.param("think --task {task} --data-dir {data} -m {model} -o {out}", THINK, marks=pytest.mark.soak),
        pytest.param("think {demos} --task {task} -m {model} -o {out}", THINK, marks=pytest.mark.soak),
    ],
    ids=["run", "think-file", "think-task", "think-file-task"],
)
def test_in_every_pair_an_option_changes_what_is_done_or_is_refused(
    base: str, options: dict[str, Given], effect: Callable[..., Any], soak: Soak
) -> None:
    pairs = pairs_of(options, every=soak.count(8, 1))
    assert isinstance(effect(base), str)
    assert "\n".join(without_effect(base, options, pairs, effect)) == ""


# What is told of options that do nothing, wherever they come from


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            "think {file} --shots 3 --protocol paper",
            [
                "--shots 3: not with a file of demonstrations, which are read as they are; omit this, or the file",
                "--protocol paper: not with a file of demonstrations, which are read as they are; omit this",
            ],
        ),
        (
            "think {file} --technique ct-kv --eta 0.1 --update keys-only --positions restarted --keep all",
            [
                "--eta 0.1: not with --technique ct-kv alone, which trains the memory of one reading; omit this",
                "--positions restarted: not with --technique ct-kv alone",
                "--keep all: not with --technique ct-kv alone",
                "--update keys-only: not with --technique ct-kv alone",
            ],
        ),
        (
            "think {file} --system Briefly. --shots 3",
            ["--system Briefly.: only with --chat; add it, or omit this", "--shots 3: not with a file"],
        ),
        (
            "run --task {task} --demos-by herding --demos {demos}",
            ["--demos {demos}: not with --demos-by, which chooses the demonstrations and their order; omit one of the"],
        ),
        ("select {file} --demos-by first --shots 2 --seed 1", ["--seed 1: not with --demos-by first alone"]),
        ("tune {file} --system Briefly. --demos-by first", ["--demos-by first: only with --shots K", "--system Brief"]),
    ],
)
def test_what_does_nothing_is_refused_in_a_line_each(
    words: str, lines: list[str], data: dict[str, str], capsys: Captured
) -> None:
    assert run([word.format(**data) for word in words.split()]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(lines)
    for one, expected in zip(told, lines, strict=True):
        assert one.removeprefix("deepthink: ").startswith(expected.format(**data))


@pytest.mark.plugins
def test_what_does_nothing_is_named_by_the_variable_or_the_line_that_it_comes_from(
    data: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    words = ["run", "--task", data["task"]]
    monkeypatch.setenv("DEEPTHINK_SHOTS", "2")
    assert run([*words, "--demos", data["demos"]]) == 2
    assert capsys.readouterr().err.startswith("deepthink: DEEPTHINK_SHOTS=2: not with a file of demonstrations")
    monkeypatch.delenv("DEEPTHINK_SHOTS")
    (tmp_path / "options.toml").write_text("eta = 0.1\n")
    assert run([*words, "--technique", "ct-kv", "--config", str(tmp_path / "options.toml")]) == 2
    assert "options.toml:1: eta 0.1: not with --technique ct-kv" in capsys.readouterr().err


@pytest.mark.plugins
def test_a_method_that_uses_an_option_is_enough_and_the_other_rows_do_not_record_it(
    tmp_path: Path, models: Models
) -> None:
    method = ["--technique", "deep-thinking,ct-kv:steps=1", "-T", "2", "-q"]
    gated = ["--update", "keys-only", "--eta", "0.2", "--momentum", "0.5"]
    words = run_words(tmp_path, models("llama"), *method, *gated)
    assert run(words) == 0
    rows = [row.setting for row in read_results(tmp_path / "out")]
    assert {(each.eta, each.momentum, each.update) for each in rows if each.technique is None} == {
        (0.2, 0.5, "keys-only")
    }
    assert {(each.eta, each.momentum, each.update) for each in rows if each.technique} == {(0.0, 0.0, None)}
