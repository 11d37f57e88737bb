"""The benchmarks: other ways to score give our scores, and the command writes its files."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from conftest import Loaded
from helpers.records import recorded
from helpers.said import Captured
from transformers import AutoConfig

import cells
import harness
import speed
from benchmarks.record import Table, markdown, parser
from cells import HARNESS, System, Work, difference, measure, read_work
from cells import Rounds as RoundsOf
from deepthink_cli import Memory, score
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from floor import products_of
from gpu import by_transformers
from official_way import official_scores
from shapes import build_engine, memory_ids, random_memory, workload

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH = 200, 32, 2, 4, 24
SHAPES = {
    "gpt2": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 128},
    "llama": {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
    },
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with nothing but a tiny configuration."""
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    AutoConfig.for_model(request.param, vocab_size=VOCABULARY, **ends, **SHAPES[request.param]).save_pretrained(
        tmp_path
    )
    return tmp_path


@pytest.fixture
def engine(shape: Path) -> BatchedEngine:
    return build_engine(str(shape))


def first_reading(engine: BatchedEngine) -> Memory:
    """The memory of a first reading of `LENGTH` tokens."""
    (memory,) = engine.read([Reading(tuple(memory_ids(VOCABULARY, LENGTH)))])
    return memory


def test_the_official_way_gives_the_same_scores(engine: BatchedEngine) -> None:
    memory = first_reading(engine)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(engine, memory, queries)]
    assert difference(ours, official_scores(engine.model, memory, queries, batch_size=5)) < 1e-4
    assert difference(ours, official_scores(engine.model, memory, queries, batch_size=5, width=70)) < 1e-4


def test_the_harness_gives_the_same_scores(engine: BatchedEngine) -> None:
    if not harness.installed():
        pytest.skip("lm-evaluation-harness is not installed (extra: benchmark)")
    ids = memory_ids(VOCABULARY, LENGTH)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(engine, first_reading(engine), queries)]
    assert difference(ours, harness.Harness(engine.model, batch_size=5).scores(ids, queries)) < 1e-4


@pytest.mark.parametrize("shape", ["gpt2"], indirect=True)
def test_the_products_of_a_network_are_counted(engine: BatchedEngine) -> None:
    memory = first_reading(engine)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    found = products_of(engine, memory, queries)
    # No two candidates share a first token here: each is fed but for its last token, and read before both.
    assert all(len({answer[0] for answer in query.answers}) == 4 for query in queries)
    fed = sum(len(query.prefix) + 4 for query in queries)
    weights = LAYERS * 12 * WIDTH * WIDTH  # of attention 4, of the two-layer perceptron 8 widths squared
    attention = 2 * WIDTH * LENGTH
    read = 3 * (1 + 4)
    unread = (fed - read) * (8 * WIDTH * WIDTH + attention)  # what the last layer leaves out
    assert found.flops == 2 * (fed * (weights + LAYERS * attention) - unread + read * WIDTH * VOCABULARY)
    assert found.seconds() > 0


def test_the_fastest_batch_size_is_kept(engine: BatchedEngine) -> None:
    ids = tuple(memory_ids(VOCABULARY, LENGTH))
    work = Work(engine, ids, read_work(engine, ids)[0], workload(VOCABULARY, inputs=2, candidate_tokens=2))
    found = measure(work, ["official", "products"], RoundsOf(all=2, official=2))
    assert found["official batch"] in (8, 16)
    assert found["same label"] == "yes"
    assert not found.keys() & {"harness", "padded", "no-memory"}


def test_a_row_is_printed_and_recorded_for_every_length_that_fits(
    shape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "results" / "speed.json"
    words = f"speed.py --record {path} --shapes {shape} --parts speed --inputs 2 --rounds 1 --official-rounds 1"
    words += " --systems official deepthink no-memory products --candidate-tokens 2 --lengths 16 32 4096"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--threads", str(torch.get_num_threads())])
    speed.main()
    assert capsys.readouterr().out.count(f"| {shape.name} |") == 2
    rows = recorded(path)
    assert [row["L"] for row in rows] == [16, 32]
    assert all(row["same label"] == "yes" and row["difference"] < 1e-4 for row in rows)


def test_what_the_harness_scored_and_how_its_time_is_scaled_is_measured_with_it(
    engine: BatchedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(inputs: int) -> System:
        return System(1, {1: lambda: (2.0, [[0.0] * 4] * inputs)}, inputs)

    monkeypatch.setattr(cells, "_harness", lambda *_: scores(inputs=2))
    work = Work(engine, (), random_memory(engine, 0), workload(VOCABULARY, inputs=6, candidate_tokens=2))
    found = measure(work, [HARNESS], RoundsOf(all=1, harness=1))
    assert (found["harness inputs"], found["scaled by"], found["harness"]) == (2, 3, 6.0)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("cached", [False, True])
def test_padded_batches_by_transformers_score_as_after_the_memory(family: str, cached: bool, loaded: Loaded) -> None:
    engine = loaded(family)
    words = engine.model.network.config.vocab_size
    ids, queries = memory_ids(words, 30), workload(words, 7, candidate_tokens=1)
    (memory,) = engine.read([Reading(tuple(ids))])
    (expected,) = engine.score([memory], engine.plan(queries))
    assert by_transformers(engine, ids, queries, batch=3, cached=cached) == [
        pytest.approx(row, abs=1e-4) for row in expected
    ]


ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a script is told to write."""
    words = ["/where/ever/script.py", "--record", str(tmp_path / "new" / "a.json"), "--data-dir", "/home/me/rows"]
    monkeypatch.setattr("sys.argv", words)
    return Path(words[2])


def table(path: Path, part: str = "") -> Table:
    """A table with a ratio."""
    args = parser("A script.").parse_args(["--record", str(path)])
    return Table(args, "Title", ("model", "slow", "fast"), ("slow / fast",), "Seconds.", part)


def test_a_row_is_printed_and_in_the_file_as_soon_as_it_is_added(path: Path, capsys: Captured) -> None:
    growing = table(path)
    for number, row in enumerate([("a", 3.0, 2.0), ("b", None, 1234.5678)], 1):
        growing.add(*row)
        record = json.loads(path.read_text(encoding="utf-8"))
        assert len(record["rows"]) == number
    assert record["rows"] == [["a", 3.0, 2.0], ["b", None, 1235.0]]
    assert record["command"] == "python benchmarks/script.py --data-dir rows"
    assert {"date", "commit", "machine"} <= record.keys()
    shown = [
        "| model | slow | fast | slow / fast |",
        "|---|--:|--:|--:|",
        "| a | 3 | 2 | 1.5 |",
        "| b | - | 1,235 | - |",
    ]
    assert capsys.readouterr().out.split("\n") == ["", *shown, ""]
    assert list(markdown(record)) == shown


def test_the_page_has_a_section_with_the_conditions_of_every_record() -> None:
    names = runpy.run_path(str(ROOT / "docs" / "build_measurements.py"))
    record = {"title": "Title", "note": "Seconds.", "command": "python it.py", "date": "2026-01-02", "commit": "abc"}
    record |= {"machine": {"processor": "P", "cores": 2, "threads": 1, "torch": "2"}, "columns": ["n"], "rows": [[1]]}
    page = names["page"](iter([record]))
    assert (
        "\n## Title\n\nSeconds.\n\n`python it.py`, P, 2 cores, 1 thread, torch 2, 2026-01-02, commit abc.\n\n| n |"
        in page
    )
    record |= {
        "columns": ["n", "slow", "fast"],
        "ratios": ["n / slow", "n / fast"],
        "rows": [[3, None, 2], [4, None, None]],
    }
    assert "\n| n | fast | n / fast |\n|--:|--:|--:|\n| 3 | 2 | 1.5 |\n| 4 | - | - |\n" in names["page"](iter([record]))


def test_the_page_has_no_table_of_more_than_seven_columns() -> None:
    names = runpy.run_path(str(ROOT / "docs" / "build_measurements.py"))
    figures = [f"f{number}" for number in range(8)]
    record = {
        "title": "Title",
        "note": "Seconds.",
        "date": "2026-01-02",
        "commit": "abc",
        "columns": ["model", "L", *figures],
    }
    record |= {"rows": [["a", 512, *range(8)], ["b", 512, *range(1, 9)]]}
    _, page = names["page"](iter([record])).split("commit abc.\n\n")
    said, *tables = page.strip().split("\n\n")
    assert said == "The same in every row: *L* 512."
    assert [table.splitlines()[0] for table in tables] == [
        "| model | f0 | f1 | f2 | f3 |",
        "| model | f4 | f5 | f6 | f7 |",
    ]
    assert [table.splitlines()[-1] for table in tables] == ["| b | 1 | 2 | 3 | 4 |", "| b | 5 | 6 | 7 | 8 |"]
