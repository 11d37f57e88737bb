"""`deepthink study run`: do the runs of a study, into one folder that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import Show
from deepthink_cli.cli.data_options import Cache
from deepthink_cli.cli.executor_options import ExecutorArguments
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.output_options import Log, tracked, tracking_of
from deepthink_cli.cli.run import Samples, report_summary
from deepthink_cli.cli.study_options import UNNAMED, StudyArguments, StudyName, StudyOut, folder_of
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import Problems
from deepthink_cli.model.options import ModelOptions

if TYPE_CHECKING:
    from deepthink_cli.experiments.crossing import Crossing
    from deepthink_cli.experiments.study import OpenedStudy


@grouped
def run_study(
    context: typer.Context,
    study: StudyName,
    out: StudyOut = None,
    samples: Samples = False,
    log: Log = None,
    cache: Cache = None,
    *,
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    machines: ExecutorArguments,
    common: CommonArguments,
) -> None:
    """Do the runs of a study, model by model, into one folder; an interrupted study is continued."""
    from deepthink_cli.experiments.prepare import prepare
    from deepthink_cli.experiments.run import execute
    from deepthink_cli.experiments.study import Origin
    from deepthink_cli.outputs import check_run_apart
    from deepthink_cli.selection.store import Store, default_folder

    problems = Problems()
    with problems.collected():
        opened, crossing = replaced.crossed(context, study, model)
    with problems.collected():
        shard = machines.checked()
    with problems.collected():
        tracking = tracking_of(log)
    problems.raise_any()
    folder = folder_of(out, opened)
    written = machines.folder(folder)
    check_run_apart(written, _read(opened, crossing, common.config))
    cache = cache or default_folder()
    with Show(common) as tell, machines.executor(model.device, cache) as executor:
        runs = prepare(crossing, written, tell)
        if machines.wrote_script(folder, common.quiet):
            return
        Origin.of(study, replaced.scale).write(written)
        told = tracked(tell, tracking, runs, common.quiet or common.json)
        summary = execute(runs, samples, told, Store(cache), executor, shard)
    report_summary(summary, common, f"deepthink report {folder}")


def _read(opened: OpenedStudy, crossing: Crossing, config: Path | None) -> list[str | Path]:
    """The files and folders that the study reads."""
    data_dir = None if opened.study.data_dir is None else Path(opened.study.data_dir)
    paths = read_by(opened.path, opened.study.demos, task=list(crossing.tasks), data_dir=data_dir, config=config)
    for options in opened.study.models:
        paths += read_by(model=options.model, adapter=options.adapter)
    return paths
