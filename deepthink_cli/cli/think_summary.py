"""What `deepthink think` says of a memory: model, template, labels and length before the readings, results after."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.io.text import size

if TYPE_CHECKING:
    from deepthink_cli.provenance import TokenizedDemonstrations
    from deepthink_cli.workflows.think import ThinkPlan, ThinkResult

LABELS, CHARACTERS = 8, 60  # of the labels, and of each field of the example, that are shown


def planned(plan: ThinkPlan, chosen_field: bool) -> list[str]:
    """The lines before the readings; `chosen_field` says that the label field was not named but taken as the last."""
    demonstrations, method = plan.demonstrations, plan.options.method
    field = demonstrations.template.label_field
    whence = f" (field {field!r}, the last one; --label-field NAME for another)" if chosen_field else ""
    length = f"{len(demonstrations.examples)} demonstrations, L = {len(demonstrations.token_ids)} tokens"
    readings = "one reading" if method.iterations == 1 else f"{method.iterations} readings, {method.update}"
    work = readings if plan.tuning is None else f"one reading, then {plan.tuning.steps} training steps"
    return [
        f"model     {plan.spec.id}",
        f"template  {example(demonstrations)}",
        f"labels    {_labels(demonstrations)}{whence}",
        f"reads     {length}; {work}",
    ]


def example(demonstrations: TokenizedDemonstrations) -> str:
    """The first demonstration in its template, with long fields shortened."""
    template, first = demonstrations.template, demonstrations.examples[0]
    texts = {name: _short(value) for name, value in template.values(first.text).items()}
    return template.query(texts) + demonstrations.word(first.label)


def counts(demonstrations: TokenizedDemonstrations) -> dict[str, int]:
    """How many demonstrations have each label, as the model reads it; empty if they have their own candidates."""
    counted = Counter(each.label for each in demonstrations.examples)
    return {demonstrations.word(label): counted[label] for label in demonstrations.labels}


def _labels(demonstrations: TokenizedDemonstrations) -> str:
    by_label = counts(demonstrations)
    if not by_label:
        return "every row has candidates of its own"
    shown = [f"{count} {_short(label)}" for label, count in list(by_label.items())[:LABELS]]
    return ", ".join(shown) + (f", ... ({len(by_label)} labels)" if len(by_label) > LABELS else "")


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 3] + "..."


def done(plan: ThinkPlan, result: ThinkResult, output: Path) -> list[str]:
    """The lines after the readings: their time and the file."""
    readings, seconds = plan.options.iterations, result.seconds
    speed = f"{readings * len(plan.demonstrations.token_ids) / seconds:,.0f} tokens/s"
    times = "once" if readings == 1 else f"{readings} times"
    took = f"read {times} in {seconds:.1f} s, {speed}"
    if plan.tuning is not None:
        count = len(plan.demonstrations.examples)
        took = f"trained on {count} demonstrations in {plan.tuning.steps} steps, {seconds:.1f} s"
    return [took, f"wrote {output} ({size(result.header.size)}, iteration {', '.join(map(str, plan.kept))})"]


def as_json(plan: ThinkPlan, warnings: list[str]) -> dict[str, Any]:
    """What `think --json` has beside the memory's metadata."""
    return {
        "label_field": plan.demonstrations.template.label_field,
        "label_counts": counts(plan.demonstrations),
        "example": example(plan.demonstrations),
        "warnings": warnings,
    }
