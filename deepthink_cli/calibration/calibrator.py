"""Correct predictions: with what was estimated from other texts, or from the predictions themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar
from warnings import warn

import numpy as np

from deepthink_cli.calibration.base import Calibration, normalised
from deepthink_cli.calibration.basis import BasisInputs
from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, calibration
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.errors import InputError
from deepthink_cli.memory import Memory
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Correction, Prediction, predict_plan, prediction_of
from deepthink_cli.scoring.score import Scores
from deepthink_cli.scoring.skipping import predicted

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats


@dataclass(frozen=True)
class Bias:
    """log b of C candidates, in nats, estimated from `inputs` texts or rows.

    `logs` (2, C) corrects the log-probabilities (first) and the log-probabilities per token (second), each estimated
    from scores of its kind.
    """

    candidates: tuple[str, ...]
    logs: Floats
    inputs: int


def correct_all(
    name: str, predictions: Sequence[Prediction], basis: Sequence[Prediction] | None = None
) -> list[Correction]:
    """Correct all predictions of one memory by the calibration `name`, in float64.

    All must have the same candidates. The bias is estimated from `basis`, the predictions of the same memory for the
    inputs that the calibration needs (`basis_predictions`), or from the predictions themselves if there is none, as
    `batch` and `prior` do. Raises InputError for an unknown name, and for a single row without a basis.
    """
    method, order = calibration(name), predictions[0].query.candidates
    logs = log_probabilities(predictions if basis is None else basis, order)
    return corrected(method, predictions, estimated(method, order, logs))


def log_probabilities(predictions: Sequence[Prediction], order: Sequence[str]) -> Floats:
    """Normalised log-probabilities (n, 2, C) of predictions with the candidates `order`, by sum and per token."""
    kinds = [(each.scores, each.means) for each in predictions]
    return normalised([[[scores[candidate] for candidate in order] for scores in pair] for pair in kinds])


def estimated(method: Calibration, candidates: tuple[str, ...], logs: Floats, others: int = 0) -> Bias:
    """The bias that a calibration estimates from the log-probabilities (m, 2, C) of its inputs.

    Raises InputError for too few rows; so many `others` have a bias that the result is averaged with.
    """
    biases = [method.bias(logs[:, kind], others) for kind in range(logs.shape[1])]
    return Bias(candidates, np.stack(biases), len(logs))


def corrected(method: Calibration, predictions: Sequence[Prediction], bias: Bias) -> list[Correction]:
    """Take a bias off predictions that have its candidates, in any order."""
    logs: list[list[list[float]]] = (log_probabilities(predictions, bias.candidates) - bias.logs).tolist()
    by_label: dict[str, float] = dict(zip(bias.candidates, bias.logs[0].tolist(), strict=True))
    counted: Literal["texts", "rows"] = "rows" if method.from_rows else "texts"
    corrections = []
    for prediction, kinds in zip(predictions, logs, strict=True):
        query = prediction.query
        places = [bias.candidates.index(candidate) for candidate in query.candidates]
        sums, means = (tuple(values[place] for place in places) for values in kinds)
        after = prediction_of(query, prediction.iteration, Scores(sums, means))
        corrections.append(
            Correction(after, {label: by_label[label] for label in query.candidates}, bias.inputs, counted)
        )
    return corrections


_TOGETHER = 256  # different lists of candidates whose texts are scored together

K = TypeVar("K", bound=Hashable)
Candidates = tuple[str, ...]
PredictPlan = Callable[[Sequence[Query], ScoringPlan], Sequence[Sequence[Prediction]]]


def basis_predictions(
    engine: Engine, memories: Sequence[Memory], demonstrations: TokenizedDemonstrations, name: str
) -> list[list[Prediction]] | None:
    """For each memory, the predictions from which `correct_all` estimates the bias of the label words.

    None for a calibration that needs the rows themselves. Raises InputError as `BasisInputs` does.
    """
    if calibration(name).from_rows:
        return None
    queries, tokenized = BasisInputs(name, engine.tokenizer, demonstrations)([demonstrations.labels])
    return predict_plan(engine, memories, queries, engine.plan(tokenized))


def own_candidates(name: str, where: str) -> InputError:
    """The error of a row whose candidates are not the labels of the other rows."""
    usable = ", ".join(other for other, each in CALIBRATIONS.items() if each.own_candidates)
    return InputError(
        f"{where}: has candidates of its own, and --calibrate {name} needs rows with the same ones; use one of {usable}"
    )


class Calibrator:
    """Corrects predictions by each of `names`, except `none`; several iterations are corrected separately.

    A bias from texts is the same for all rows with the same candidates. A bias from rows is that of all rows up to the
    end of a call, so that a stream is corrected as it comes, and rows in a single call by their own bias.
    `predict` scores texts as the predictions were scored, by the same `score`; by default with `memories`, one list for
    each. `warn` is called once for each calibration whose bias is estimated from few rows.
    """

    def __init__(
        self,
        engine: Engine,
        memories: Sequence[Memory],
        demonstrations: TokenizedDemonstrations,
        names: Iterable[str],
        predict: PredictPlan | None = None,
        score: ScoreName = "sum",
        warn: Callable[[str], None] = warn,
    ) -> None:
        self.warn, self.warned = warn, set[str]()
        predict = predict or partial(predict_plan, engine, memories, score=score)
        self._correct: dict[str, _FromRows | _FromTexts] = {}
        for name in names:
            if name != NONE and calibration(name).from_rows:
                self._correct[name] = _FromRows(name, demonstrations.labels)
            elif name != NONE:
                self._correct[name] = _FromTexts(name, engine, demonstrations, predict, score)

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """The predictions with their corrections.

        Raises InputError for a row whose candidates do not allow one, and for a bias of too few rows.
        """
        corrections = {name: correct(predictions) for name, correct in self._correct.items()}
        for name, of in corrections.items():
            if of and name not in self.warned and (doubt := calibration(name).doubt(of[-1].inputs)):
                self.warned.add(name)
                self.warn(doubt)
        return [
            replace(each, calibrated={**each.calibrated, **{name: of[place] for name, of in corrections.items()}})
            for place, each in enumerate(predictions)
        ]

    def count(self, predictions: Sequence[Prediction]) -> None:
        """Count rows that were corrected before, for the biases that are estimated from rows; only scores are used."""
        for correct in self._correct.values():
            if isinstance(correct, _FromRows):
                correct(predictions)


def corrected_rows(calibrator: Calibrator, rows: Sequence[Prediction | Skipped]) -> list[Prediction | Skipped]:
    """The rows with their predictions corrected together; raises as the calibrator does."""
    corrected = iter(calibrator(predicted(rows)))
    return [row if isinstance(row, Skipped) else next(corrected) for row in rows]


class _FromRows:
    """Corrections by a bias that is estimated from all rows so far, for each iteration."""

    def __init__(self, name: str, labels: Candidates) -> None:
        self.name, self.method, self.labels = name, calibration(name), labels
        self.rows: dict[int, _Rows] = {}

    def __call__(self, predictions: Sequence[Prediction]) -> list[Correction]:
        for each in predictions:
            if set(each.query.candidates) != set(self.labels):
                raise own_candidates(self.name, each.query.where or "a row")
        return _by_group(predictions, lambda each: each.iteration, self._group)

    def _group(self, iteration: int, predictions: Sequence[Prediction]) -> list[Correction]:
        rows = self.rows.setdefault(iteration, _Rows(self.method, self.labels))
        bias = rows.add(log_probabilities(predictions, self.labels))
        return corrected(self.method, predictions, bias)


class _Rows:
    """The bias of the rows so far: the mean alone where that is enough, or else their log-probabilities."""

    def __init__(self, method: Calibration, labels: Candidates) -> None:
        self.method, self.labels = method, labels
        self.bias: Bias | None = None
        self.logs: Floats | None = None

    def add(self, logs: Floats) -> Bias:
        """The bias of the rows so far and these (n, 2, C)."""
        if not self.method.averaged:
            self.logs = logs if self.logs is None else np.concatenate([self.logs, logs])
            return estimated(self.method, self.labels, self.logs)
        latest = estimated(self.method, self.labels, logs, 0 if self.bias is None else self.bias.inputs)
        self.bias = latest if self.bias is None else _averaged(self.bias, latest)
        return self.bias


def _averaged(left: Bias, right: Bias) -> Bias:
    """The bias of two sets of inputs together, where b is a mean over the inputs."""
    inputs = left.inputs + right.inputs
    weighted = (each.logs + np.log(each.inputs / inputs) for each in (left, right))
    return Bias(left.candidates, np.logaddexp(*weighted), inputs)


class _FromTexts:
    """Corrections by a bias that is estimated from texts, for each iteration and list of candidates."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        demonstrations: TokenizedDemonstrations,
        predict: PredictPlan,
        score: ScoreName,
    ) -> None:
        self.method, self.engine, self.predict = calibration(name), engine, predict
        self.inputs = BasisInputs(name, engine.tokenizer, demonstrations, score)
        self.labels = demonstrations.labels
        self.shared: dict[tuple[int, Candidates], Bias] = {}  # of the label words, for every call

    def __call__(self, predictions: Sequence[Prediction]) -> list[Correction]:
        if self.labels and not self.shared:
            self.shared = self._biases([self.labels])
        others = list(dict.fromkeys(each.query.candidates for each in predictions))
        others = [candidates for candidates in others if candidates != self.labels]
        biases = dict(self.shared)
        for start in range(0, len(others), _TOGETHER):
            biases |= self._biases(others[start : start + _TOGETHER])
        return _by_group(
            predictions,
            lambda each: (each.iteration, each.query.candidates),
            lambda key, group: corrected(self.method, group, biases[key]),
        )

    def _biases(self, candidates: Sequence[Candidates]) -> dict[tuple[int, Candidates], Bias]:
        """The bias of each iteration for each list of candidates."""
        queries, tokenized = self.inputs(candidates)
        texts, biases = len(self.inputs.texts), {}
        for predictions in self.predict(queries, self.engine.plan(tokenized)):
            for number, each in enumerate(candidates):
                of_texts = predictions[number * texts : (number + 1) * texts]
                biases[of_texts[0].iteration, each] = estimated(self.method, each, log_probabilities(of_texts, each))
        return biases


def _by_group(
    predictions: Sequence[Prediction],
    key: Callable[[Prediction], K],
    correct: Callable[[K, Sequence[Prediction]], list[Correction]],
) -> list[Correction]:
    """The corrections of predictions, in their order, computed for all with the same key together."""
    places: dict[K, list[int]] = {}
    for place, each in enumerate(predictions):
        places.setdefault(key(each), []).append(place)
    corrections: dict[int, Correction] = {}
    for value, group in places.items():
        corrections |= dict(zip(group, correct(value, [predictions[place] for place in group]), strict=True))
    return [corrections[place] for place in range(len(predictions))]
