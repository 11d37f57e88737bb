"""The cluster and the queue of this plugin, which are named without importing their libraries."""

from __future__ import annotations

from deepthink_cli.experiments.executors.base import Cluster, Queue

_HERE = "deepthink_cli.plugins.cluster"
RAY = Cluster(f"{_HERE}.ray_cluster:RayExecutor", "workers on a Ray cluster", "https://docs.ray.io")
SLURM = Queue(
    f"{_HERE}.slurm:write",
    "a script for an array of SLURM over the shards of a run",
    "https://slurm.schedmd.com",
)
