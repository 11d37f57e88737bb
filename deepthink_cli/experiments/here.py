"""Do runs in this process: models one after another, each loaded once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import describe_engine, load
from deepthink_cli.events import Progress, Tell
from deepthink_cli.experiments.collect import Collector, RunSummary
from deepthink_cli.experiments.jobs import Job, PendingJobs, Prepared, known, of_models, of_runs, pending
from deepthink_cli.experiments.runner import check_ids, max_tokens_together, work
from deepthink_cli.experiments.shards import Share
from deepthink_cli.experiments.units import Planner
from deepthink_cli.selection.store import Store


def run_here(
    jobs: Sequence[Prepared], collector: Collector, share: Share, tell: Tell, store: Store | None
) -> RunSummary:
    """Load each model and write the missing rows of its runs; raises what a job raises."""
    planner, seconds = Planner(collector.folder, share, share.of, tell), 0.0
    for of_model in of_models(jobs).values():
        engine = load(of_model[0].run.spec, tell)
        describe_engine(engine, tell, always=True)
        started = time.perf_counter()
        for of_run in of_runs(of_model).values():
            _write(of_run, engine, planner, collector, store)
        seconds += time.perf_counter() - started
        del engine  # before the next model is loaded
    return RunSummary(str(collector.folder.folder), planner.rows, collector.written, collector.inputs, seconds)


def _write(
    jobs: Sequence[Prepared], engine: Engine, planner: Planner, collector: Collector, store: Store | None
) -> None:
    """Write the missing rows of a run."""
    to_choose, found = pending(jobs), known(jobs)
    if to_choose:
        tasks = {unit.task for unit in planner.pending(to_choose, engine.identity)}
        found = _chosen([each for each in to_choose if each.task.name in tasks], engine, planner.tell, store)
    units = planner.known(found, engine.identity, max_tokens_together(engine), is_mine=bool(to_choose))
    check_ids(engine, (job for _, wanted in units for job in wanted))
    for unit, wanted in units:
        for event in work(engine, wanted, collector.samples):
            collector.happened(unit.digest, event)


def _chosen(jobs: Sequence[PendingJobs], engine: Engine, tell: Tell, store: Store | None) -> list[Job]:
    """The jobs whose demonstrations are chosen now: once for each task, seed and method."""
    chosen = list[Job]()
    for number, each in enumerate(jobs):
        tell(Progress("choosing demonstrations", number, len(jobs), {"method": each.request.method}))
        chosen += each.jobs(engine, store)
    if jobs:
        tell(Progress("choosing demonstrations", len(jobs), len(jobs), {"method": ""}))
    return chosen
