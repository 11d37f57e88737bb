"""Store the weight of a memory's first token: the work of `deepthink calibrate --first-token`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import Header, read_header
from deepthink_cli.calibrate_memory import predictions_of
from deepthink_cli.calibration.options import Criterion, weight_or_criterion
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.calibration.stored import rows_digest
from deepthink_cli.corrections import FirstToken
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.scoring.softmax import log_share
from deepthink_cli.tasks.evaluated import EvaluatedRows, rows_of_file

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

WEIGHTS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)  # the weights that are tried


@dataclass(frozen=True)
class Trial:
    """The results of one weight: means over the rows, by the shares p of the candidates.

    `entropy` is -sum p log p in nats. `log_likelihood` is log p of the true label, and `accuracy` the share of rows
    that are labelled correctly; both are None if the labels were not read.
    """

    weight: float
    entropy: float
    log_likelihood: float | None = None
    accuracy: float | None = None

    def __str__(self) -> str:
        text = f"weight {self.weight:g}: entropy {self.entropy:.4f} nats"
        if self.accuracy is None or self.log_likelihood is None:
            return text
        return f"{text}, log-likelihood {self.log_likelihood:.4f} nats, accuracy {self.accuracy:.1%}"


@dataclass(frozen=True)
class Weighed:
    """The header of the written file, and the trials; empty if the weight was given."""

    header: Header
    trials: tuple[Trial, ...] = ()


def weigh_first_token(
    memory: str | Path,
    rows: str | Path | RowSource | None = None,
    output: str | Path | None = None,
    *,
    first_token: str | float,
    scoring: Scoring = PLAIN,
    limit: int | None = None,
    options: ModelOptions | None = None,
    tell: Tell = silent,
) -> Weighed:
    """Write a memory with a weight of its first token, which then applies wherever the memory is attended to.

    ZeroTuning (Han et al. 2025, arXiv:2505.11739), with one weight for all heads and layers.

    Args:
        memory: a memory file; the weight is the same for all its iterations, and chosen by the last one.
        rows: a file of rows like those to be labelled, if the weight is chosen; demonstrations among them are left out.
        output: the new file; without it, the memory's own file is replaced. The tensors stay as they are.
        first_token: a weight, of which 1 removes a stored one; `labels` chooses the highest likelihood of the true
            labels, `entropy` the least entropy of the predictions, whose rows need no labels.
        scoring: the scoring of the rows.
        limit: a number of rows, of which a fixed sample is then used.
        options: how to load the model that made the memory; unset options are taken from the memory.
        tell: called with every event.

    A stored correction, which holds for the former weight, is removed. Raises InputError for a memory, rows or a weight
    that do not fit each other, and as `open_memory` does.
    """
    chosen, output = weight_or_criterion(str(first_token)), memory if output is None else output
    if isinstance(chosen, float):
        if rows is not None:
            raise InputError.of("first_token", first_token, "is not chosen by rows; omit them, or give labels")
        for field, value in scoring.recorded.items():
            raise InputError.of(field, value, "has no meaning for a weight that is given; omit it")
        return Weighed(_save(memory, FirstToken(chosen), output, tell))
    if rows is None:
        raise InputError.of("first_token", chosen, "chooses by rows; give a file of them, or give a weight")
    if scoring.of_parts:
        raise InputError.of("first_token", chosen, f"is of a whole memory, and a query may not attend to it: {scoring}")
    scorer = Scorer.open(memory, scoring=scoring, calibrate=(NONE,))
    if scorer.gives_several:
        raise InputError.of(
            "first_token",
            chosen,
            f"chooses by the one label of a row, and those of {scorer.memory.name} may have several; give a weight",
        )
    evaluated = rows_of_file(scorer.memory, rows, limit, labelled=chosen == "labels")
    spec = scorer.find(options, tell)
    scorer.check_tokens(spec, evaluated.source or evaluated.split, evaluated.checked)
    trials, first = _tried(scorer.load(spec, tell), evaluated, chosen, tell)
    return Weighed(_save(memory, first, output, tell), trials)


def _save(memory: str | Path, first: FirstToken, output: str | Path, tell: Tell) -> Header:
    from deepthink_cli.artifact.files import save_first_token

    header = read_header(memory)
    metadata = header.metadata
    if metadata.calibrated is not None or metadata.thresholds is not None:
        stored = "correction" if metadata.thresholds is None else "thresholds"
        tell(
            Note(
                f"left out, since of scores with the weight before: the {stored} of {memory}; store it again with "
                f"deepthink calibrate {output}"
            )
        )
    return save_first_token(header, None if first.weight == 1 else first, output)


def _tried(
    loaded: Loaded, rows: EvaluatedRows, criterion: Criterion, tell: Tell
) -> tuple[tuple[Trial, ...], FirstToken]:
    """The trials of all weights, and the weight that the criterion chooses; among equals, the weight nearest to 1."""
    ((memory,),) = loaded.members
    placed, source = loaded.engine.place(memory), Path(rows.split).name  # all weights share one copy
    weighted = [_weighted(placed, weight) for weight in WEIGHTS]
    found = list(predictions_of(Loaded(loaded.scorer, loaded.engine, [weighted]), rows, tell))
    if not found:
        raise InputError(f"{source}: no row is left to choose a weight by; give rows that the memory has not read")
    labelled, count = criterion == "labels", len(WEIGHTS)
    trials = tuple(trial(weight, found[place::count], labelled) for place, weight in enumerate(WEIGHTS))
    queries = [each.query for each in found[::count]]
    digest = rows_digest(queries, labelled)
    return trials, FirstToken(best(trials).weight, criterion, WEIGHTS, len(queries), digest, source)


def _weighted(memory: Memory, weight: float) -> Memory:
    assert memory.provenance is not None
    return replace(memory, provenance=replace(memory.provenance, first_token=FirstToken(weight)))


def trial(weight: float, predictions: Sequence[Prediction], labelled: bool) -> Trial:
    """The results of one weight, from the predictions of the rows."""
    entropy = _mean(_entropy(each.scores.values()) for each in predictions)
    if not labelled:
        return Trial(weight, entropy)
    true = [str(each.query.gold) for each in predictions]
    pairs = list(zip(predictions, true, strict=True))
    likelihood = _mean(log_share(each.scores[gold], each.scores.values()) for each, gold in pairs)
    return Trial(weight, entropy, likelihood, _mean(each.label == gold for each, gold in pairs))


def best(trials: Iterable[Trial]) -> Trial:
    """The trial with the highest likelihood of the true labels, or, without labels, with the least entropy."""
    return min(
        trials,
        key=lambda each: (
            each.entropy if each.log_likelihood is None else -each.log_likelihood,
            abs(math.log(each.weight)),
        ),
    )


def _entropy(scores: Iterable[float]) -> float:
    values = list(scores)
    logs = [log_share(value, values) for value in values]
    return -sum(math.exp(log) * log for log in logs)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
