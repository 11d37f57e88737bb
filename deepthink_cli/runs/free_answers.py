"""What a run can do with a task whose answers are generated."""

from __future__ import annotations

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.errors import InputError
from deepthink_cli.runs.plan import RunPlan
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.free import check_may_run
from deepthink_cli.techniques.ensemble import ensemble_size


def check_free(plan: RunPlan, task: Task) -> None:
    """Raise InputError for a task with free answers and options of scores, and for programs that may not be run."""
    if task.free is None:
        return
    check_may_run(task, plan.run_code, plan.unsafe)
    wrong = {
        f"--score {plan.score}": plan.score != "sum",
        f"--calibrate {','.join(plan.calibrations)}": plan.calibrations != (NONE,),
        f"--demos-by {','.join(plan.demos_by)}": bool(plan.demos_by),
        f"--method {','.join(plan.techniques)}": any(ensemble_size(name) for name in plan.techniques),
        "--select dev": plan.select_dev and task.free.program is not None,
    }
    for option, given in wrong.items():
        if given:
            raise InputError(f"{option}: task {task.name} has free answers, without scores; run it without this option")
