"""What a study takes, model by model; nothing is downloaded or written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Tell, once
from deepthink_cli.experiments.estimate import Estimate, estimate_runs
from deepthink_cli.experiments.experiment import run_tasks
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.prepare import prepare
from deepthink_cli.experiments.results import grouped
from deepthink_cli.io.hub import NotInCache
from deepthink_cli.plugins.study.crossing import Crossing, shown


def plan_models(crossing: Crossing, out: Path, may_load: bool, tell: Tell) -> Iterator[tuple[str, int, Estimate]]:
    """The name, the number of runs and the estimate of every model; with `may_load`, models that are here are timed."""
    tell = once(tell)
    for name, boxes in grouped(crossing.boxes, lambda box: shown(box["models"][0])).items():
        offline = boxes[0]["models"][0].model_copy(update={"offline": True})
        runs = replace(crossing, boxes=[{**box, "models": (offline,)} for box in boxes]).runs
        try:
            estimate = estimate_runs(prepare(runs, out, tell), out, may_load, tell)
        except DeepThinkError as error:
            absent = "the model, or its data, is not on this machine, and a plan downloads nothing"
            reason = absent if isinstance(error, NotInCache) else error.messages[0]
            rows = sum(
                len(run_tasks(run.tasks)) * len(run.seeds) * max(1, len(run.demos_by)) * run.rows_of_job(technique)
                for run in runs
                for technique in run.chosen_techniques
            )
            written = min(rows, sum(row.setting.model == offline.model for row in found_in(out)))
            estimate = Estimate(rows - written, written, reason=reason)
        yield name, len(boxes), estimate
