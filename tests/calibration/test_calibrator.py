"""Calibrations through a model, against an independent computation from raw scores of separate calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import REVIEWS, TEMPLATE, readings_of
from helpers.chats import write_chat_model

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Example,
    Memory,
    Method,
    Query,
    Template,
    load_model,
    score,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.calibration import calibrator as calibrator_module
from deepthink_cli.calibration.basis import TEXTS, BasisInputs, basis_texts, check_calibrations
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.registry import choices
from deepthink_cli.data.examples import Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_queries
from deepthink_cli.prediction.predict import predict
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.pipeline import predicted, predictions
from deepthink_cli.scoring.prediction import Prediction, Scores, prediction_of

KINDS = ["a kind film", "flat and stale", "loud", "a wise and warm play", "not bad at all"]
ROWS = [f"{kind}{end}" for end in ("", " today", " indeed", " for us", " again") for kind in KINDS]
LABELS = ("positive", "negative")


@pytest.fixture(scope="module")
def demonstrations(llama: Engine) -> TokenizedDemonstrations:
    """The four reviews, tokenised."""
    solved = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    return tokenize_demonstrations(llama.tokenizer, solved)


@pytest.fixture(scope="module")
def memories(llama: Engine, demonstrations: TokenizedDemonstrations) -> list[Memory]:
    """Two iterations."""
    return list(think(llama, demonstrations, Method(2)))


def calibrated(
    engine: Engine, memories: Sequence[Memory], names: Sequence[str], rows: Sequence[str | Query] = ROWS
) -> list[Prediction]:
    """Predictions of all rows, corrected in one call."""
    return Calibrator(names, LABELS, engine, [memories])(list(predict(engine, memories, rows)))


def shares(
    engine: Engine, memory: Memory, texts: Sequence[str], candidates: tuple[str, ...] = LABELS
) -> list[list[float]]:
    """The probabilities of the labels among themselves after each text, by separate calls of `score`."""
    rows = []
    for text in texts:
        (query,) = tokenize_queries(engine.tokenizer, memory.provenance.demonstrations, [Query(text, candidates)])
        (scores,) = score(engine, memory, [query])
        weights = [math.exp(value - max(scores.sums)) for value in scores.sums]
        rows.append([weight / sum(weights) for weight in weights])
    return rows


def divided(probabilities: Sequence[float], bias: Sequence[float]) -> list[float]:
    """Probabilities divided by a bias, normalised."""
    weights = [p / b for p, b in zip(probabilities, bias, strict=True)]
    return [weight / sum(weights) for weight in weights]


def check(predictions: Sequence[Prediction], name: str, expected: Sequence[Sequence[float]]) -> None:
    """That the corrected predictions have these probabilities."""
    for prediction, probabilities in zip(predictions, expected, strict=True):
        after = prediction.calibrated[name].prediction
        best = max(range(len(probabilities)), key=lambda place: probabilities[place])
        assert after.label == prediction.query.candidates[best]
        assert after.probability == pytest.approx(probabilities[best], rel=1e-4)


@pytest.mark.parametrize("iteration", [1, 2])
@pytest.mark.parametrize("name", ["contextual", "domain", "batch"])
def test_the_mean_of_separate_scores_is_divided_out(
    name: str, iteration: int, llama: Engine, memories: list[Memory], demonstrations: TokenizedDemonstrations
) -> None:
    texts = {"contextual": ["N/A", "[MASK]", ""], "batch": ROWS}.get(name) or basis_texts("domain", demonstrations)
    memory = memories[iteration - 1]
    bias = [fmean(column) for column in zip(*shares(llama, memory, list(map(str, texts))), strict=True)]
    after = calibrated(llama, [memory], [name])
    check(after, name, [divided(row, bias) for row in shares(llama, memory, ROWS)])
    correction = after[0].calibrated[name]
    assert list(map(math.exp, correction.bias.values())) == pytest.approx(bias, rel=1e-4)
    assert (correction.inputs, correction.counted) == (len(texts), "rows" if name == "batch" else "texts")


def test_pmi_is_the_ratio_to_the_scores_after_the_end_of_the_template_alone(
    llama: Engine, memories: list[Memory]
) -> None:
    start = llama.tokenizer("\nSentiment:", add_special_tokens=False)["input_ids"]
    answers = [llama.tokenizer(f"\nSentiment: {label}", add_special_tokens=False)["input_ids"] for label in LABELS]
    query = TokenizedQuery(tuple(start), tuple(tuple(ids[len(start) :]) for ids in answers))
    (without,) = score(llama, memories[0], [query])
    expected = []
    for prediction in predict(llama, memories[0], ROWS):
        ratios = [math.exp(a - b) for a, b in zip(prediction.scores.values(), without.sums, strict=True)]
        expected.append([ratio / sum(ratios) for ratio in ratios])
    after = calibrated(llama, memories[:1], ["pmi"])
    check(after, "pmi", expected)
    assert (after[0].calibrated["pmi"].inputs, after[0].calibrated["pmi"].counted) == (1, "texts")


@pytest.mark.plugins
def test_prior_makes_the_labels_equally_likely_over_the_rows(llama: Engine, memories: list[Memory]) -> None:
    after = [each.calibrated["prior"].prediction for each in calibrated(llama, memories[:1], ["prior"])]
    shares_of_first = [each.probability if each.label == LABELS[0] else 1 - each.probability for each in after]
    assert fmean(shares_of_first) == pytest.approx(0.5, abs=1e-9)


def test_iterations_are_corrected_separately(llama: Engine, memories: list[Memory]) -> None:
    names = list(choices()[1:])
    together = calibrated(llama, memories, names)
    for place, memory in enumerate(memories):
        alone = calibrated(llama, [memory], names)
        for left, right in zip(together[place::2], alone, strict=True):
            assert left.iteration == right.iteration == memory.iteration
            for name in names:
                assert left.calibrated[name].bias == pytest.approx(right.calibrated[name].bias, abs=1e-5)


@pytest.mark.plugins
@pytest.mark.parametrize("name", ["batch", "prior"])
def test_a_stream_is_corrected_by_all_rows_up_to_the_end_of_their_chunk(
    name: str, llama: Engine, memories: list[Memory]
) -> None:
    calibrator = Calibrator([name], LABELS, llama, [memories])
    raw = list(predict(llama, memories[0], ROWS))
    first, second = calibrator(raw[:20]), calibrator(raw[20:])
    for chunk, rows in ((first, raw[:20]), (second, raw)):
        expected = Calibrator([name], LABELS, llama, [memories])(rows)[-len(chunk) :]
        for prediction, whole in zip(chunk, expected, strict=True):
            found, correction = prediction.calibrated[name], whole.calibrated[name]
            assert (found.inputs, found.counted) == (len(rows), "rows")
            assert found.bias == pytest.approx(correction.bias, abs=1e-9)
            assert found.prediction.scores == pytest.approx(correction.prediction.scores, abs=1e-9)


@pytest.mark.plugins
def test_of_a_long_stream_a_bias_is_that_of_a_sample_of_all_rows_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are sorted by their label, so that neither the first nor the last of them are a sample."""
    monkeypatch.setattr(calibrator_module, "SAMPLE", 500)
    odds = [4 * (number < 1500) + number % 7 / 7 for number in range(3000)]
    rows = [prediction_of(Query("", LABELS), 1, Scores((value, 0.0), (value, 0.0))) for value in odds]
    stream = Calibrator(["prior"], LABELS)
    chunks = [stream(rows[start : start + 250])[0].calibrated["prior"] for start in range(0, 3000, 250)]
    assert [chunk.inputs for chunk in chunks] == [250, *[500] * 11]
    whole = Calibrator(["prior"], LABELS)(rows)[0].calibrated["prior"]
    assert whole.inputs == 3000  # rows of one call are all used
    found, expected = (each.bias[LABELS[0]] - each.bias[LABELS[1]] for each in (chunks[-1], whole))
    assert expected == pytest.approx(2 + 3 / 7, abs=0.01)  # the middle of the odds
    assert found == pytest.approx(expected, abs=0.3)  # two of its standard errors


@pytest.mark.plugins
@pytest.mark.parametrize("name", ["batch", "prior"])
def test_together_all_rows_of_a_pipeline_have_one_bias_and_keep_their_places(
    name: str, llama: Engine, memories: list[Memory]
) -> None:
    unread, queries = Skipped(("rows.jsonl:3: not JSON",)), [Query(text, LABELS) for text in ROWS]
    parts = predictions(llama, [memories[:1]], [queries[0], unread, *queries[1:]], size=2)
    (part,) = Calibrator([name, "contextual"], LABELS, llama, [memories[:1]]).corrected(parts, together=True)
    assert part[1] == unread
    expected = calibrated(llama, memories[:1], [name, "contextual"])
    for row, whole in zip(predicted(part), expected, strict=True):
        for each in (name, "contextual"):
            assert row.calibrated[each].bias == pytest.approx(whole.calibrated[each].bias, abs=1e-5)
            assert row.calibrated[each].inputs == whole.calibrated[each].inputs


def test_every_query_is_corrected_by_its_own_candidates(llama: Engine, memories: list[Memory]) -> None:
    rows = [Query("a kind film", ("good", "bad")), Query("flat", ("stale", "bright", "loud")), Query("loud", LABELS)]
    after = calibrated(llama, memories[:1], ["contextual", "domain", "pmi"], rows)
    for prediction, row in zip(after, rows, strict=True):
        texts = shares(llama, memories[0], ["N/A", "[MASK]", ""], row.candidates)
        bias = [fmean(column) for column in zip(*texts, strict=True)]
        (own,) = shares(llama, memories[0], [str(row.text)], row.candidates)
        check([prediction], "contextual", [divided(own, bias)])
        assert tuple(prediction.calibrated["pmi"].bias) == row.candidates


@pytest.mark.plugins
@pytest.mark.parametrize("name", ["batch", "prior"])
def test_a_row_with_other_candidates_is_refused_by_name(name: str, llama: Engine, memories: list[Memory]) -> None:
    rows = [Query("loud", LABELS), Query("flat", ("stale", "bright"), where="rows.jsonl:2")]
    with pytest.raises(InputError, match=f"rows.jsonl:2: has candidates of its own, and calibrate {name}"):
        calibrated(llama, memories[:1], [name], rows)


def test_rows_may_list_the_labels_in_another_order(llama: Engine, memories: list[Memory]) -> None:
    rows = [Query(text, LABELS[:: 1 if number % 2 else -1]) for number, text in enumerate(ROWS)]
    expected = calibrated(llama, memories[:1], ["batch"])
    for left, right in zip(calibrated(llama, memories[:1], ["batch"], rows), expected, strict=True):
        after = left.calibrated["batch"].prediction
        assert tuple(after.scores) == left.query.candidates
        assert after.scores == pytest.approx(right.calibrated["batch"].prediction.scores, abs=1e-5)


def test_none_corrects_nothing(llama: Engine, memories: list[Memory]) -> None:
    assert calibrated(llama, memories[:1], ["none"]) == list(predict(llama, memories[0], ROWS))


def test_texts_of_random_words_are_those_of_the_demonstrations_and_as_long(
    demonstrations: TokenizedDemonstrations,
) -> None:
    texts = basis_texts("domain", demonstrations)
    words = {word for text, _ in REVIEWS for word in text.split()}
    # 6 + 5 + 4 + 3 words in four texts: 4.5, which rounds to 4
    assert len(texts) == TEXTS == 20
    assert {len(str(text).split()) for text in texts} == {4}
    assert {word for text in texts for word in str(text).split()} <= words
    assert len(set(map(str, texts))) > 15
    assert texts == basis_texts("domain", demonstrations)


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("pmi", {"chat": Chat()}, "calibrate pmi: mem is a chat"),
        ("pmi", {"template": Template("{text} {label}")}, "calibrate pmi: mem has a template without text before"),
        ("batch", {"labels": ()}, "calibrate batch: mem has no label words"),
        ("prior", {"labels": ()}, "use one of contextual, domain, pmi"),
    ],
)
def test_what_a_memory_does_not_support_is_refused(
    name: str, changes: dict[str, Any], message: str, demonstrations: TokenizedDemonstrations
) -> None:
    check_calibrations(["none", "contextual", "domain", "batch", "pmi", "prior"], demonstrations, "mem")
    with pytest.raises(InputError, match=message):
        check_calibrations([name], replace(demonstrations, **changes), "mem")


def test_an_empty_text_that_leaves_no_prompt_is_refused(llama: Engine) -> None:
    solved = DemonstrationSet.of([Example("good", "yes"), Example("bad", "no")], "{text} {label}")
    demonstrations = tokenize_demonstrations(llama.tokenizer, solved)
    with pytest.raises(InputError, match="calibrate contextual: there is no text before the label"):
        BasisInputs("contextual", llama.tokenizer, demonstrations)([demonstrations.labels])


def test_in_a_chat_the_turn_of_the_user_holds_the_text(tmp_path: Path) -> None:
    engine = load_model(str(write_chat_model(tmp_path / "model")))
    solved = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE, chat=Chat())
    (memory,) = readings_of(engine, solved, Method(1))
    after = calibrated(engine, [memory], ["contextual"])
    bias = [fmean(column) for column in zip(*shares(engine, memory, ["N/A", "[MASK]", ""]), strict=True)]
    check(after, "contextual", [divided(row, bias) for row in shares(engine, memory, ROWS)])


def test_every_text_field_is_filled() -> None:
    examples = (Example({"a": "one two", "b": "x"}, "yes"), Example({"a": "three four", "b": "y"}, "no"))
    template = Template("{a} and {b}: {label}")
    two_fields = TokenizedDemonstrations(examples, template, ("yes", "no"), token_ids=(1,))
    assert basis_texts("content-free", two_fields)[0] == {"a": "N/A", "b": "N/A"}
    for text in basis_texts("domain", two_fields):
        assert isinstance(text, dict)
        assert set(text["a"].split()) <= {"one", "two", "three", "four"}
        assert len(text["a"].split()) == 2
        assert text["b"] in ("x", "y")
