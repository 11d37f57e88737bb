"""Advice for the next step with a memory, from its making or its evaluation: one sentence for each sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.errors import option

FEW = 0.25  # a label has few rows below this part of the most frequent label's rows
FEWEST = 5  # the fewest evaluated rows for a statement about a label
STRONG = 0.3  # a strong bias, as a part of the way from equally likely labels to a certain label
_NAMED = 3  # labels in a sentence


def few_demonstrations(counts: Mapping[str, int]) -> list[str]:
    """Advice if labels have few demonstrations; `counts` is the number of each label's demonstrations."""
    most = max(counts.values(), default=0)
    few = {label: count for label, count in counts.items() if count < FEW * most}
    if not few:
        return []
    return [f"few of the {sum(counts.values())} demonstrations have the labels {_counted(few)}: add rows of them"]


def strong_bias(shares: Mapping[str, float], memory: str) -> list[str]:
    """Advice if a label is preferred whatever the input; `shares` are the shares after texts without content."""
    label = max(shares, key=lambda each: shares[each])
    equal = 1 / len(shares)
    if shares[label] < equal + STRONG * (1 - equal):
        return []
    said = f"{label!r} has {shares[label]:.0%} of the probability after texts without content"
    return [f"{said}: store a correction of that bias with deepthink calibrate {memory} [ROWS]"]


def few_evaluated(true_labels: Mapping[str, int]) -> list[str]:
    """Advice if labels have few evaluated rows; `true_labels` is the number of each label's rows."""
    few = {label: count for label, count in true_labels.items() if count < FEWEST}
    if not few or len(few) == len(true_labels):
        return []
    return [f"few of the {sum(true_labels.values())} rows have the labels {_counted(few)}: this says little of them"]


def no_better_than_constant(accuracy: float, majority: tuple[str, float] | None, unused_chat: bool) -> list[str]:
    """Advice if a constant answer is right as often; `majority` is the most frequent true label and its share.

    `unused_chat`: the model has a chat template that the memory does not use.
    """
    if majority is None or accuracy > majority[1]:
        return []
    label, share = majority
    if share == 1:
        return [f"all rows have the label {label!r}: give rows of the others"]
    conversation = f"a memory made with deepthink think {option('chat')}, " if unused_chat else ""
    return [
        f"always answering {label!r} is right at least as often ({share:.1%}): compare corrections "
        f"({option('calibrate')} contextual,domain,batch), {conversation}and other models"
    ]


def no_difference(iteration: int, p: float) -> list[str]:
    """Advice if chance, with probability `p`, explains the differences between the last iteration and T = 1."""
    if p < 0.05:
        return []
    return [
        f"T = {iteration} and T = 1 are equally good on these rows, within chance: deepthink tune ROWS says if other "
        "settings are shown to be better"
    ]


def _counted(labels: Mapping[str, int]) -> str:
    shown: Sequence[str] = [f"{label!r} ({count})" for label, count in list(labels.items())[:_NAMED]]
    return ", ".join([*shown, *([f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else [])])
