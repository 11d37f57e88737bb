"""What candidates are compared by: the sum of log-probabilities, the mean per token, or the sum with an end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from conftest import readings_of, write_rows
from helpers.said import Captured

from deepthink_cli import DemonstrationSet, Example, Memory, Method, Query, Scoring, Template, predict, tokenize_queries
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Skipped
from deepthink_cli.engine.base import Engine, Reading, ScoringPlan, Sums
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.scoring.pipeline import TOO_LONG, UNSCORABLE, predictions
from deepthink_cli.scoring.prediction import Scores, prediction_of

PATTERN = "Text: {text}\nKind: {kind}"
LABELS = ("b", "bu", "feature")
TEXTS = ["it fails", "a button", "steps to see it", "please add", "x", "why", "and then", "no idea at all"]
SCORES: list[str] = ["sum", "mean", "end"]


@pytest.fixture(scope="module")
def memories(llama: Engine) -> list[Memory]:
    """Two iterations; the second label begins with the tokens of the first."""
    examples = [Example("it stops", "b"), Example("log attached", "bu"), Example("dark mode", "feature")]
    demonstrations = DemonstrationSet.of(examples, PATTERN)
    return list(readings_of(llama, demonstrations, Method(2)))


def by_forward(engine: Engine, memory: Memory, text: str, after: str) -> dict[str, list[float]]:
    """The log-probability of every token of the label and the text `after` it, by one pass of transformers each."""
    tokenizer, start = engine.tokenizer, f"Text: {text}\nKind:"
    query = tokenizer.encode(start, add_special_tokens=False)
    log_probabilities = {}
    for label in LABELS:
        whole = tokenizer.encode(f"{start} {label}{after}", add_special_tokens=False)
        ids = [*memory.provenance.demonstrations.token_ids, *whole]
        with torch.no_grad():
            logs = engine.model.network(torch.tensor([ids])).logits[0].log_softmax(-1)
        answer = range(len(ids) - len(whole) + len(query), len(ids))
        log_probabilities[label] = [float(logs[place - 1, ids[place]]) for place in answer]
    return log_probabilities


def test_the_scores_are_those_of_one_pass_over_all_tokens(llama: Engine, memories: list[Memory]) -> None:
    for text in TEXTS:
        plain = by_forward(llama, memories[0], text, "")
        followed = by_forward(llama, memories[0], text, "\n\nText")
        ended = {label: logs[: len(plain[label]) + 1] for label, logs in followed.items()}
        expected = {
            "sum": {label: sum(logs) for label, logs in plain.items()},
            "mean": {label: fmean(logs) for label, logs in plain.items()},
            "end": {label: sum(logs) for label, logs in ended.items()},
        }
        for score in SCORES:
            (prediction,) = predict(llama, memories[0], [text], scoring=Scoring.of(score=score))
            assert prediction.scores == pytest.approx(expected[score], abs=1e-4)
            assert prediction.label == max(expected[score], key=expected[score].__getitem__)
            total = sum(map(math.exp, expected[score].values()))
            assert prediction.probability == pytest.approx(
                math.exp(expected[score][prediction.label]) / total, rel=1e-3
            )


class Bigrams(Engine):
    """Every token has a probability after the one before it: of `likely`, or else one in a hundred."""

    description = "bigram engine"

    def __init__(self, engine: Engine, likely: Mapping[tuple[str, str], float]) -> None:
        self.tokenizer, self.identity, self.limits = engine.tokenizer, engine.identity, engine.limits
        self.likely = likely

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        return [Memory((torch.zeros(1, len(reading), 1),), (torch.zeros(1, len(reading), 1),)) for reading in readings]

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        return [[[self._sum(query, answer) for answer in query.answers] for query in plan.queries] for _ in memories]

    def _sum(self, query: TokenizedQuery, answer: Sequence[int]) -> float:
        tokens = self.tokenizer.convert_ids_to_tokens([query.prefix[-1], *answer])
        return sum(math.log(self.likely.get(pair, 0.01)) for pair in pairwise(tokens))


def test_a_label_that_begins_with_another_wins_by_a_mean_or_with_an_end_and_never_by_a_sum(llama: Engine) -> None:
    line = llama.tokenizer.convert_ids_to_tokens(llama.tokenizer.encode("\n\nText", add_special_tokens=False))[0]
    likely = {("Ġb", "u"): 0.5, ("b", "u"): 0.5, ("b", line): 0.1, ("u", line): 0.8, ("Ġb", line): 0.1}
    engine = Bigrams(llama, likely)
    demonstrations = DemonstrationSet.of([Example("x", "b"), Example("y", "bu"), Example("z", "k")], PATTERN)
    (memory,) = readings_of(engine, demonstrations, Method(1))
    answers = {}
    for score in SCORES:
        (prediction,) = predict(engine, memory, ["w"], scoring=Scoring.of(score=score))
        answers[score] = prediction.label
        if score == "end":
            assert prediction.scores["bu"] - prediction.scores["b"] == pytest.approx(math.log(0.5 * 0.8 / 0.1))
    assert answers == {"sum": "b", "mean": "bu", "end": "bu"}


def test_by_the_mean_the_label_its_probability_and_ties_are_those_of_the_means() -> None:
    scores = Scoring.of(score="mean").compared(Scores((-1.0, -1.2, -1.8), (-1.0, -0.6, -0.6)))
    prediction = prediction_of(Query("text", ("a", "b c", "d e f")), 1, scores)
    assert prediction.scores == {"a": -1.0, "b c": -0.6, "d e f": -0.6}
    assert (prediction.label, prediction.tied) == ("b c", True)
    assert prediction.probability == pytest.approx(1 / (2 + math.exp(-0.4)))


@pytest.mark.parametrize("score", SCORES)
def test_a_bias_is_estimated_from_scores_of_the_same_kind(score: str, llama: Engine, memories: list[Memory]) -> None:
    calibrator = Calibrator(
        ["contextual"], memories[1].origin.demonstrations.labels, llama, [memories[1:]], Scoring.of(score=score)
    )
    (prediction,) = calibrator(list(predict(llama, memories[1], ["it fails"], scoring=Scoring.of(score=score))))
    free = [
        shares(each.scores)
        for each in predict(llama, memories[1], ["N/A", "[MASK]", ""], scoring=Scoring.of(score=score))
    ]
    bias = [fmean(column) for column in zip(*free, strict=True)]
    expected = [p / b for p, b in zip(shares(prediction.scores), bias, strict=True)]
    after = prediction.calibrated["contextual"].prediction
    assert [math.exp(value) for value in after.scores.values()] == pytest.approx(expected, rel=1e-3)


def shares(scores: dict[str, float]) -> list[float]:
    """The probabilities of the labels among themselves."""
    weights = [math.exp(value - max(scores.values())) for value in scores.values()]
    return [weight / sum(weights) for weight in weights]


def test_an_ensemble_averages_the_scores_that_are_compared(llama: Engine, memories: list[Memory]) -> None:
    demonstrations = memories[0].provenance.demonstrations
    examples = demonstrations.examples[::-1]
    turned = DemonstrationSet.of(examples, demonstrations.template, demonstrations.labels)
    other = next(readings_of(llama, turned))
    queries = [Query(text, LABELS) for text in TEXTS]
    for score in SCORES:
        alone = [
            [each.scores for each in predict(llama, memory, TEXTS, scoring=Scoring.of(score=score))]
            for memory in (memories[0], other)
        ]
        (together,) = predictions(llama, [memories[:1], [other]], queries, scoring=Scoring.of(score=score))
        for prediction, *members in zip(together, *alone, strict=True):
            mean = {label: fmean(member[label] for member in members) for label in LABELS}
            assert prediction.scores == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize(("score", "over"), [("sum", 0), ("mean", 0), ("end", 1)])
def test_an_end_counts_toward_the_length_of_a_query(
    score: str, over: int, llama: Engine, memories: list[Memory]
) -> None:
    (short,) = tokenize_queries(llama.tokenizer, Template(PATTERN), [Query("x", ("b", "k"))])
    count = 512 - memories[0].length - short.longest + 1
    query = Query("x" * count, ("b", "k"), "b")
    ((row,),) = predictions(llama, [memories[:1]], [query], scoring=Scoring.of(score=score), skip=UNSCORABLE)
    assert isinstance(row, Skipped) == over
    assert not isinstance(row, Skipped) or row.reason == TOO_LONG


ROWS = [
    {"text": f"{word} film {n}", "label": label} for n in range(12) for word, label in (("good", "p"), ("bad", "n"))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory, a composed one, and rows."""
    made = tmp_path_factory.mktemp("stored")
    demos, _ = write_rows(made / "demos.jsonl", ROWS[:4]), write_rows(made / "rows.jsonl", ROWS[4:])
    for more in ("-o m.safetensors", "-o composed.safetensors --technique composed"):
        *words, name = f"think {demos} -m pocket -T 1 -q --technique deep-thinking".split(), more
        typed = [*words[0], *name.replace("-o ", f"-o {made}/").split()]
        assert run(typed) == 0
    return made


def refused(capsys: Captured, line: str) -> str:
    capsys.readouterr()
    assert run(line.split()) == 2
    return capsys.readouterr().err


@pytest.mark.plugins
def test_all_options_that_differ_are_named_with_a_command_that_helps(folder: Path, capsys: Captured) -> None:
    memory, rows = folder / "end.safetensors", folder / "rows.jsonl"
    assert run(f"calibrate {folder}/m.safetensors -o {memory} --score end --reread 2 -q".split()) == 0
    told = refused(capsys, f"predict {memory} {rows} --score mean")
    assert "is of --reread 2 and of --score end; give the same" in told
    assert f"deepthink calibrate {memory} --score mean, or use --calibrate none" in told
    assert run(f"calibrate {memory} --score mean -q".split()) == 0
    assert run(f"predict {memory} {rows} --score mean -q".split()) == 0


@pytest.mark.plugins
def test_options_of_scores_are_refused_where_nothing_is_scored(folder: Path, capsys: Captured) -> None:
    told = refused(capsys, f"calibrate {folder}/m.safetensors --calibrate none --score mean")
    assert told.startswith("deepthink: --score mean: has no meaning")


@pytest.mark.plugins
def test_memories_whose_corrections_are_of_other_parts_are_compared_without_labels(
    folder: Path, capsys: Captured
) -> None:
    nearest = folder / "nearest.safetensors"
    assert run(f"calibrate {folder}/composed.safetensors -o {nearest} --nearest 2 -q".split()) == 0
    told = refused(capsys, f"diff {nearest} {folder}/m.safetensors {folder}/rows.jsonl")
    assert told.startswith("deepthink: labels: A and B store corrections of other options of scoring")


@pytest.mark.plugins
def test_a_study_refuses_what_is_of_composed_memories_alone(folder: Path, capsys: Captured) -> None:
    study = folder / "study.yaml"
    study.write_text("models: [pocket]\ntasks: [sst2]\nscoring: {nearest: 2}\n")
    assert "scoring nearest=2: attends to parts" in refused(capsys, f"study run {study} -o {folder}/out")
