"""Workers on a Ray cluster: actors that hold a model each. Ray sends no usage statistics from here."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import chdir, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

from deepthink_cli.errors import DeepThinkError, InputError, installing
from deepthink_cli.experiments.executors.base import PACKAGE, Cluster, Deliver, Died, Event, Message, module_path
from deepthink_cli.experiments.executors.local import cores
from deepthink_cli.io.processes import SAFE_PATH

LOCAL = "local"
OBJECT_STORE = 80_000_000  # bytes; Ray would take 30 % of the memory, and rows are kilobytes
PATIENCE = 5.0  # seconds to wait for an answer of the head node
HANDED_ON = ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "TRANSFORMERS_VERBOSITY")


class RayExecutor:
    """Starts actors, which divide a cluster evenly: as many `workers` as it has GPUs, or cores without GPUs, or fewer.

    `address` is HOST:PORT, `auto` for the cluster on this machine, or `local`, the default, to start one here. Raises
    InputError if ray is missing or the cluster is too small, and DeepThinkError if no cluster answers.
    """

    def __init__(self, address: str | None, workers: int | None, device: str) -> None:
        ray = connected(address or LOCAL)
        resources: dict[str, float] = ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 0)), 0 if device == "cpu" else int(resources.get("GPU", 0))
        most = gpus or max(1, cpus)
        self.workers = workers or most
        if self.workers > most:
            ray.shutdown()
            raise InputError.of(
                "workers",
                self.workers,
                f"the Ray cluster has {most} {'GPUs' if gpus else 'cores'}; use at most that many",
            )
        self._of_each = {"num_cpus": cpus // self.workers, "num_gpus": gpus // self.workers}  # a thread for each core

    def start(self, number: int, deliver: Deliver) -> RayWorker:
        """Start an actor; it waits in Ray's queue until the cluster can run it."""
        import ray

        # The scheduler replaces workers, and counts how often.
        actor = ray.remote(Actor).options(**self._of_each, max_restarts=0, max_task_retries=0)
        return RayWorker(actor.remote(os.getcwd()), deliver)

    def close(self) -> None:
        """Leave the cluster; a cluster that was started here ends."""
        import ray

        ray.shutdown()


class Actor:
    """What runs on the cluster: a `MessageHandler` in the working directory of the driver."""

    def __init__(self, folder: str) -> None:
        from deepthink_cli.experiments.executors.handler import MessageHandler
        from deepthink_cli.io.cache import Store

        with suppress(OSError):  # a machine without this folder can still do runs whose paths are absolute
            os.chdir(folder)
        self.handler = MessageHandler(Store())

    def handle(self, message: Message) -> Iterator[Event]:
        """Do the work in a message."""
        yield from self.handler.handle(message)


class RayWorker:
    """An actor, and a thread that waits for its events."""

    def __init__(self, actor: Any, deliver: Deliver) -> None:
        self.actor = actor
        self.messages: SimpleQueue[Message | None] = SimpleQueue()
        Thread(target=self._deliver, args=(deliver,), daemon=True).start()

    def send(self, message: Message) -> None:
        """Queue a message for the actor."""
        self.messages.put(message)

    def stop(self) -> None:
        """Kill the actor."""
        import ray

        self.messages.put(None)
        with suppress(Exception):  # it may be dead already
            ray.kill(self.actor, no_restart=True)

    def _deliver(self, deliver: Deliver) -> None:
        import ray

        try:
            while (message := self.messages.get()) is not None:
                for event in self.actor.handle.options(num_returns="streaming").remote(message):
                    deliver(ray.get(event))
        except ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            deliver(Died(f"died ({type(error).__name__}: {lines[0].strip() if lines else 'no reason given'})"))


def connected(address: str) -> Any:
    """Ray, connected to the cluster at an address; raises as `RayExecutor` does."""
    os.environ.update(SAFE_PATH, RAY_USAGE_STATS_ENABLED="0")  # before ray is imported
    if address == LOCAL:
        # Its ports are then on loopback, as they are by default on macOS and Windows.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise InputError.of("workers", "ray", f"ray is not installed; {installing('cluster')}") from error
    if ray.is_initialized():
        return ray
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    settings = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    variables = {"PYTHONPATH": module_path(os.environ), **SAFE_PATH, **settings}  # of the workers
    common["runtime_env"] = {"env_vars": variables}
    at_end = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            common |= {"num_cpus": cores(), "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        else:
            _check_answers(address)
        with chdir(PACKAGE.parent):  # Ray's workers look for modules in the working directory first
            ray.init(address=address, **common)
    except Exception as error:  # Ray raises plain exceptions too, as where a node takes too long to start
        reason = " ".join(str(error).split())[:160]
        if address == LOCAL:
            told = f"Ray does not start here ({reason}); try again when this machine is less busy, or without Ray"
            raise DeepThinkError.of("workers", "ray", told) from error
        told = (
            f"no Ray cluster answers ({reason}); start one with `ray start --head`, or omit the address to start one "
        )
        raise DeepThinkError.of("workers", f"ray:{address}", f"{told}on this machine") from error
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, at_end)  # Ray's own prints a trace, and aborts
    return ray


def _check_answers(address: str) -> None:
    """Raise OSError unless something listens there: Ray itself would try for a minute, and print each try."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not (colon and host and port.isdecimal()):
        raise ValueError("give HOST:PORT, as in 10.0.0.1:6379, or auto")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE):
        pass


RAY = Cluster(RayExecutor, "workers on a Ray cluster", "https://docs.ray.io")
