"""The order of the package's folders, and what a command line imports, seen from a process of its own."""

from __future__ import annotations

import subprocess
import sys

# From the bottom up, as in docs/architecture.md: a module imports only from its own folder and from those before it.
ORDER = (
    *("errors", "io", "registry", "events", "options", "observers", "updates", "method"),
    *("data", "corrections", "provenance", "memory", "advice"),
    *("model", "engine", "thinking", "artifact", "scoring"),
    *("calibration", "multilabel"),
    *("selection", "techniques", "meaning", "tasks"),
    *("make_memory", "prediction", "calibrate_memory"),
    *("generation", "evaluation", "tuning"),
    "experiments",
    *("outputs", "report", "export", "cli", "plugins", "__main__"),
)
HEAVY = {"torch", "transformers", "safetensors", "datasets", "pyarrow", "tokenizers", "scipy", "matplotlib", "pandas"}


def modules_after(*lines: list[str]) -> set[str]:
    """Top-level modules that command lines leave imported."""
    return modules_of("from deepthink_cli.cli.main import run\n" + "".join(f"run({line!r})\n" for line in lines))


def modules_of(program: str) -> set[str]:
    """Top-level modules that a program leaves imported."""
    program = f"import sys\n{program}\nsys.stderr.write(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())
