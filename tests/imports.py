"""What a module may import, and what a command line imports, seen from a process of its own."""

from __future__ import annotations

import subprocess
import sys

# From the bottom up. A room imports only itself and the rooms before it, within a layer too, so that no call climbs.
LAYERS = (
    ("errors", "io"),
    (
        *(
            "updates",
            "method",
            "data",
            "provenance",
            "selection",
            "techniques",
            "meaning",
            "calibration",
            "options",
            "tasks",
        ),
        *("decoding", "description", "metrics", "tuning"),
        *("artifact.metadata", "artifact.layout", "artifact.format"),
    ),
    (
        *("memory", "model", "engine", "rereading", "thinking", "context_tuning", "scoring", "continuation"),
        *("artifact.quantization", "artifact.files", "exporting"),
    ),
    (
        *(
            "skipping",
            "prediction",
            "generation",
            "answering",
            "dialogue",
            "calibrating",
            "evaluation",
            "pools",
            "runs",
            "report",
        ),
        *("workflows", "study"),
    ),
    ("integrations", "cli"),
)
HEAVY = {"torch", "transformers", "safetensors", "datasets", "pyarrow", "tokenizers", "scipy", "matplotlib", "pandas"}


def modules_after(arguments: list[str]) -> set[str]:
    """Top-level modules that one command line leaves imported."""
    program = (
        "import sys\nfrom deepthink_cli.cli.main import run\n"
        f"run({arguments!r})\nsys.stderr.write(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())
