"""The steps between a row and its scores that are in use, with their options, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.registry import Registry
from deepthink_cli.scoring.prediction import Scores
from deepthink_cli.scoring.score import Score
from deepthink_cli.scoring.step import Step

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import AfterLabel, Ended, TokenizedQuery
    from deepthink_cli.provenance import Provenance, TokenizedDemonstrations


def _check(name: str, value: Any) -> type[Step]:
    if not (isinstance(value, type) and issubclass(value, Step)):
        raise TypeError("not a class of steps")
    return value


STEPS: Registry[type[Step]] = Registry("steps", {"score": Score}, _check)


@dataclass(frozen=True)
class Scoring:
    """The steps in use, in the order of `STEPS`. Made by `of`; `PLAIN`, without steps, is the paper's scoring.

    As text it is `score=end,reread=2`, and empty for `PLAIN`.
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, **options: Any) -> Scoring:
        """The scoring with these options, as in `Scoring.of(score="mean", reread=2)`; None is an option's default.

        Raises InputError for unknown names and wrong values, all at once.
        """
        problems, steps, known = Problems(), list[Step](), set[str]()
        given = {name: value for name, value in options.items() if value is not None}
        for kind in STEPS.values():
            own = {name: given[name] for name in kind.model_fields if name in given}
            known |= own.keys()
            with problems.collected():
                steps.append(kind.checked(**own))
        for name in given.keys() - known:
            problems.add(Problem.of(name, given[name], f"no option of scoring; there are {', '.join(_options())}"))
        problems.raise_any()
        return cls(tuple(step for step in steps if step.recorded))

    def _recorded(self, wanted: Callable[[Step], bool]) -> dict[str, Any]:
        """The options of some steps that do not have their defaults."""
        return {name: value for step in filter(wanted, self.steps) for name, value in step.recorded.items()}

    @property
    def recorded(self) -> dict[str, Any]:
        """The options that do not have their defaults: they identify answers, and are written with them."""
        return self._recorded(lambda step: True)

    @property
    def correctable(self) -> dict[str, Any]:
        """The recorded options that a correction depends on."""
        return self._recorded(lambda step: not step.only_of_rows)

    @property
    def of_states(self) -> dict[str, Any]:
        """The recorded options that hidden states depend on."""
        return self._recorded(lambda step: not (step.only_of_rows or step.only_of_scores))

    @property
    def of_scores(self) -> dict[str, Any]:
        """The recorded options that have no meaning for generated answers: all but those of how queries are written."""
        return self._recorded(lambda step: step.only_of_rows or step.only_of_scores or step.attends)

    @property
    def of_parts(self) -> dict[str, Any]:
        """The recorded options that choose the parts of a memory to which queries attend.

        An engine gives no hidden states with them.
        """
        return self._recorded(lambda step: step.attends)

    def get(self, name: str) -> Any:
        """The value of an option of a step."""
        return self.recorded.get(name, _options()[name])

    def check(self, memory: Provenance, name: str) -> None:
        """Raise InputError, naming the memory, for steps that have no meaning for it, all at once."""
        problems = Problems()
        for step in self.steps:
            with problems.collected():
                step.check(memory, name)
        problems.raise_any()

    def written(self, asked: str) -> str:
        """The text of a query up to the end of its last field, by every step in turn."""
        for step in self.steps:
            asked = step.written(asked)
        return asked

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """The function that gives candidates further tokens, from the first step that has one; None if no step has."""
        return next((ended for step in self.steps if (ended := step.ended(after)) is not None), None)

    def attended(
        self, demonstrations: TokenizedDemonstrations, queries: Sequence[TokenizedQuery]
    ) -> list[tuple[int, ...]] | None:
        """The places of the parts that each query attends to, from the first step that chooses parts; None for all."""
        found = (step.attended(demonstrations, queries) for step in self.steps)
        return next((each for each in found if each is not None), None)

    def compared(self, scores: Scores) -> Scores:
        """The scores whose `sums` are compared, by every step in turn."""
        for step in self.steps:
            scores = step.compared(scores)
        return scores

    @property
    def prefers_short(self) -> bool:
        """Whether a candidate never wins against another one that its tokens begin with."""
        return all(step.prefers_short() for step in self.steps)

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.recorded.items())


PLAIN = Scoring()


def check_stored(stored: Mapping[str, Any], used: Mapping[str, Any], what: str, memory: str, rest: str = "") -> None:
    """Raise InputError unless the options that `what` a memory stores is of are in use; `rest` is another way out."""
    defaults = _options()
    pairs = {name: tuple(each.get(name, defaults.get(name)) for each in (stored, used)) for name in (*stored, *used)}
    different = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if not different:
        return
    before = " and ".join(
        f"without {option(name)}" if value is None else f"of {option(name)} {value}"
        for name, (value, _) in different.items()
    )
    again = f"deepthink calibrate {memory}{as_options(used)}"
    name, (_, now) = next(iter(different.items()))
    reason = f"{what} that {memory} stores is {before}; give the same, store another with {again}{rest}"
    raise InputError.of(name, now, reason)


def as_options(values: Mapping[str, Any]) -> str:
    """Options as they are typed after a command, each with a space before it."""
    return "".join(f" {option(name)} {value}" for name, value in values.items())


def options_of(text: str | None) -> dict[str, str]:
    """The options of a scoring that is written as text; None is `PLAIN`."""
    return dict(each.split("=", 1) for each in (text or "").split(",") if each)


def _options() -> dict[str, Any]:
    """Every option of every step, with its default."""
    return {name: field.default for kind in STEPS.values() for name, field in kind.model_fields.items()}
