"""The cluster and the queue of this plugin, which are named without importing their libraries."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from deepthink_cli.errors import option
from deepthink_cli.experiments.executors.registry import Cluster, Queue
from deepthink_cli.options import MACHINES, Flag, Options

LOCAL = "local"
MOST_SHARDS = 10_000


class RayOptions(Options):
    """The address of a Ray cluster."""

    ray: Annotated[
        str | None,
        Flag(
            MACHINES,
            "Use a Ray cluster: HOST:PORT, auto for one on this machine, or no address to start one here (needs ray).",
            "[ADDRESS]",
            alone=LOCAL,
            variable=False,
        ),
    ] = None


class SlurmOptions(Options):
    """The shards of a run as an array of SLURM."""

    slurm: Annotated[
        Annotated[int, Field(ge=1, le=MOST_SHARDS)] | None,
        Flag(
            MACHINES,
            "Run nothing: write a script for a SLURM array of N shards, and print how to submit it.",
            "N",
            hint=f"a whole number from 1 to {MOST_SHARDS}",
            variable=False,
        ),
    ] = None
    sbatch: Annotated[
        list[str] | None,
        Flag(
            MACHINES,
            "With --slurm: an option of sbatch, as in --sbatch=--gres=gpu:1. Repeatable.",
            "OPTION",
            variable=False,
        ),
    ] = None
    submit: Annotated[
        bool, Flag(MACHINES, "With --slurm: also submit the shards (needs submitit).", variable=False)
    ] = False

    @model_validator(mode="after")
    def _has_shards(self) -> SlurmOptions:
        if self.slurm is None and (self.sbatch or self.submit):
            raise ValueError(f"{option('submit') if self.submit else option('sbatch')}: only with --slurm N; add it")
        return self


def _shards(options: SlurmOptions) -> int:
    assert options.slurm is not None
    return options.slurm


_HERE = "deepthink_cli.plugins.cluster"
RAY = Cluster(RayOptions, f"{_HERE}.ray_cluster:start", "workers on a Ray cluster", "https://docs.ray.io")
SLURM = Queue(
    SlurmOptions,
    _shards,
    f"{_HERE}.slurm:write_or_submit",
    "a script for an array of SLURM over the shards of a run",
    "https://slurm.schedmd.com",
)
