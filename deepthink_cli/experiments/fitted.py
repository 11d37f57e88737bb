"""The demonstrations of a job that fit the model: the same ones however the techniques of a run read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.model.limits import SHARE, count_tokens, last_of, max_demonstrations
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import DEEP_THINKING, technique_of


@dataclass(frozen=True)
class Fitted:
    """The last of the drawn demonstrations: as many as fit the model with every technique of a run.

    `plain` is how Deep-Thinking reads them; `members` has what each technique reads: one set, or the orders of an
    ensemble. `bound_by` names the technique with which no more of them fit; None if all do.
    """

    plain: TokenizedDemonstrations
    members: Mapping[str, tuple[TokenizedDemonstrations, ...]]
    bound_by: str | None


def fitted(plan: RunPlan, spec: ModelSpec, job: str, drawn: DemonstrationSet) -> Fitted:
    """The demonstrations that fit T readings and a query after them, the first ones left out first.

    Raises InputError if the last one does not fit with a technique, and for tokens that the model does not know.
    """
    drawn = replace(drawn, template=replace(drawn.template, tokens=plan.options.tokens), chat=plan.chat)
    fit, bound_by = _fitting(plan, spec, job, drawn)
    demonstrations = last_of(drawn, fit)
    (plain,) = _tokenized(plan, spec, job, technique_of(DEEP_THINKING), demonstrations)
    members = {
        each.name: tuple(_tokenized(plan, spec, job, each, demonstrations)) for each in plan.options.chosen_techniques
    }
    return Fitted(plain, members, bound_by)


def _fitting(plan: RunPlan, spec: ModelSpec, job: str, drawn: DemonstrationSet) -> tuple[int, str | None]:
    """How many of the last demonstrations fit with every technique, and the technique that allows no more."""

    @cache
    def tokens(technique: Technique, number: int) -> int:
        readings = technique.sets(last_of(drawn, number))
        return max(count_tokens(spec.tokenizer, reading, reading.examples) for reading in readings)

    fit, agreed, bound_by = len(drawn.examples), 0, None
    for technique in cycle(plan.options.chosen_techniques):  # until all agree: fewer demonstrations can be more tokens
        held = max_demonstrations(
            spec.limits, plan.positions, plan.options.iterations, partial(tokens, technique), fit, SHARE
        )
        if not held:
            raise _none_fits(plan, spec, job, technique.name, tokens(technique, 1))
        fit, agreed, bound_by = (fit, agreed + 1, bound_by) if held == fit else (held, 1, technique.name)
        if agreed == len(plan.options.techniques):
            break
    return fit, bound_by


def _none_fits(plan: RunPlan, spec: ModelSpec, job: str, technique: str, tokens: int) -> InputError:
    largest = spec.limits.largest(plan.positions, plan.options.iterations)
    named = "" if technique == DEEP_THINKING else f" with {option('technique')} {technique}"
    left = "the task" if technique == DEEP_THINKING else f"{technique} or the task"
    return InputError(
        f"{job}: none of its demonstrations fits{named}: the last has {tokens} tokens, {spec.id} holds "
        f"{largest} in T = {plan.options.iterations} readings; omit {left}, or use {option('positions')} "
        "restarted"
    )


def _tokenized(
    plan: RunPlan, spec: ModelSpec, job: str, technique: Technique, demonstrations: DemonstrationSet
) -> Iterator[TokenizedDemonstrations]:
    for reading in technique.sets(demonstrations):
        tokenized = tokenize_demonstrations(spec.tokenizer, reading)
        spec.check_ids(tokenized.token_ids, f"{job}: demonstrations")
        yield tokenized
