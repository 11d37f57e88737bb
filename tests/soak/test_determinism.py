"""The same inputs give the same bytes; threads, batches and order change no label, and scores by rounding only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import torch
from conftest import Models, Soak, readings_of, write_rows
from helpers.families import FAMILIES
from helpers.forks import Forks

from deepthink_cli import DemonstrationSet, Memory, Method, Query, load_model, predict
from deepthink_cli.engine.base import Engine

LABELS = ("positive", "negative", "neither of the two")
NATS = 1e-4  # by which scores may differ in float32
SHORT = ("llama", "bloom", "pocket")  # packed, one sequence a row, and what is built in
Answers = list[tuple[str, dict[str, float]]]

BOTH_STAGES = """
import sys
from deepthink_cli.cli.main import run
model, demos, inputs, memory, labels = sys.argv[1:]
code = run(["think", demos, "-m", model, "-T", "4", "--keep", "all", "-q", "-o", memory])
sys.exit(code or run(["predict", memory, inputs, "--at", "all", "-q", "-o", labels]))
"""


def texts(draw: Random, count: int) -> list[str]:
    """Made-up texts of one to six words, not all of them English."""
    words = ("warm", "dull", "film", "a", "the", "schön", "naïve", "映画", "far", "too", "long", '"so"', "so.")
    return [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(count)]


@dataclass
class Desk:
    """Demonstrations and inputs in a directory, and a model under several names."""

    root: Path
    names: list[str]
    libraries: Forks
    anew: bool = False  # whether processes but the first start anew, and not as copies of one

    def work(self, number: int, threads: int = 1) -> tuple[bytes, bytes]:
        """Think and predict in a new process; returns the two files it writes.

        One that starts anew has surroundings of its own; number 0 has those of the tests.
        """
        folder = self.root / f"process {number}"
        folder.mkdir()
        files = [f"{name}-{number}" for name in ("memory", "labels")]
        words = [self.names[number % len(self.names)], "../demos.jsonl", str(self.root / "inputs.jsonl"), *files]
        if not (number and self.anew):
            assert self.libraries.program(BOTH_STAGES, words, folder).returncode == 0
            return self.written(folder, files)
        odd = number % 2
        surroundings = {
            "PYTHONHASHSEED": str(number),
            "OMP_NUM_THREADS": str(threads),
            "TZ": ("UTC", "Asia/Tokyo")[odd],
            "LC_ALL": ("C.UTF-8", "C")[odd],
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "OMP_WAIT_POLICY": "PASSIVE",  # more threads than cores would else wait for each other at work
        }
        program = [sys.executable, "-c", BOTH_STAGES, *words]
        subprocess.run(program, cwd=folder, env={**os.environ, **surroundings}, umask=(0o022, 0o077)[odd], check=True)
        return self.written(folder, files)

    def written(self, folder: Path, files: list[str]) -> tuple[bytes, bytes]:
        """The memory and the labels."""
        memory, labels = ((folder / name).read_bytes() for name in files)
        return memory, labels


@pytest.fixture(params=["llama", "pocket"])
def desk(request: pytest.FixtureRequest, models: Models, libraries: Forks, tmp_path: Path, soak: Soak) -> Desk:
    """A desk with a model in a directory, or with the one that is built in."""
    if request.param == "pocket" and not soak.long:
        pytest.skip("long form only: every one of its processes starts anew")
    draw = soak.draw(f"desk {request.param}")
    made = [{"text": text, "kind": draw.choice(LABELS)} for text in texts(draw, 40)]
    write_rows(tmp_path / "demos.jsonl", [*made[:2], *({"text": label, "kind": label} for label in LABELS)])
    write_rows(tmp_path / "inputs.jsonl", [{"text": row["text"]} for row in made[2:]])
    if request.param == "pocket":
        return Desk(tmp_path, ["pocket"], libraries, anew=True)
    (tmp_path / "link").symlink_to(models(request.param))
    names = ["../link", os.path.relpath(models(request.param), tmp_path / "any"), str(models("llama"))]
    return Desk(tmp_path, names, libraries, soak.long)


def test_new_processes_write_the_same_bytes_and_with_more_threads_the_same_labels(desk: Desk, soak: Soak) -> None:
    threads = (1,) * soak.count(2, 10) + (2, 3) * soak.long
    with ThreadPoolExecutor(2 if soak.long else 1) as pool:
        written = list(pool.map(desk.work, range(len(threads)), threads))
    same = written[: threads.count(1)]
    assert len(set(same)) == 1
    for _, labels in written[len(same) :]:
        agree(rows(labels), rows(same[0][1]))


def rows(labels: bytes) -> Answers:
    """The label and the scores of every row."""
    return [(row["label"], row["scores"]) for row in map(json.loads, labels.splitlines())]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """A function that sets the number of threads; afterwards it is what it was."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_a_number_of_threads_changes_no_answer(
    models: Models, reviews: DemonstrationSet, soak: Soak, threads: Callable[[int], None]
) -> None:
    for family in families(soak):
        given, found = queries(soak.draw(family), soak.count(16, 40)), []
        for number in (1, 2, 3) if soak.long else (1, 3):
            threads(number)
            engine = load(family, models)
            found.append(answers(engine, thought(engine, reviews), given))
        for other in found[1:]:
            agree(other, found[0], family)


def test_batches_chunks_and_order_change_no_answer(models: Models, reviews: DemonstrationSet, soak: Soak) -> None:
    for family in families(soak):
        engine, draw = load(family, models), soak.draw(family)
        memory, given = thought(engine, reviews), queries(draw, soak.count(16, 40))
        expected = answers(engine, memory, given)
        for tokens in (1, 50):
            smaller = copy(engine)
            smaller.batch_tokens = tokens
            agree(answers(smaller, memory, given), expected, f"{family}, {tokens} tokens")
        for chunk in (1, 7):
            agree(answers(engine, memory, given, chunk), expected, f"{family}, chunks of {chunk}")
        places = range(len(given))
        for order in (places[::-1], draw.sample(places, len(places))):
            found = answers(engine, memory, [given[place] for place in order])
            agree(found, [expected[place] for place in order], f"{family}, another order")


def families(soak: Soak) -> tuple[str, ...]:
    """The models that are tried: every family, or one of each kind."""
    return (*FAMILIES, "pocket") if soak.long else SHORT


def load(family: str, models: Models) -> Engine:
    """A random model of a family, or the one that is built in."""
    return load_model(family if family == "pocket" else str(models(family)))


def thought(engine: Engine, reviews: DemonstrationSet) -> Memory:
    """The fifth iteration of a memory."""
    return list(readings_of(engine, reviews, Method(5)))[-1]


def queries(draw: Random, count: int) -> list[Query]:
    """Made-up queries."""
    return [Query(text, LABELS) for text in texts(draw, count)]


def answers(engine: Engine, memory: Memory, given: list[Query], chunk: int = 256) -> Answers:
    """The label and the scores of every query."""
    return [(found.label, found.scores) for found in predict(engine, memory, given, chunk)]


def agree(found: Answers, expected: Answers, what: str = "") -> None:
    """Check that labels are the same and scores differ by rounding."""
    assert [label for label, _ in found] == [label for label, _ in expected], what
    apart = max(
        abs(one[1][label] - two[1][label]) for one, two in zip(found, expected, strict=True) for label in one[1]
    )
    assert apart < NATS, what
