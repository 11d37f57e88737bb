"""Controls: what of the demonstrations is changed before they are read, and what users see of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REVIEWS
from helpers import said
from helpers.families import write_model
from helpers.said import Captured, json_of, rows_of
from helpers.tiny import tiny_task

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Query,
    load_memory,
    save_memory,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.controls.techniques import FRESH
from deepthink_cli.techniques.registry import find, technique_of

THREE = DemonstrationSet.of([Example("a", "x"), Example("b", "y"), Example("c", "z")], "{text}: {label}")


def text_of(engine: Engine, demonstrations: DemonstrationSet) -> str:
    """The demonstrations as the model reads them."""
    tokenized = tokenize_demonstrations(engine.tokenizer, demonstrations)
    return str(engine.tokenizer.decode(tokenized.token_ids, skip_special_tokens=True))


def test_repeated_demonstrations_follow_block_after_block(llama: Engine) -> None:
    technique = technique_of("repeat-2")
    assert text_of(llama, technique.change(THREE)) == "a: x\n\nb: y\n\nc: z\n\n" * 2
    assert str(technique.recorded()) == "repeat-2"


def test_flipped_labels_are_shifted_by_one(llama: Engine) -> None:
    changed = technique_of("flipped").change(THREE)
    assert text_of(llama, changed) == "a: y\n\nb: z\n\nc: x\n\n"
    assert changed.words == {"x": "y", "y": "z", "z": "x"}


def test_fresh_words_take_the_place_of_labels_in_demonstrations_and_candidates(llama: Engine) -> None:
    changed = technique_of("fresh").change(THREE)
    assert text_of(llama, changed) == f"a: {FRESH[0]}\n\nb: {FRESH[1]}\n\nc: {FRESH[2]}\n\n"
    demonstrations = tokenize_demonstrations(llama.tokenizer, changed)
    (query,) = tokenize_queries(llama.tokenizer, demonstrations, [Query("d", ("z", "other"))])
    written = [llama.tokenizer.decode(query.prefix + answer) for answer in query.answers]
    assert written == [f"d: {FRESH[2]}", "d: other"]


def test_a_fresh_word_is_never_a_label() -> None:
    taken = DemonstrationSet.of([Example("a", FRESH[0].title()), Example("b", "y")], "{text}: {label}")
    assert technique_of("fresh").change(taken).words == {FRESH[0].title(): FRESH[1], "y": FRESH[2]}


@pytest.mark.plugins
@pytest.mark.parametrize("name", ["deep-thinking", "ct-kv"])
def test_other_techniques_change_no_demonstrations(name: str, reviews: DemonstrationSet) -> None:
    assert technique_of(name).change(reviews) is reviews


@pytest.mark.parametrize(
    "name", ["repeat", "repeat-1", "repeat-0", "repeat-05", "repeat-2.5", "fresh-2", "thinking", ""]
)
def test_another_name_is_refused(name: str) -> None:
    assert find(name) is None
    with pytest.raises(InputError, match="use deep-thinking, composed"):
        technique_of(name)


@pytest.mark.parametrize("name", ["flipped", "fresh"])
def test_rows_with_candidates_of_their_own_have_no_words_to_replace(name: str) -> None:
    own = DemonstrationSet((Example("a", "x"),), THREE.template, ())
    with pytest.raises(InputError, match="candidates of its own"):
        technique_of(name).change(own)


def test_more_labels_than_fresh_words_are_refused() -> None:
    many = DemonstrationSet.of([Example("a", f"label {n}") for n in range(len(FRESH) + 1)], "{text}: {label}")
    with pytest.raises(InputError, match="21 labels, and there are 20 words"):
        technique_of("fresh").change(many)


def test_predictions_are_in_the_labels_of_the_task_and_scored_by_the_words(
    tmp_path: Path, demos: Path, capsys: Captured
) -> None:
    """A memory of fresh words answers as one whose rows have those words, under the labels' names."""
    output, other = tmp_path / "mem.safetensors", tmp_path / "other.safetensors"
    rows = [{"review": text, "sentiment": FRESH[label == "negative"]} for text, label in REVIEWS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["think", str(demos), "--technique", "fresh", "-T", "3", "-q", "-o", str(output)]) == 0
    assert run(["think", str(tmp_path / "rows.jsonl"), "-T", "3", "-q", "-o", str(other)]) == 0
    predicted = (rows_of(capsys, "predict", memory, demos, "-q") for memory in (output, other))
    for mapped, plain in zip(*predicted, strict=True):
        assert list(mapped["scores"]) == ["positive", "negative"]
        assert list(mapped["scores"].values()) == list(plain["scores"].values())
        assert FRESH[mapped["label"] == "negative"] == plain["label"]


@pytest.mark.plugins
def test_a_memory_keeps_the_words(tmp_path: Path, demos: Path, capsys: Captured) -> None:
    output = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "--technique", "flipped", "-T", "2", "-q", "-o", str(output)]) == 0
    memory = load_memory(output)
    assert memory.provenance.technique is not None
    assert memory.provenance.demonstrations.word("positive") == "negative"
    save_memory(memory, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == output.read_bytes()
    assert "negative -> positive" in said.output(capsys, "inspect", output)


def test_a_task_evaluates_whether_the_words_were_learned(tmp_path: Path, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path)
    output, words = tmp_path / "mem.safetensors", ["--task", str(task), "--data-dir", str(data)]
    assert (
        run(["think", *words, "--protocol", "paper", "--technique", "flipped", "-T", "1", "-q", "-o", str(output)]) == 0
    )
    samples = tmp_path / "samples.jsonl"
    report = json_of(capsys, "eval", output, *words, "--protocol", "paper", "-q", "--json", "-o", samples)
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert {row["gold"] for row in rows} == {"negative", "positive"}
    right = sum(row["label"] == row["gold"] for row in rows)
    assert report["results"][0]["accuracy"] == pytest.approx(right / 12)
    assert report["memory"]["technique"] == "flipped"


@pytest.mark.parametrize("name", ["flipped", "repeat-2"])
def test_the_first_reading_of_a_technique_is_not_called_plain_in_context_learning(
    name: str, tmp_path: Path, demos: Path, capsys: Captured
) -> None:
    output = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "--technique", name, "-T", "2", "-q", "-o", str(output)]) == 0
    out = said.output(capsys, "eval", output, demos, "-q")
    assert f"T = 1 is one reading with {name}\n" in out
    assert "T = 1 is plain in-context learning" not in out
    assert "for plain in-context learning, evaluate a memory of deepthink think -T 1 without --technique" in out


@pytest.fixture
def short(tmp_path: Path) -> list[str]:
    """The words that name a model which holds the four reviews once, and not twice."""
    return ["-m", str(write_model(tmp_path / "short", "gpt2", n_positions=120)), "-T", "1"]


def test_demonstrations_that_fit_once_and_not_twice_are_left_out_whole_with_a_warning(
    demos: Path, short: list[str], tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), *short, "-q", "-o", str(output)]) == 0
    capsys.readouterr()
    assert run(["think", str(demos), *short, "--technique", "repeat-2", "-q", "-o", str(output)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    memory = load_memory(output)
    read = [example.text for example in memory.provenance.demonstrations.examples]
    fit = len(read) // 2
    assert 0 < fit < len(REVIEWS)
    assert read == [text for text, _ in REVIEWS[-fit:]] * 2
    assert f"{fit} of 4 demonstrations fit " in line
    assert line.endswith(f" with repeat-2; the first {4 - fit} are left out")


def test_more_copies_than_any_demonstration_fits_are_refused_before_the_model_is_loaded(
    demos: Path, short: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.make_memory.load", None)
    assert run(["think", str(demos), *short, "--technique", "repeat-20"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--technique repeat-20: none of the demonstrations fits: the last has " in line
