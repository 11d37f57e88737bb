"""Label inputs with one or more iterations of a memory, one chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Literal

from deepthink_cli.artifact.files import check_fit
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.errors import InputError
from deepthink_cli.io.prefetch import ahead
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.score import Scores, check_length, score_each
from deepthink_cli.scoring.skipping import ScoringChunk, predicted, scored, scoring_chunk

CHUNK = 256  # inputs tokenised, sorted by length and scored together


@dataclass(frozen=True)
class Prediction:
    """The prediction of one iteration of a memory for one query.

    `scores` are what is compared, in nats: sums of log-probabilities, or their means for the score `mean`; `means` are
    always the means per token; `probability` is the label's share among the candidates; `label_mean_per_token` is the
    best by `means`; `tied` is set if several candidates have the best score.
    `text` is the generated text where the answer is free: there are no scores then, and `label` is the answer found in
    the text. `calibrated` holds the same prediction corrected by each calibration that was asked for, by name.
    """

    query: Query
    iteration: int
    label: str
    probability: float
    scores: dict[str, float]
    label_mean_per_token: str
    tied: bool
    means: dict[str, float]
    text: str | None = None
    calibrated: Mapping[str, Correction] = field(default_factory=dict)


@dataclass(frozen=True)
class Correction:
    """A prediction after a calibration (`deepthink_cli.calibration`).

    The scores of `prediction` are log p(y | x) - log b(y), where p is normalised over the candidates; `bias` is log b
    in nats. `inputs` is the number of texts or rows, as `counted` says, that it was estimated from.
    """

    prediction: Prediction
    bias: dict[str, float]
    inputs: int
    counted: Literal["texts", "rows"]

    @property
    def estimated_from(self) -> str:
        """The number of inputs in words, as in `20 texts`."""
        return f"{self.inputs} {self.counted if self.inputs != 1 else self.counted.removesuffix('s')}"


def predict(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | str | Mapping[str, str]],
    chunk: int = CHUNK,
    score: ScoreName = "sum",
) -> Iterator[Prediction]:
    """Yield a prediction for every input, in order; with several memories, one after another for each input.

    Inputs are queries, or texts (strings, or the template's named fields) to be labelled with the
    memory's label words. `score` is what is compared of a candidate's log-probabilities: their sum, their mean per
    token, or their sum with that of the label's end. A thread tokenises `chunk` inputs at a time while the previous
    ones are scored; at most three chunks are in memory. Raises InputError for an input that does not
    fit the template, the candidates or the model's context.
    """
    for part in predict_chunks(engine, memory, inputs, chunk, score=score):
        yield from part


def predict_chunks(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | str | Mapping[str, str]],
    chunk: int = CHUNK,
    ensemble: Sequence[Sequence[Memory]] = (),
    score: ScoreName = "sum",
) -> Iterator[list[Prediction]]:
    """Like `predict`, but yields one list for every chunk of inputs.

    Every member of the `ensemble` has a memory for each of `memory`, in the same order, with the same template and
    labels; the predictions are those of the mean log-probabilities.
    """
    for part in predict_or_skip(engine, memory, inputs, chunk, ensemble, score, skip=False):
        yield predicted(part)


def predict_or_skip(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | Skipped | str | Mapping[str, str]],
    chunk: int = CHUNK,
    ensemble: Sequence[Sequence[Memory]] = (),
    score: ScoreName = "sum",
    skip: bool = True,
) -> Iterator[list[Prediction | Skipped]]:
    """Like `predict_chunks`, but yields `Skipped` in the place of an input that cannot be tokenised or scored.

    An input that was skipped before is passed on. With `skip` off, raises as `predict` does.
    """
    memories = [memory] if isinstance(memory, Memory) else list(memory)
    members = [[engine.place(each) for each in member] for member in (memories, *ensemble)]
    provenance, most = memories[0].provenance, longest([member[0] for member in members]).provenance
    if provenance is None or most is None:
        raise InputError("this memory has no template; use one from think() or load_memory()")
    check_fit(provenance, engine.identity, "this memory")
    labels = provenance.demonstrations.labels
    rows = (each if isinstance(each, Query | Skipped) else Query(each, labels) for each in inputs)
    for part in ahead(_planned(engine, most.demonstrations, rows, chunk, score, skip)):
        yield scored(engine, part, partial(predict_mean, engine, members, score=score), skip)


def predict_plan(
    engine: Engine, memories: Sequence[Memory], queries: Sequence[Query], plan: ScoringPlan, score: ScoreName = "sum"
) -> list[list[Prediction]]:
    """For each memory, a list with one prediction per query, in order.

    `plan` is the plan of these queries, tokenised for `score`.
    """
    return [
        [
            prediction_of(query, memory.iteration, scores.compared(score))
            for query, scores in zip(queries, scored, strict=True)
        ]
        for memory, scored in zip(memories, score_each(engine, memories, plan), strict=True)
    ]


def predict_mean(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    queries: Sequence[Query],
    plan: ScoringPlan,
    score: ScoreName = "sum",
) -> list[list[Prediction]]:
    """For each memory of a member, as `predict_plan`; with several members, the mean of their predictions."""
    count = len(members[0])
    by_memory = predict_plan(engine, [memory for member in members for memory in member], queries, plan, score)
    if len(members) == 1:
        return by_memory
    return [[mean_predictions(same) for same in zip(*by_memory[place::count], strict=True)] for place in range(count)]


def longest(memories: Sequence[Memory]) -> Memory:
    """The memory of the most tokens, after which the fewest queries fit."""
    return max(memories, key=lambda memory: memory.length)


def _planned(
    engine: Engine,
    demonstrations: TokenizedDemonstrations,
    rows: Iterator[Query | Skipped],
    chunk: int,
    score: ScoreName,
    skip: bool,
) -> Iterator[ScoringChunk]:
    tokenize, length = query_tokenizer(engine.tokenizer, demonstrations, score), len(demonstrations.token_ids)
    while part := list(islice(rows, chunk)):
        if skip:
            yield scoring_chunk(engine, tokenize, length, part)
            continue
        tokenized = tokenize(predicted(part))
        for query in tokenized:
            check_length(engine.limits, engine.identity.id, length, query)
        yield ScoringChunk(part, engine.plan(tokenized))


def mean_predictions(predictions: Sequence[Prediction]) -> Prediction:
    """The prediction by the mean log-probability of each candidate over several memories, in float64.

    All are predictions of the same query and iteration. Their order does not matter, and whether each memory's
    log-probabilities are normalised over the candidates first changes neither the label nor its probability.
    """
    first = predictions[0]
    assert len({(each.iteration, *each.scores) for each in predictions}) == 1
    sums = tuple(fmean(each.scores[candidate] for each in predictions) for candidate in first.scores)
    means = tuple(fmean(each.means[candidate] for each in predictions) for candidate in first.scores)
    return prediction_of(first.query, first.iteration, Scores(sums, means))


def prediction_of(query: Query, iteration: int, scores: Scores) -> Prediction:
    """The prediction for a query whose candidates have these scores; the first candidate wins a tie."""
    best = max(scores.sums)
    place = scores.sums.index(best)
    total = sum(math.exp(value - best) for value in scores.sums)
    return Prediction(
        query=query,
        iteration=iteration,
        label=query.candidates[place],
        probability=1 / total,
        scores=dict(zip(query.candidates, scores.sums, strict=True)),
        label_mean_per_token=query.candidates[scores.means.index(max(scores.means))],
        tied=scores.sums.count(best) > 1,
        means=dict(zip(query.candidates, scores.means, strict=True)),
    )
