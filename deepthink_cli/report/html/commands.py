"""Command lines that make the results of runs, derived from their settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.report.html.run_samples import folder_of
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.techniques.registry import DEEP_THINKING
from deepthink_cli.updates.gate import gate_values
from deepthink_cli.updates.registry import GATE

GIVEN = "given"  # the sampling of `run --demos`


def run_commands(jobs: Sequence[JobResults]) -> list[str]:
    """A `deepthink run` line for each folder and for each set of tasks that share the options of one run.

    Files of demonstrations are not recorded in results; they are written as `--demos FILE`.
    """
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for job in jobs:
        tested = next(iter(job.test.values()), None)
        for result in (*job.test.values(), *job.dev.values()):
            groups.setdefault(_shared(result, tested or result), []).append(result.setting)
    return [_command(folder, options, settings) for (folder, *options), settings in groups.items()]


def _shared(result: Result, tested: Result) -> tuple[Any, ...]:
    """The folder, and the options that have one value in a run; `tested` is a test result of the same job."""
    setting, limit = result.setting, tested.setting.limit
    drawn = setting.sampling != GIVEN and setting.balanced is None
    options: list[tuple[str, object]] = [
        ("--model", setting.model),
        ("--dtype", setting.dtype),
        ("--quantize", setting.quantize),
        ("--protocol", setting.protocol),
        ("--limit", limit if tested.setting.part == "test" else None),
        ("--shots", setting.shots if setting.sampling != GIVEN else None),
        ("--order-seed", setting.order_seed if drawn else None),
        ("--pool-size", setting.pool_size),
        ("--positions", setting.positions),
        ("--score", setting.score),
        ("--demos", "FILE" if setting.sampling == GIVEN else None),
        ("--sampling", setting.sampling if drawn else None),
        ("--system", setting.chat.system if setting.chat else None),
    ]
    flags = [("--chat", setting.chat), ("--balance", setting.balanced)]
    pairs = [(name, str(value)) for name, value in options if value is not None]
    return folder_of(result), *pairs, *((name, "") for name, is_set in flags if is_set)


def _command(folder: Path, options: Sequence[tuple[str, str]], settings: Sequence[Setting]) -> str:
    words = ["deepthink", "run"]
    for task in dict.fromkeys(setting.task for setting in settings):
        words += ["--task", task]
    words += [word for option in options for word in option if word]
    seeds = sorted({setting.seed for setting in settings})
    words += ["--seeds", ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")]
    gated = [setting for setting in settings if not setting.is_trained]
    for name in gate_values(settings[0].gate):
        words += _listed(name, (f"{gate_values(setting.gate)[name]:g}" for setting in gated))
    words += _listed("update", (setting.update or GATE for setting in gated), GATE)
    words += _listed("method", ((setting.technique or DEEP_THINKING).split()[0] for setting in settings), DEEP_THINKING)
    words += _listed("demos-by", (setting.sampling for setting in settings if setting.balanced is not None))
    words += _listed("calibrate", (setting.calibration or NONE for setting in settings), NONE)
    iterations = sorted({setting.iteration for setting in settings})
    words += ["--iterations", str(iterations[-1])]
    if iterations != list(range(1, iterations[-1] + 1)):
        words += ["--at", ",".join(map(str, iterations))]
    if dev := [setting for setting in settings if setting.part == "dev"]:
        words += ["--select", "dev", "--dev-size", str(dev[0].limit)]
    return shlex.join([*words, "--out", str(folder)])


def _listed(name: str, values: Iterable[str], default: str | None = None) -> list[str]:
    """An option with its different values; nothing if they are none or the default alone."""
    unique = list(dict.fromkeys(values))
    return [] if unique in ([], [default]) else [f"--{name}", ",".join(unique)]
