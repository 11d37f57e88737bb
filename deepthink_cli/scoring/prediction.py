"""The scores of a query's candidates, the prediction made of them, and its corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from deepthink_cli.data.examples import Query
from deepthink_cli.scoring.softmax import shares

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import TokenizedQuery
    from deepthink_cli.scoring.softmax import Floats


@dataclass(frozen=True)
class Scores:
    """The scores of one query's candidates: `sums` of log-probabilities in nats, which are compared, and `means`.

    `means` are per token. `attended` are the places of the demonstrations that the query attends to; empty for all.
    """

    sums: tuple[float, ...]
    means: tuple[float, ...]
    attended: tuple[int, ...] = ()

    @classmethod
    def of(cls, sums: Sequence[float], query: TokenizedQuery, attended: tuple[int, ...] = ()) -> Scores:
        """The scores of a query whose candidates have these sums of log-probabilities."""
        means = (value / len(answer) for value, answer in zip(sums, query.answers, strict=True))
        return cls(tuple(sums), tuple(means), attended)


Counted = Literal["texts", "rows"]


@dataclass(frozen=True)
class Prediction:
    """The prediction of one iteration of a memory for one query.

    `scores` are compared, in nats: sums of log-probabilities, unless the scoring compares other values. `means` are
    always the means per token, and `label_mean_per_token` is the best label by them. `probability` is the label's share
    among the candidates. `tied`: several candidates have the best score. `attended` is as in `Scores`. `text` is the
    generated text of a free answer: there are no scores then, and `label` is the answer found in the text. `by_head`
    has a score for each label if the memory stores a head (`scoring.heads`). `calibrated` holds the prediction
    corrected by each calibration in use, by name. `states` are hidden states (L, W) before the label, if asked for.
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
    by_head: Mapping[str, float] | None = None
    calibrated: Mapping[str, Correction] = field(default_factory=dict)
    attended: tuple[int, ...] = ()
    states: Floats | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Correction:
    """A prediction after a calibration (`deepthink_cli.calibration`).

    The scores of `prediction` are log p(y | x) - log b(y); p is normalised over the candidates, and `bias` is log b in
    nats. With a head, the scores are those of the head, and there is no bias. `inputs` is the number of texts or rows
    (as `counted` says) from which the correction was estimated.
    """

    prediction: Prediction
    bias: dict[str, float]
    inputs: int
    counted: Counted

    @property
    def estimated_from(self) -> str:
        """The number of inputs in words, as in `20 texts`."""
        return f"{self.inputs} {self.counted if self.inputs != 1 else self.counted.removesuffix('s')}"


def averaged(by_member: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """The mean of the members' predictions, query by query; of one member, its predictions."""
    if len(by_member) == 1:
        return list(by_member[0])
    return [mean_predictions(each) for each in zip(*by_member, strict=True)]


def mean_predictions(predictions: Sequence[Prediction]) -> Prediction:
    """The prediction by the mean log-probability of each candidate over several memories, in float64.

    All are predictions of the same query and iteration, in any order. To normalise each memory's log-probabilities over
    the candidates first would change neither the label nor its probability.
    """
    first = predictions[0]
    assert len({(each.iteration, *each.scores) for each in predictions}) == 1
    sums = tuple(fmean(each.scores[candidate] for each in predictions) for candidate in first.scores)
    means = tuple(fmean(each.means[candidate] for each in predictions) for candidate in first.scores)
    by_head, found = None, [each.by_head for each in predictions if each.by_head is not None]
    if len(found) == len(predictions):
        by_head = {label: fmean(each[label] for each in found) for label in found[0]}
    return replace(prediction_of(first.query, first.iteration, Scores(sums, means)), by_head=by_head)


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
        attended=scores.attended,
    )
