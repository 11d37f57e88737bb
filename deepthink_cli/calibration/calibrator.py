"""Correct predictions by a bias that is estimated from texts or from the predictions, or that a memory stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from deepthink_cli.calibration.basis import BasisInputs
from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, STORED, Calibration, calibration, from_rows
from deepthink_cli.corrections import Calibrated, StoredBias
from deepthink_cli.data.examples import Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.text import json_sha256
from deepthink_cli.scoring.pipeline import Chunk, Part, predicted, scored
from deepthink_cli.scoring.prediction import Correction, Counted, Prediction, Scores, prediction_of
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats


SAMPLE, SEED = 10_000, 0  # the most rows of a stream for the estimate of a bias, and the seed of their choice
_TOGETHER = 256  # different lists of candidates whose texts are scored together

K = TypeVar("K", bound=Hashable)
Candidates = tuple[str, ...]


class Calibrator:
    """The corrections of predictions by each of `names`, except `none`; each iteration has its own.

    A bias from rows is of all rows up to the end of a call, or of a sample of them (`_Rows`). A bias from texts is the
    same for all rows with the same candidates; the texts are scored after the same `members` and by the same scoring as
    the rows. The correction `stored` is a bias, the mean of the members' biases, or a head. Without an engine, only
    biases from rows correct; other names are left out. `labels` are the memory's labels.
    """

    def __init__(
        self,
        names: Iterable[str],
        labels: Candidates,
        engine: Engine | None = None,
        members: Sequence[Sequence[Memory]] = (),
        scoring: Scoring = PLAIN,
    ) -> None:
        self._correct: dict[str, Correct] = {}
        for name in names:
            if name in from_rows([name]):
                self._correct[name] = _FromRows(name, labels)
            elif name == STORED and members:
                self._correct[name] = _Stored(members)
            elif name != NONE and engine is not None:
                self._correct[name] = TextBiases(name, engine, members, scoring)

    def corrected(self, parts: Iterable[Part], together: bool = False) -> Iterator[Part]:
        """The chunks with their corrections, as they come; raises as `__call__`.

        With `together`, biases are estimated from all rows: all are in memory then, and come as one part.
        """
        if together and self._correct:
            parts = [list(chain.from_iterable(parts))]
        for part in parts:
            after = iter(self(predicted(part)))
            yield [row if isinstance(row, Skipped) else next(after) for row in part]

    def __call__(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """The predictions with their corrections.

        Raises InputError for a row with candidates that cannot be corrected, and for a bias of too few rows.
        """
        if not self._correct:
            return list(predictions)
        found = {name: correct(predictions) for name, correct in self._correct.items()}
        return [
            replace(each, calibrated={**each.calibrated, **{name: of[place] for name, of in found.items()}})
            for place, each in enumerate(predictions)
        ]

    def count(self, predictions: Sequence[Prediction]) -> None:
        """Add the scores of rows that an earlier call corrected to the biases."""
        for correct in self._correct.values():
            correct(predictions)


@dataclass(frozen=True)
class Bias:
    """log b of C candidates, in nats, estimated from `inputs` texts or rows, as `counted` says.

    `logs` (2, C) corrects the log-probabilities (first) and the log-probabilities per token (second); each is estimated
    from scores of the same kind.
    """

    candidates: tuple[str, ...]
    logs: Floats
    inputs: int
    counted: Counted

    @classmethod
    def of(cls, memory: Memory) -> Bias:
        """The bias that a memory's iteration stores."""
        import numpy as np

        stored = memory.origin.calibrated
        assert stored is not None
        bias = stored.bias[str(memory.iteration)]
        labels = tuple(bias.compared)
        logs = np.array([[kind[label] for label in labels] for kind in (bias.compared, bias.per_token)])
        return cls(labels, logs, stored.inputs, stored.counted)

    @property
    def stored(self) -> StoredBias:
        """The bias as a file holds it, by label."""
        return StoredBias(*(dict(zip(self.candidates, kind.tolist(), strict=True)) for kind in self.logs))


def log_probabilities(predictions: Sequence[Prediction], order: Sequence[str]) -> Floats:
    """The normalised log-probabilities (n, 2, C) of the candidates `order`, by sum and per token."""
    kinds = [(each.scores, each.means) for each in predictions]
    return log_softmax([[[scores[candidate] for candidate in order] for scores in pair] for pair in kinds])


def estimated(
    method: Calibration, candidates: tuple[str, ...], logs: Floats, gold: Sequence[int] | None = None
) -> Bias:
    """The bias that a calibration estimates from the log-probabilities (m, 2, C) of its inputs.

    `gold` (m,) are the places of the true labels, if the calibration needs them.
    """
    import numpy as np

    biases = [method.bias(logs[:, kind], gold) for kind in range(logs.shape[1])]
    return Bias(candidates, np.stack(biases), len(logs), "rows" if method.from_rows else "texts")


def corrected(predictions: Sequence[Prediction], bias: Bias) -> list[Correction]:
    """Subtract a bias from predictions that have its candidates, in any order."""
    sums, means = (log_probabilities(predictions, bias.candidates) - bias.logs).swapaxes(0, 1)
    return corrections(predictions, bias.candidates, sums, means, bias.logs[0], bias.inputs, bias.counted)


def corrections(
    predictions: Sequence[Prediction],
    labels: Candidates,
    sums: Floats,
    means: Floats,
    bias: Floats | None,
    inputs: int,
    counted: Counted,
) -> list[Correction]:
    """The corrections by which `labels`, in any order the candidates of all, have these scores (n, C)."""
    by_label = {} if bias is None else dict(zip(labels, bias.tolist(), strict=True))
    found = []
    for prediction, *kinds in zip(predictions, sums.tolist(), means.tolist(), strict=True):
        candidates = prediction.query.candidates
        places = [labels.index(candidate) for candidate in candidates]
        scores = Scores(*(tuple(values[place] for place in places) for values in kinds))
        after = prediction_of(prediction.query, prediction.iteration, scores)
        of_row = {label: by_label[label] for label in candidates} if by_label else {}
        found.append(Correction(after, of_row, inputs, counted))
    return found


def own_candidates(name: str, where: str) -> InputError:
    """The error of a row whose candidates are not the labels of the other rows."""
    usable = ", ".join(other for other, each in CALIBRATIONS.items() if each.own_candidates)
    given = f"{option('calibrate')} {name} needs the memory's labels"
    reason = "the memory's correction is of its labels" if name == STORED else given
    return InputError(
        f"{where}: has candidates of its own, and {reason}; use {option('calibrate')} {NONE}, or one of {usable}"
    )


def check_candidates(name: str, predictions: Sequence[Prediction], labels: Candidates) -> None:
    """Raise InputError for a prediction whose candidates are not the labels of a bias, in any order."""
    for each in predictions:
        if set(each.query.candidates) != set(labels):
            raise own_candidates(name, each.query.where or "a row")


class _FromRows:
    """Corrections by the bias of all rows so far, for each iteration."""

    def __init__(self, name: str, labels: Candidates) -> None:
        self.name, self.labels = name, labels
        self.rows = defaultdict[int, _Rows](partial(_Rows, calibration(name, labelled=False), labels))

    def __call__(self, predictions: Sequence[Prediction]) -> list[Correction]:
        check_candidates(self.name, predictions, self.labels)
        return _by_group(
            predictions,
            lambda each: each.iteration,
            lambda t, group: corrected(group, self.rows[t].add(log_probabilities(group, self.labels))),
        )


class _Rows:
    """The bias of the rows so far: a running mean if b is a mean, otherwise an estimate from a sample of the rows.

    The rows of the first call are all used. After several calls, every row has the same chance to be among the `SAMPLE`
    rows that are kept, the rows with the smallest random numbers. So a stream of any length takes the same memory, and
    each chunk the same time.
    """

    def __init__(self, method: Calibration, labels: Candidates) -> None:
        import numpy as np

        self.method, self.labels, self.count = method, labels, 0
        self.bias: Bias | None = None
        self.kept = np.empty((0, 2, len(labels)))
        self.drawn, self.draw = np.empty(0), np.random.default_rng(SEED)

    def add(self, logs: Floats) -> Bias:
        """The bias of the rows so far, with these (n, 2, C); raises InputError if they are too few."""
        first, self.count = not self.count, self.count + len(logs)
        self.method.check_count(self.count)
        if not self.method.averaged:
            self._keep(logs)
            return estimated(self.method, self.labels, logs if first else self.kept)
        latest = estimated(self.method, self.labels, logs)
        self.bias = latest if self.bias is None else _averaged(self.bias, latest)
        return self.bias

    def _keep(self, logs: Floats) -> None:
        import numpy as np

        self.kept = np.concatenate([self.kept, logs])
        self.drawn = np.concatenate([self.drawn, self.draw.random(len(logs))])
        if len(self.kept) > SAMPLE:
            least = np.argpartition(self.drawn, SAMPLE)[:SAMPLE]
            self.kept, self.drawn = self.kept[least], self.drawn[least]


def _averaged(left: Bias, right: Bias) -> Bias:
    """The bias of two sets of inputs together, for a b that is a mean over the inputs."""
    import numpy as np

    inputs = left.inputs + right.inputs
    weighted = (each.logs + np.log(each.inputs / inputs) for each in (left, right))
    return Bias(left.candidates, np.logaddexp(*weighted), inputs, left.counted)


class _Stored:
    """Corrections by what memories store: the bias, the mean of the members' biases in an ensemble, or the head."""

    def __init__(self, members: Sequence[Sequence[Memory]]) -> None:
        import numpy as np

        provenance = members[0][0].origin
        assert provenance.calibrated is not None
        self.stored, self.labels, self.biases = (
            provenance.calibrated,
            provenance.demonstrations.labels,
            dict[int, Bias](),
        )
        for memories in zip(*members, strict=True) if self.stored.head is None else ():
            biases = [Bias.of(memory) for memory in memories]
            self.labels = biases[0].candidates
            logs = [each.logs[:, [each.candidates.index(label) for label in self.labels]] for each in biases]
            self.biases[memories[0].iteration] = replace(biases[0], logs=np.mean(logs, axis=0))

    def __call__(self, predictions: Sequence[Prediction]) -> list[Correction]:
        check_candidates(STORED, predictions, self.labels)
        if self.biases:
            return _by_group(
                predictions, lambda each: each.iteration, lambda t, group: corrected(group, self.biases[t])
            )
        found = []
        for each in predictions:
            assert each.by_head is not None
            scores = tuple(each.by_head[label] for label in each.query.candidates)
            after = prediction_of(each.query, each.iteration, Scores(scores, scores))
            found.append(Correction(after, {}, self.stored.inputs, self.stored.counted))
        return found


class TextBiases:
    """Corrections by a bias that is estimated from texts, for each iteration and list of candidates."""

    def __init__(self, name: str, engine: Engine, members: Sequence[Sequence[Memory]], scoring: Scoring) -> None:
        demonstrations = members[0][0].origin.demonstrations
        self.method, self.engine = calibration(name, labelled=False), engine
        self.members, self.scoring = members, scoring
        self.inputs = BasisInputs(name, engine.tokenizer, demonstrations, scoring)
        self.labels = demonstrations.labels
        self.shared: dict[tuple[int, Candidates], Bias] = {}  # the biases of the label words, for every call

    def __call__(self, predictions: Sequence[Prediction]) -> list[Correction]:
        if self.labels and not self.shared:
            self.shared = self.of([self.labels])
        others = list(dict.fromkeys(each.query.candidates for each in predictions))
        others = [candidates for candidates in others if candidates != self.labels]
        biases = dict(self.shared)
        for start in range(0, len(others), _TOGETHER):
            biases |= self.of(others[start : start + _TOGETHER])
        return _by_group(
            predictions,
            lambda each: (each.iteration, each.query.candidates),
            lambda key, group: corrected(group, biases[key]),
        )

    def of(self, candidates: Sequence[Candidates]) -> dict[tuple[int, Candidates], Bias]:
        """The bias of each iteration for each list of candidates."""
        queries, tokenized = self.inputs(candidates)
        chunk = Chunk(queries, self.engine.plan(tokenized), self.scoring)
        predictions = predicted(scored(self.engine, self.members, chunk))
        memories, texts, biases = len(self.members[0]), len(self.inputs.texts), dict[tuple[int, Candidates], Bias]()
        for place in range(memories):
            of_memory = predictions[place::memories]
            for number, each in enumerate(candidates):
                of_texts = of_memory[number * texts : (number + 1) * texts]
                biases[of_texts[0].iteration, each] = estimated(self.method, each, log_probabilities(of_texts, each))
        return biases


def calibrated_by_texts(engine: Engine, memories: Sequence[Memory], name: str, scoring: Scoring = PLAIN) -> Calibrated:
    """The correction that a calibration estimates from texts, through T = 1 and the memories that will be kept.

    Raises InputError for texts that do not fit the tokenizer, and NotFiniteError for scores that are not finite.
    """
    demonstrations = memories[0].origin.demonstrations
    texts = TextBiases(name, engine, [[engine.place(memory) for memory in memories]], scoring)
    biases = {str(t): bias.stored for (t, _), bias in sorted(texts.of([demonstrations.labels]).items())}
    digest = json_sha256([text if isinstance(text, str) else dict(text) for text in texts.inputs.texts])
    count = len(texts.inputs.texts)
    return Calibrated(name, scoring.correctable, biases, count, digest)


def _by_group(
    predictions: Sequence[Prediction],
    key: Callable[[Prediction], K],
    correct: Callable[[K, Sequence[Prediction]], list[Correction]],
) -> list[Correction]:
    """The corrections of predictions, in their order; predictions with the same key are corrected together."""
    places: dict[K, list[int]] = {}
    for place, each in enumerate(predictions):
        places.setdefault(key(each), []).append(place)
    corrections: dict[int, Correction] = {}
    for value, group in places.items():
        corrections |= dict(zip(group, correct(value, [predictions[place] for place in group]), strict=True))
    return [corrections[place] for place in range(len(predictions))]


Correct = _FromRows | TextBiases | _Stored
