"""Which demonstrations fit a model, found without tokenising all that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.families import build_tokenizer
from helpers.said import Captured, json_of, refused
from helpers.texts import TEMPLATE, TOKENIZERS, WORDS, tokenizer_of
from helpers.tiny import run_words
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from deepthink_cli import DemonstrationSet, Example, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.data.template import Template
from deepthink_cli.experiments.results import read_results
from deepthink_cli.model.limits import Limits, check_fit, count_tokens, max_count


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length in characters of every text that is tokenised."""
    counted: list[int] = []
    call = PreTrainedTokenizerFast.__call__

    def counting(tokenizer: object, text: str | list[str], **options: object) -> object:
        counted.extend(map(len, [text] if isinstance(text, str) else text))
        return call(tokenizer, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", counting)
    return counted


def many(count: int) -> list[dict[str, object]]:
    return [{"review": f"a film of {n} scenes", "sentiment": ("good", "bad")[n % 2]} for n in range(count)]


@pytest.mark.parametrize("name", ["tiny", *TOKENIZERS])
@given(TEMPLATE, st.lists(st.builds(Example, WORDS, WORDS), min_size=1, max_size=9), st.integers(0, 120), st.booleans())
def test_as_many_fit_as_counting_one_by_one_finds(
    name: str, template: Template, examples: list[Example], largest: int, last: bool
) -> None:
    tokenizer = build_tokenizer() if name == "tiny" else tokenizer_of(name)
    lengths = {}
    for number in range(1, len(examples) + 1):
        chosen = examples[-number:] if last else examples[:number]
        lengths[number] = len(tokenize_demonstrations(tokenizer, DemonstrationSet.of(chosen, template)).token_ids)
        assert count_tokens(tokenizer, DemonstrationSet.of(examples, template), chosen) == lengths[number]
    found = max_count(lengths.__getitem__, len(examples), largest)
    assert found == max((number for number, length in lengths.items() if length <= largest), default=0)


def test_one_demonstration_more_may_be_a_token_less() -> None:
    lengths = [0, 4, 9, 11, 10, 10, 12]
    assert max_count(lengths.__getitem__, 6, 10) == 5


def test_thousands_of_demonstrations_are_refused_after_one_look_at_all(
    models: Models, tokenised: list[int], tmp_path: Path, capsys: Captured
) -> None:
    rows = write_rows(tmp_path / "demos.jsonl", many(3000))
    line = refused(capsys, "think", rows, "-m", str(models("llama")), "-T", "1")
    whole = max(tokenised)
    assert sum(tokenised) < 1.5 * whole
    fit = int(line.split("the first ")[1].split(" of 3000")[0])
    rows = write_rows(tmp_path / "demos.jsonl", many(fit + 1))
    assert run(["think", str(rows), "-m", str(models("llama")), "-T", "1"]) == 2
    assert f"the first {fit} of {fit + 1} demonstrations would fit" in capsys.readouterr().err
    write_rows(tmp_path / "demos.jsonl", many(fit))
    assert (
        int(json_of(capsys, "think", rows, "-m", str(models("llama")), "-T", "1", "--dry-run", "--json")["tokens"])
        <= 512
        < int(line.split("L = ")[1].split()[0])
    )


def test_megabytes_of_demonstrations_are_never_tokenised_whole(
    models: Models, tokenised: list[int], tmp_path: Path, capsys: Captured
) -> None:
    rows = write_rows(tmp_path / "demos.jsonl", many(30_000))
    assert run(["think", str(rows), "-m", str(models("llama")), "-T", "1"]) == 2
    assert "demonstrations too long: L = at least " in capsys.readouterr().err
    assert sum(tokenised) < 50_000


def test_a_long_demonstration_that_does_not_fit_is_named_with_its_tokens(
    models: Models, tokenised: list[int], tmp_path: Path, capsys: Captured
) -> None:
    rows = [
        {"text": "x", "label": "a"},
        {"text": "word " * 200_000, "label": "b"},
        {"text": "y " * 100_000, "label": "b"},
    ]
    path = write_rows(tmp_path / "demos.jsonl", rows)
    line = refused(capsys, "think", path, "-m", str(models("llama")))
    assert "demonstrations too long: L = at least " in line
    assert "the first 1 of 3 demonstrations would fit" in line
    assert max(tokenised) < 1_000_100


def test_a_run_that_drops_demonstrations_does_not_tokenise_all_that_it_drops(
    models: Models, tokenised: list[int], tmp_path: Path
) -> None:
    words = run_words(tmp_path, models("llama"), "--shots", "2000", "-T", "1", "--limit", "1", "-q", train=2000)
    assert run(words) == 0
    assert 10 < read_results(tmp_path / "out")[0].shots_used < 30
    assert sum(tokenised) < 30_000


def test_a_model_without_limit_counts_nothing(models: Models, tokenised: list[int], reviews: DemonstrationSet) -> None:
    many_reviews = replace(reviews, examples=reviews.examples * 100)
    check_fit(Limits(None, None, relative=True), tokenizer_of("gpt2"), many_reviews, 2, "continued", "bloom")
    assert tokenised == []
