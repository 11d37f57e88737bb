"""What to do next with a memory, by what was seen while it was made or evaluated: one sentence for each sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.errors import option

FEW = 0.25  # a label with a smaller share of the rows of the most frequent one has few
FEWEST = 5  # evaluated rows of a label that say anything of it
STRONG = 0.3  # a bias of this part of the way from labels that are equally likely to a certain one
_NAMED = 3  # labels in a sentence


def few_demonstrations(counts: Mapping[str, int]) -> list[str]:
    """Whether labels have few of the demonstrations, given the number that each has."""
    most = max(counts.values(), default=0)
    few = {label: count for label, count in counts.items() if count < FEW * most}
    if not few:
        return []
    return [f"few of the {sum(counts.values())} demonstrations have the labels {_counted(few)}: add rows of them"]


def strong_bias(shares: Mapping[str, float], memory: str) -> list[str]:
    """Whether a label is preferred whatever the input is, given the share of each after texts without content."""
    label = max(shares, key=lambda each: shares[each])
    equal = 1 / len(shares)
    if shares[label] < equal + STRONG * (1 - equal):
        return []
    said = f"{label!r} has {shares[label]:.0%} of the probability after texts without content"
    return [f"{said}: store a correction of that bias with deepthink calibrate {memory} [ROWS]"]


def few_evaluated(true_labels: Mapping[str, int]) -> list[str]:
    """Whether labels have few of the evaluated rows, given the number that each has."""
    few = {label: count for label, count in true_labels.items() if count < FEWEST}
    if not few or len(few) == len(true_labels):
        return []
    return [f"few of the {sum(true_labels.values())} rows have the labels {_counted(few)}: this says little of them"]


def no_better_than_constant(accuracy: float, majority: tuple[str, float] | None, unused_chat: bool) -> list[str]:
    """Whether always answering one label is right as often, given the most frequent true label and its share.

    `unused_chat` says whether the model has a chat template that the memory does not use.
    """
    if majority is None or accuracy > majority[1]:
        return []
    label, share = majority
    conversation = f"a memory made with {option('chat')}, " if unused_chat else ""
    return [
        f"always answering {label!r} is right at least as often ({share:.1%}): compare corrections "
        f"({option('calibrate')} contextual,domain,batch), {conversation}and other models"
    ]


def no_difference(iteration: int, p: float) -> list[str]:
    """Whether chance explains the rows that the last iteration labels otherwise than T = 1, given that probability."""
    if p < 0.05:
        return []
    return [
        f"T = {iteration} and T = 1 are equally good on these rows, within chance: deepthink tune ROWS says if other "
        "settings are shown to be better"
    ]


def _counted(labels: Mapping[str, int]) -> str:
    shown: Sequence[str] = [f"{label!r} ({count})" for label, count in list(labels.items())[:_NAMED]]
    return ", ".join([*shown, *([f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else [])])
