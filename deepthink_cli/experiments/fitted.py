"""The demonstrations of a job that fit the model: the same ones however the techniques of a run read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import cycle

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.plan import Run
from deepthink_cli.model.limits import SHARE, count_tokens, last_of, max_demonstrations
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import DEEP_THINKING


def fitted(run: Run, job: str, drawn: DemonstrationSet) -> tuple[DemonstrationSet, str | None]:
    """The last of the drawn demonstrations: as many as fit T readings and a query with every technique of the run.

    Also the name of the technique with which no more of them fit; None if all do. Raises InputError if the last one
    does not fit with a technique.
    """
    drawn = replace(drawn, template=replace(drawn.template, tokens=run.options.tokens), chat=run.chat)
    tokenizer, limits, iterations = run.spec.tokenizer, run.spec.limits, run.options.iterations

    @cache
    def tokens(technique: Technique, number: int) -> int:
        readings = technique.sets(last_of(drawn, number))
        return max(count_tokens(tokenizer, reading, reading.examples) for reading in readings)

    fit, agreed, bound_by = len(drawn.examples), 0, None
    for technique in cycle(run.options.chosen_techniques):  # until all agree: fewer demonstrations can be more tokens
        held = max_demonstrations(limits, run.positions, iterations, partial(tokens, technique), fit, SHARE)
        if not held:
            raise _none_fits(run, job, technique.name, tokens(technique, 1))
        fit, agreed, bound_by = (fit, agreed + 1, bound_by) if held == fit else (held, 1, technique.name)
        if agreed == len(run.options.techniques):
            break
    return last_of(drawn, fit), bound_by


def _none_fits(run: Run, job: str, technique: str, tokens: int) -> InputError:
    largest = run.spec.limits.largest(run.positions, run.options.iterations)
    named = "" if technique == DEEP_THINKING else f" with {option('technique')} {technique}"
    left = "the task" if technique == DEEP_THINKING else f"{technique} or the task"
    return InputError(
        f"{job}: none of its demonstrations fits{named}: the last has {tokens} tokens, {run.spec.id} holds "
        f"{largest} in T = {run.options.iterations} readings; omit {left}, or use {option('positions')} "
        "restarted"
    )


def tokenized(
    run: Run, job: str, technique: Technique, demonstrations: DemonstrationSet
) -> Iterator[TokenizedDemonstrations]:
    """What a technique reads: one set, or the orders of an ensemble; raises InputError for tokens that are unknown."""
    for reading in technique.sets(demonstrations):
        found = tokenize_demonstrations(run.spec.tokenizer, reading)
        run.spec.check_ids(found.token_ids, f"{job}: demonstrations")
        yield found
