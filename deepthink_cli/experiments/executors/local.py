"""Workers on this machine: one process for each group of GPUs, or of cores, which runs this module.

Messages come on its standard input, events go to its standard output, both pickled. Before each message stand its
bytes, as 8 bytes, so that they can be read while the process still imports.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from subprocess import PIPE, TimeoutExpired
from threading import Thread
from typing import Any

from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.executors.base import Deliver, Died, Message, module_path
from deepthink_cli.io.processes import Process, python, start
from deepthink_cli.io.temporary import remove_temporary_folders

LENGTH = 8  # bytes of the length of a message, the highest first
END = bytes(LENGTH)  # in place of a message: end at once
_PATIENCE = 1.0  # seconds in which a process ends by itself
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")


class LocalExecutor:
    """Worker processes; `gpus` are the names in CUDA_VISIBLE_DEVICES, divided evenly among the workers."""

    def __init__(self, workers: int, gpus: tuple[str, ...]) -> None:
        self.workers = workers
        bounds = [number * len(gpus) // workers for number in range(workers + 1)]
        self.shares = [gpus[start:end] for start, end in pairwise(bounds)]

    def start(self, number: int, deliver: Deliver) -> LocalWorker:
        """A worker in a new process, whose variables are set before torch is imported."""
        process = start(
            python("-m", __name__),
            worker_variables(os.environ, self.shares[number], self.workers),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C at the terminal reaches the parent only
        )
        return LocalWorker(process, deliver)

    def close(self) -> None:
        """Nothing is left to free."""


class LocalWorker:
    """A worker process, and a thread that reads its events."""

    def __init__(self, process: Process, deliver: Deliver) -> None:
        self.process = process
        self.errors: deque[bytes] = deque(maxlen=1)  # the last line
        self.reader = Thread(target=lambda: self.errors.extend(self.process.stderr or ()), daemon=True)
        self.reader.start()
        Thread(target=self._deliver, args=(deliver,), daemon=True).start()

    def send(self, message: Message) -> None:
        """Write a message, in a thread: the pipe may be full as long as the process is stopped."""
        pickled = pickle.dumps(message)
        self._write_behind(len(pickled).to_bytes(LENGTH, "big") + pickled)

    def stop(self) -> None:
        """Let the process remove its temporary folders and end, whatever it is doing; kill it if it does not."""
        self._write_behind(END)
        with suppress(TimeoutExpired):
            self.process.wait(_PATIENCE)
        self.process.kill()
        self.process.wait()

    def _write_behind(self, content: bytes) -> None:
        Thread(target=self._write, args=(content,), daemon=True).start()

    def _write(self, content: bytes) -> None:
        pipe: Any = self.process.stdin
        with suppress(OSError):  # that the process has ended is an event
            pipe.write(content)
            pipe.flush()

    def _deliver(self, deliver: Deliver) -> None:
        pipe: Any = self.process.stdout
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                deliver(pickle.load(pipe))
        self.process.kill()
        code = self.process.wait()
        self.reader.join(timeout=1)
        deliver(Died(_reason(code, b"".join(self.errors).decode(errors="replace").strip())))


def worker_variables(environment: Mapping[str, str], gpus: tuple[str, ...], workers: int) -> dict[str, str]:
    """The environment of a worker: its GPUs, its share of the cores, unless that is set, and where the package is."""
    variables = dict(environment)
    variables["PYTHONPATH"] = module_path(environment)
    threads = variables.get("OMP_NUM_THREADS") or str(max(1, cores() // workers))
    for name in THREADS:
        variables.setdefault(name, threads)
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return variables


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus(device: str, workers: int) -> tuple[str, ...]:
    """The GPUs to divide among workers, none if they compute on cores.

    Raises InputError for a numbered device, and for more workers than GPUs.
    """
    from deepthink_cli.model.options import choose_device

    if ":" in device:
        raise InputError.of(
            "device", device, f"with {option('workers')} all visible GPUs are divided; use {option('device')} cuda"
        )
    if choose_device(device).type != "cuda":
        return ()
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = tuple(map(str, range(torch.cuda.device_count()))) if named is None else tuple(named.split(","))
    if workers > len(gpus):
        reason = f"a worker has a GPU of its own, and there are {len(gpus)}; use fewer, or {option('device')} cpu"
        raise InputError.of("workers", workers, reason)
    return gpus


def _reason(code: int, line: str) -> str:
    """How a process ended: the signal, or the exit status and the last line that it wrote."""
    if code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}" + (f": {line}" if line else "")


def main() -> None:
    """A worker process: do what the parent process asks for until it ends or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be between the events
    messages: SimpleQueue[bytes] = SimpleQueue()
    # From the start, so that this process ends with its parent. The imports of two threads could meet halfway: messages
    # are unpickled by this one.
    Thread(target=_read, args=(sys.stdin.buffer, messages), daemon=True).start()
    from deepthink_cli.experiments.executors.handler import MessageHandler
    from deepthink_cli.io.cache import Store

    handler = MessageHandler(Store())
    while True:
        for event in handler.handle(pickle.loads(messages.get())):
            pickle.dump(event, events)
            events.flush()


def _read(pipe: Any, messages: SimpleQueue[bytes]) -> None:
    """Queue the messages; when the parent says so or has ended, in whatever way, end this process too."""
    while len(length := pipe.read(LENGTH)) == LENGTH and length != END:
        messages.put(pipe.read(int.from_bytes(length, "big")))
    remove_temporary_folders()
    os._exit(0)


if __name__ == "__main__":
    main()
