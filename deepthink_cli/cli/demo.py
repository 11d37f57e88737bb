"""`deepthink demo`: every step on the built-in model, with the commands that a user would type."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from deepthink_cli.cli.console import note
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import DeepThinkError, ExitCode

INPUTS = 4  # labelled by the predict step


@grouped
def demo(common: Annotated[CommonArguments, Without("json", "verbose", "config")]) -> None:
    """Show think, inspect, predict and eval on the built-in model, offline, in seconds."""
    data = _examples()
    demos, labelled = data / "demos.jsonl", data / "labelled.jsonl"
    with tempfile.TemporaryDirectory(prefix="deepthink-demo-") as folder:
        memory, few = Path(folder) / "reviews.safetensors", Path(folder) / "few.jsonl"
        rows = [json.loads(line) for line in labelled.read_text(encoding="utf-8").splitlines()]
        unlabelled = [{"review": row["review"]} for row in rows[:: len(rows) // INPUTS][:INPUTS]]
        few.write_text("".join(json.dumps(row) + "\n" for row in unlabelled), encoding="utf-8")
        quiet = ["-q"] if common.quiet else []
        _step(
            "1. Think: read the solved examples 15 times and store the memory.",
            ["think", str(demos), "-T", "15", "--keep", "all", "-o", str(memory), *quiet],
        )
        _step("2. Inspect: show what the memory contains.", ["inspect", str(memory)])
        _step("3. Predict: label new inputs with it.", ["predict", str(memory), str(few), *quiet])
        _step(
            "4. Eval: accuracy at every T; T = 1 is plain in-context learning.",
            ["eval", str(memory), str(labelled), *quiet],
        )
    note("")
    note('Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:')
    note("  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors")
    note("  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl")
    note("  deepthink eval mem.safetensors labelled.jsonl")


def _step(title: str, arguments: list[str]) -> None:
    from deepthink_cli.cli.main import run

    sys.stdout.flush()
    for line in ("", title, f"$ deepthink {shlex.join(arguments)}"):
        note(line)
    code = run(arguments)
    if code != ExitCode.DONE:
        raise DeepThinkError(f"the demo stopped: deepthink {arguments[0]} ended with {code}")


def _examples() -> Path:
    """The demo's data: inside an installed package, or in the examples of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "demo_data", package.parent / "examples" / "reviews"):
        if (folder / "demos.jsonl").is_file():
            return folder
    raise DeepThinkError("the demo's data are missing from this installation; install deepthink-cli again")
