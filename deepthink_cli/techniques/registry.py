"""The techniques by name, as `think --technique` and runs take them, and those of this package.

They read other demonstrations: repeated, with other label words, each alone, in several orders.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import TypeAdapter, ValidationError

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Tell, silent
from deepthink_cli.io.records import place, reason
from deepthink_cli.options import METHOD, Flag, Options, named_by
from deepthink_cli.provenance import RecordedTechnique, TokenizedDemonstrations
from deepthink_cli.registry import Registry, installed, name_and_parameters
from deepthink_cli.techniques.base import Technique, Trained

if TYPE_CHECKING:
    from deepthink_cli.model.spec import ModelSpec

DEEP_THINKING, COMPOSED = "deep-thinking", "composed"
_NUMBER = re.compile(r"0|[1-9]\d{0,3}")


class DeepThinking(Technique):
    """The demonstrations as they are, read T times: a memory and a row record no technique."""

    summary = "T readings with an update rule"
    source = "Yang et al. 2023, arXiv 2305.13016, section 3.1"
    cost = "T passes over L tokens"

    def recorded(self, words: object = None) -> RecordedTechnique | None:
        """None."""
        return None


class Repeated(Technique):
    """All demonstrations several times, block after block, each block in their order."""

    summary = "the demonstrations R times in the context"
    source = "an objection to the paper, DAMO-ConvAI issue 51"
    cost = "a context of R L tokens, in each of T passes"
    parameter = "R"

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations R times."""
        return replace(demonstrations, examples=demonstrations.examples * self.number)

    @property
    def copies(self) -> int:
        """R."""
        return self.number


class Flipped(Technique):
    """The next label of the list in place of each label, and the first in place of the last."""

    summary = "the next label in place of each label"
    source = "Wei et al. 2023, arXiv 2303.03846"
    other_words = True

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations with the labels shifted by one; raises InputError for rows without common labels."""
        labels = _labels(demonstrations, self.option)
        return replace(demonstrations, words=dict(zip(labels, (*labels[1:], labels[0]), strict=True)))


# Names of things that no task of this package is about, in the order in which labels get them.
FRESH = (
    *("lamp", "spoon", "gravel", "violin", "anchor", "button", "candle", "ladder", "pillow", "walnut"),
    *("saddle", "kettle", "marble", "ribbon", "bucket", "feather", "hammer", "blanket", "basket", "mirror"),
)


class Fresh(Technique):
    """Unrelated words in place of the labels: the first of `FRESH` that are no labels."""

    summary = "unrelated words in place of the labels"
    source = "Wei et al. 2023, arXiv 2303.03846"
    other_words = True

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations with unrelated words; raises InputError for more labels than words, or none in common."""
        labels = _labels(demonstrations, self.option)
        taken = {label.casefold() for label in labels}
        words = [word for word in FRESH if word not in taken]
        if len(labels) > len(words):
            raise InputError(
                self.option.because(f"{len(labels)} labels, and there are {len(words)} words; use fewer labels")
            )
        return replace(demonstrations, words=dict(zip(labels, words, strict=False)))


class Composed(Technique):
    """Every demonstration alone, T times, and one memory of all their keys and values.

    Each has the positions 0, 1, ... and the special tokens of a text, so that its keys and values do not depend on the
    others; queries have positions L onward, as after any memory.
    """

    summary = "each demonstration read alone, all of them one memory"
    source = "Yang et al. 2025, arXiv 2502.05431"
    cost = "T passes over L tokens, each of which attends to its own demonstration"

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations apart; raises InputError for turns of a conversation."""
        if demonstrations.chat is not None:
            raise InputError(
                self.option.because(f"turns of a conversation cannot be read alone; omit {option('chat')}")
            )
        return replace(demonstrations, apart=True)

    def check(self, spec: ModelSpec, demonstrations: TokenizedDemonstrations, tell: Tell = silent) -> None:
        """Raise InputError if a token's place in the memory has a meaning, or all parts do not fit the model."""
        total, limits = sum(demonstrations.parts), spec.limits.after(demonstrations)
        if limits.relative:
            raise InputError(
                f"{spec.id}: its positions follow from the number of earlier tokens, which differs from part to part; "
                "read the demonstrations together, without composing them"
            )
        most = limits.max_tokens()
        if most is not None and total >= most:
            raise InputError(
                f"{total} tokens in all parts, {spec.id} holds {most} ({limits.reason()}) with a query; compose fewer "
                "demonstrations"
            )


class Ensemble(Technique):
    """Several memories of the demonstrations in different orders, the first in the given one."""

    summary = "the mean log-probability over N memories, of the demonstrations in different orders"
    source = "common practice"
    cost = "N times the cost of Deep-Thinking"
    parameter = "N"
    largest = 999

    @property
    def members(self) -> int:
        """N."""
        return self.number

    def sets(self, demonstrations: DemonstrationSet) -> Iterator[DemonstrationSet]:
        """The orders."""
        yield demonstrations
        examples = demonstrations.examples
        for order in range(1, self.number):
            yield replace(demonstrations, examples=tuple(random.Random(order).sample(examples, len(examples))))


def _labels(demonstrations: DemonstrationSet, named: Problem) -> tuple[str, ...]:
    """The labels; raises InputError if every row has candidates of its own."""
    if not demonstrations.labels:
        raise InputError(named.because("every demonstration has candidates of its own; use rows with common labels"))
    return demonstrations.labels


def _check(name: str, kind: Any) -> type[Technique]:
    if not (isinstance(kind, type) and issubclass(kind, Technique)):
        raise TypeError("not a subclass of Technique")
    if missing := getattr(kind, "__abstractmethods__", ()):
        raise TypeError(f"lacks {', '.join(sorted(missing))}")
    return kind


TECHNIQUES: Registry[type[Technique]] = Registry(
    "techniques",
    {
        DEEP_THINKING: DeepThinking,
        "repeat": Repeated,
        "flipped": Flipped,
        "fresh": Fresh,
        COMPOSED: Composed,
        "ensemble": Ensemble,
    },
    _check,
)


def find(name: str) -> Technique | None:
    """The technique of this name, as in `repeat-5`; None for an unknown name."""
    kind = TECHNIQUES.get(name)
    if kind is not None and kind.parameter is None:
        return kind(name)
    family, _, number = name.rpartition("-")
    kind = TECHNIQUES.get(family)
    if kind is None or kind.parameter is None or not _NUMBER.fullmatch(number):
        return None
    return kind(name, int(number)) if kind.smallest <= int(number) <= kind.largest else None


def find_recorded(recorded: RecordedTechnique | str | None) -> Technique | None:
    """The technique in the record of a memory or a row, with its default parameters.

    None for Deep-Thinking alone, and for a technique that is not installed.
    """
    return None if recorded is None else find(str(recorded).partition(" ")[0])


def trains(recorded: RecordedTechnique | str | None) -> bool:
    """Whether the technique in the record of a memory or a row trains the memory of one reading."""
    return isinstance(find_recorded(recorded), Trained)


def technique_of(text: str, in_run: bool = False) -> Technique:
    """The technique that a text names, as `ct-kv` or `ct-kv:steps=50,lr=0.01`.

    Raises InputError for an unknown technique, for wrong parameters, and, unless `in_run`, for a technique that makes
    several memories.
    """
    found = find(text.partition(":")[0].strip())
    if found is None or (found.members > 1 and not in_run):
        raise InputError.of("technique", text, f"use {names(in_run)}")
    try:
        return _with(found, name_and_parameters(text)[1])
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError.of("technique", text, f"{place(first)}: {reason(first)}") from error
    except ValueError as error:
        raise InputError.of("technique", text, str(error)) from error


def _with(technique: Technique, parameters: Mapping[str, str]) -> Technique:
    """The technique with these parameters; raises ValueError for unknown parameters and wrong values."""
    own = [field.name for field in fields(technique) if field.name not in Technique.__dataclass_fields__]
    for name in parameters:
        if name not in own:
            known = f"its parameters are {', '.join(own)}" if own else "it has no parameters"
            raise ValueError(f"no parameter {name!r}; {known}")
    if not parameters:
        return technique
    kind: TypeAdapter[Technique] = TypeAdapter(type(technique))
    return kind.validate_python({**asdict(technique), **parameters})


def sample(family: str) -> Technique:
    """The technique of a registered name, with its smallest number, if any: `repeat-2` for `repeat`."""
    kind = TECHNIQUES[family]
    return kind(family) if kind.parameter is None else kind(f"{family}-{kind.smallest}", kind.smallest)


def samples(in_run: bool = False) -> list[Technique]:
    """A technique of every family that `think`, or with `in_run` a run, takes."""
    found = [sample(family) for family, _ in TECHNIQUES.items()]
    return [each for each in found if in_run or each.members == 1]


def names(in_run: bool = False) -> str:
    """The names that `think`, or with `in_run` a run, takes, for messages."""
    return ", ".join(
        each.family if each.parameter is None else f"{each.family} with {each.parameter} from {each.smallest}"
        for each in samples(in_run)
    )


def first_reading(recorded: RecordedTechnique | None) -> str:
    """The meaning of a memory's T = 1, in words: plain in-context learning only without a technique."""
    if recorded is None:
        return "plain in-context learning"
    return "one reading, then trained" if trains(recorded) else f"one reading with {recorded}"


def _described(techniques: Iterable[Technique]) -> str:
    return "; ".join(f"{each.family}: {each.summary}" for each in techniques)


_OTHERS = [each for each in map(sample, TECHNIQUES.own) if each.members == 1 and each.name != DEEP_THINKING]
_TRAINED = [each for each in _OTHERS if isinstance(each, Trained)]
_CONTROLS = [each for each in _OTHERS if each not in _TRAINED]


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, with its parameters."""

    technique: Annotated[
        str,
        named_by(technique_of),
        Flag(
            METHOD,
            f"{DEEP_THINKING}; {_described(_TRAINED)}; or a control, also with -T: "
            f"{_described(_CONTROLS)}{installed(TECHNIQUES)}.",
            "NAME[:PARAMETER=VALUE,...]",
            variable=False,
        ),
    ] = DEEP_THINKING

    @property
    def chosen(self) -> Technique:
        """The technique with its parameters."""
        return technique_of(self.technique)
