"""Run jobs, with results in a folder that can be resumed: the workflow of `deepthink run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepthink_cli.calibration.extended_labels import ExtendedLabels
from deepthink_cli.calibration.notes import check_count
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.engine.opening import find_model, warn_without_chat
from deepthink_cli.errors import Problems
from deepthink_cli.events import Note, Progress, Tell, Warn, silent
from deepthink_cli.experiments.collect import Collector
from deepthink_cli.experiments.distribute import distribute
from deepthink_cli.experiments.executors.base import Executor
from deepthink_cli.experiments.folder import found_in, open_run_folder
from deepthink_cli.experiments.here import run_here
from deepthink_cli.experiments.jobs import PendingJobs, RunJob, SharedRows, prepare_jobs
from deepthink_cli.experiments.observers import RunObserver
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.experiments.prepared import PreparedRun, RunSummary, tell_of_fewer
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.experiments.same_data import check_continues, unchecked
from deepthink_cli.experiments.shards import Shard, Share
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.store import Store
from deepthink_cli.tasks.rows import announce, tell_of_programs


def prepare_request(request: RunRequest, out: Path, tell: Tell = silent) -> PreparedRun:
    """Find the model of a request, plan its run, and check every job; raises as `RunRequest.plan` and `prepare_run`."""
    spec = find_model(request.model, tell)
    return replace(prepare_run(request.plan(), spec, out, tell), request=request)


def prepare_run(
    plan: RunPlan, spec: ModelSpec, out: Path, tell: Tell = silent, shared: SharedRows | None = None
) -> PreparedRun:
    """Read the tasks, and check every job and the rows in the folder, without loading the weights.

    Rows that are `shared` with other runs are not read again. Raises InputError with all mistakes of all tasks, and if
    the folder's rows come from other data.
    """
    warn_without_chat(spec, plan.chat, tell)
    announce(plan.source, plan.tasks, tell)
    problems, prepared = Problems(), list[RunJob | PendingJobs]()
    for number, task in enumerate(plan.tasks):
        tell(Progress("reading tasks", number, len(plan.tasks)))
        with problems.collected():
            prepared += prepare_jobs(plan, spec, task, shared)
    tell(Progress("reading tasks", len(plan.tasks), len(plan.tasks)))
    problems.raise_any()
    tell_of_programs(plan.tasks, tell)
    jobs = [each for each in prepared if isinstance(each, RunJob)]
    pending = [each for each in prepared if isinstance(each, PendingJobs)]
    for each in prepared:
        check_count(plan.options.calibrations, len(each.evaluated))
    tell_of_fewer(jobs, spec, tell)
    _warn_of_extended(plan, prepared, spec, tell)
    run = PreparedRun(plan, jobs, pending, spec, out)
    _check_folder(run, tell)
    return run


def _warn_of_extended(plan: RunPlan, prepared: Sequence[RunJob | PendingJobs], spec: ModelSpec, tell: Tell) -> None:
    """Warn once for each task of labels and candidates that raw scores never choose.

    Raises InputError for a score that needs an end of every label where none is written.
    """
    if plan.options.score == "mean":
        return
    tell = tell if NONE in plan.options.calibrations else silent
    for each in {each.task.name: each for each in reversed(prepared) if each.task.free is None}.values():
        prompt = each.demonstrations if isinstance(each, RunJob) else each.task.prompt
        extended = ExtendedLabels(spec.tokenizer, prompt, plan.options.score, tell, f"task {each.task.name}: ")
        query = next(iter(each.evaluated))
        extended.check_labels(query.text, each.task.labels or (str(query.gold),))
        extended.check_rows(() if each.task.labels else each.evaluated, ())


def _check_folder(prepared: PreparedRun, tell: Tell) -> None:
    """Raise InputError if the folder's rows come from other data; warns if that cannot be checked."""
    rows = found_in(prepared.out)
    if not rows:
        return
    planned = [setting for _, settings in prepared.settings() for setting in settings]
    check_continues(rows, planned)
    if count := unchecked(rows, planned):
        text = (
            f"{prepared.out}: {count} rows were written by an older version, without a digest of the evaluated rows; "
            "whether the evaluated rows have changed since could not be checked"
        )
        tell(Warn(text))


def execute(
    prepared: PreparedRun | Sequence[PreparedRun],
    samples: bool = False,
    observer: RunObserver | None = None,
    tell: Tell = silent,
    store: Store | None = None,
    executor: Executor | None = None,
    shard: Shard | None = None,
) -> RunSummary:
    """Write every missing row of one or several runs into their folder; all writes are crash-safe.

    Without an `executor`, models are loaded in this process, each once. With a `shard`, only its part is done. With
    `samples`, every input's scores are written as well. What methods read of pools is cached in `store`. Raises
    InputError if another process writes the same run, and an error with a line for each unit that could not be done.
    """
    runs = [prepared] if isinstance(prepared, PreparedRun) else list(prepared)
    out, share = runs[0].out, Share(shard)
    with open_run_folder(out, samples) as folder:
        share.begin(out)
        if folder.unsampled:
            text = f"{out}: the samples of {len(folder.unsampled)} rows are missing or damaged"
            tell(Warn(f"{text}; those of this command are made again"))
        collector = Collector(folder, samples, observer or RunObserver(), tell)
        try:
            if executor is None:
                summary = run_here(runs, collector, share, tell, store)
            else:
                summary = distribute(runs, executor, collector, share, tell)
        except KeyboardInterrupt:
            tell(Note(f"{out}: {folder.rows} rows are kept; the same command continues the run"))
            raise
        finally:
            collector.observer.end()
        share.end(out)
    return summary
