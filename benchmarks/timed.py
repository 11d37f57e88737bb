"""One `deepthink` command in a process of its own: its wall time, its seconds in the network's passes, its peak memory.

As a script it is that process: it runs the command line it is given, then prints the cost to stderr as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Cost:
    """What a command cost.

    `wall` are all its seconds, `loaded` those since its model was loaded and its engine chosen (None where it loads
    none), `passes` those in the network's passes since then, vocabulary projection included. `peak` is in bytes.
    """

    code: int
    wall: float
    passes: float
    loaded: float | None
    peak: int


def measured(arguments: list[str]) -> tuple[str, Cost]:
    """What the command printed, and its cost; ends the program where the command fails."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    cost = Cost(**json.loads(done.stderr.splitlines()[-1]))
    if cost.code:
        sys.exit(done.stderr)
    return done.stdout, cost


def peak_bytes() -> int:
    """The most memory this process has held.

    Linux's own count for the process: ru_maxrss would start at the size of the process that started this one.
    """
    if STATUS.exists():
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        found = next((line for line in lines if line.startswith("VmHWM:")), None)
        if found is not None:
            return int(found.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> None:
    """Reset the peak to the memory that the process holds now; only on Linux, and only where permitted."""
    with suppress(OSError):
        (STATUS.parent / "clear_refs").write_text("5", encoding="ascii")


class _Clock:
    """Adds up the seconds of calls; one inside another counts once. Passes run one at a time, in whatever thread."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.running = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*arguments: Any, **named: Any) -> Any:
            if self.running:
                return function(*arguments, **named)
            self.running, started = True, time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.running = False
                self.spent += time.perf_counter() - started

        return inner


def main() -> None:
    """Run the command line and report."""
    from deepthink_cli.cli.main import run
    from deepthink_cli.engine import opening
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.network import LanguageModel
    from deepthink_cli.engine.registry import AUTO

    clock, choose, loaded = _Clock(), opening.choose_engine, []

    def chosen(model: LanguageModel, name: str = AUTO, few_rows: bool = False) -> Engine:
        """Choose the engine; the passes of its network are clocked from then on."""
        engine = choose(model, name, few_rows)
        body: Any = model.network.base_model
        body.forward = clock.around(body.forward)
        kind: Any = LanguageModel
        kind.log_probabilities = clock.around(kind.log_probabilities)
        loaded.append(time.perf_counter())
        return engine

    opening.choose_engine = chosen
    started = time.perf_counter()
    code = run(sys.argv[1:])
    ended = time.perf_counter()
    since = ended - loaded[0] if loaded else None
    cost = Cost(code, ended - started, clock.spent, since, peak_bytes())
    print(json.dumps(asdict(cost)), file=sys.stderr)


if __name__ == "__main__":
    main()
