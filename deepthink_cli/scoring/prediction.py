"""Predictions: what one iteration of a memory says of one query, made of the scores of its candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from deepthink_cli.data.examples import Query
from deepthink_cli.scoring.score import Scores
from deepthink_cli.scoring.softmax import shares


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


def averaged(by_member: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """The predictions of one member of an ensemble, or the mean of those of several, query by query."""
    if len(by_member) == 1:
        return list(by_member[0])
    return [mean_predictions(each) for each in zip(*by_member, strict=True)]


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
    return Prediction(
        query=query,
        iteration=iteration,
        label=query.candidates[place],
        probability=shares(scores.sums)[place],
        scores=dict(zip(query.candidates, scores.sums, strict=True)),
        label_mean_per_token=query.candidates[scores.means.index(max(scores.means))],
        tied=scores.sums.count(best) > 1,
        means=dict(zip(query.candidates, scores.means, strict=True)),
    )
