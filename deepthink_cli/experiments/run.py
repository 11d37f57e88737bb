"""Do the runs of an experiment, with results in a folder that can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.experiments.collect import Collector, RunSummary
from deepthink_cli.experiments.distribute import distribute
from deepthink_cli.experiments.executors.base import Executor
from deepthink_cli.experiments.folder import open_run_folder
from deepthink_cli.experiments.here import run_here
from deepthink_cli.experiments.jobs import Prepared, of_runs
from deepthink_cli.experiments.progress import RunEnded, RunsPrepared
from deepthink_cli.experiments.shards import Shard, Share
from deepthink_cli.selection.store import Store


def execute(
    jobs: Sequence[Prepared],
    out: Path,
    samples: bool = False,
    tell: Tell = silent,
    store: Store | None = None,
    executor: Executor | None = None,
    shard: Shard | None = None,
) -> RunSummary:
    """Write every missing row of the jobs of runs into a folder; all writes are crash-safe.

    Without an `executor`, models are loaded in this process, each once. With a `shard`, only its part is done. With
    `samples`, every input's scores are written as well. What methods read of pools is cached in `store`. Raises
    InputError if another process writes the same run, and an error with a line for each unit that could not be done.
    """
    share = Share(shard)
    tell(RunsPrepared(list(of_runs(jobs)), out))
    with open_run_folder(out, samples) as folder:
        share.begin(out)
        if folder.unsampled:
            text = f"{out}: the samples of {len(folder.unsampled)} rows are missing or damaged"
            tell(Warn(f"{text}; those of this command are made again"))
        collector = Collector(folder, samples, tell)
        try:
            if executor is None:
                summary = run_here(jobs, collector, share, tell, store)
            else:
                summary = distribute(jobs, executor, collector, share, tell)
        except KeyboardInterrupt:
            tell(Note(f"{out}: {folder.rows} rows are kept; the same command continues the run"))
            raise
        finally:
            tell(RunEnded())
        share.end(out)
    return summary
