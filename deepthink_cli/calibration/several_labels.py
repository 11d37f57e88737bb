"""A head for rows with several labels: for each label, the rows that have it against the rest.

With the head of two labels, y and not y, that `discriminants` fits to hidden states alone,

    score(y) = score of y - score of not y,    share(y) = 1 / (1 + exp(-score(y))),

so that the share of a label does not depend on the other labels. The thresholds of the shares are fitted to shares of
rows that the head has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.calibration.discriminants import discriminants
from deepthink_cli.calibration.labelled import LEAST, states_of
from deepthink_cli.calibration.registry import HEAD
from deepthink_cli.corrections import Head, Thresholds
from deepthink_cli.data.same_input import input_groups, parted
from deepthink_cli.errors import InputError
from deepthink_cli.multilabel import thresholds_of
from deepthink_cli.scoring.heads import LinearHead, observed_layers
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import Scoring

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats

    Bools = NDArray[bool_]


def thresholds_with_head(
    rows: Sequence[Sequence[Prediction]], memories: Sequence[Memory], source: str, scoring: Scoring
) -> Thresholds:
    """The head and the thresholds that rows give, which were observed after each of `memories`.

    The memories are T = 1 and the kept iterations. Raises InputError, naming the `source` of the rows, for too few.
    """
    import numpy as np

    provenance = memories[0].origin
    template, labels = provenance.demonstrations.template, provenance.demonstrations.labels
    queries = [each.query for each in rows[0]] if rows else []
    groups = input_groups(queries, template, labels)
    true = [template.labels_of(query.gold or "") for query in queries]
    has_NC = np.array([[label in of_row for label in labels] for of_row in true]).reshape(-1, len(labels))
    _check_counts(has_NC, groups, labels, source)
    layers, heads, predictions = observed_layers(len(memories[0].keys)), dict[str, Head](), list[Prediction]()
    for memory, measured in zip(memories, rows, strict=True):
        states = states_of(measured)
        assert states is not None
        head = each_against_rest(states, has_NC, groups)
        heads[str(memory.iteration)] = head.stored(layers, labels, apart=True)
        held_out = _held_out(states, has_NC, groups).tolist()
        for each, found in zip(measured, held_out, strict=True):
            predictions.append(replace(each, by_head=dict(zip(labels, found, strict=True))))
    return thresholds_of(predictions, provenance, source, scoring, heads)


def each_against_rest(states: Floats, has: Bools, groups: Sequence[int]) -> LinearHead:
    """The head of hidden states (n, L, W) of rows; `has` (n, C) says whether a row has a label."""
    import numpy as np

    nothing = np.zeros((len(has), 2))  # label scores that say nothing
    heads = [discriminants(states, nothing, of_label.astype(int).tolist(), groups) for of_label in has.T]
    weights = np.stack([head.weights[1] - head.weights[0] for head in heads])
    return LinearHead(weights, np.stack([head.bias[1] - head.bias[0] for head in heads]))


def _held_out(states: Floats, has: Bools, groups: Sequence[int]) -> Floats:
    """The scores (n, C) of rows by the head of the rows outside their fold."""
    import numpy as np

    found = np.zeros(has.shape)
    for own, rest in parted([""] * len(has), groups):
        head = each_against_rest(states[rest], has[rest], [groups[row] for row in rest])
        found[own] = head.scores(states[own], found[own])
    return found


def _check_counts(has: Bools, groups: Sequence[int], labels: Sequence[str], source: str) -> None:
    """Raise InputError, naming the `source` of rows, for a label that too few inputs have, or do not have."""
    for label, of_label in zip(labels, has.T, strict=True):
        for side, words in ((True, "with"), (False, "without")):
            inputs = {group for group, own in zip(groups, of_label, strict=True) if own == side}
            if len(inputs) < LEAST:
                raise InputError(
                    f"{source}: inputs {words} the label {label!r}: {len(inputs)}; {HEAD} needs {LEAST}, give more"
                )
