"""Rows a second of systems that score the same rows with the same model on one core, and how far their scores differ.

    python benchmarks/peers.py [--data-dir DIR] [--vllm-python PATH] [--llama-python PATH] [--harness-python PATH]

SmolLM2-135M-Instruct in float32, TREC's questions with all six labels, after solved ones. The memory is that of one
reading (T = 1), so that all systems compute the same scores. Each runs in a process of its own, with the Python of an
environment that has it, on one core; a peer whose Python is not given is left out. The clock starts when the model is
loaded and one row is scored, and stops when a file of rows has its scores. The table has the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set
from peer_programs.clock import DEMONSTRATIONS, FIRST, MEMORY, ROWS
from real_model import as_float32, gguf_file, real_model
from record import Table, parser
from trec import QUESTIONS

PROGRAMS = Path(__file__).resolve().parent / "peer_programs"
TASK = "trec"
STATE = "state.bin"
NOTE = (
    "One core; questions of TREC with all six labels after solved ones, SmolLM2-135M-Instruct in float32, the memory "
    "of one reading. Medians of the rounds, from a file of rows to their scores; loading, the memory or the state "
    "included, ends with the scores of a first row. The difference is from the first line."
)
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": os.pathsep.join(str(path) for path in (PROGRAMS.parent.parent, PROGRAMS)),
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class System:
    """A system: the Python that has it, its program in `peer_programs`, and the arguments of that."""

    title: str
    python: str
    program: str
    arguments: tuple[str, ...]

    def answer(self, folder: Path) -> dict[str, Any]:
        """What the program measured; see `clock.main`."""
        path = folder / "answer.json"
        run(self.python, self.program, str(folder), str(path), *self.arguments)
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found


def run(python: str, program: str, *arguments: str) -> None:
    """Run a program of `peer_programs`; ends this one with what it wrote to stderr where it fails."""
    command = [python, str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | SETTINGS)
    if done.returncode:
        sys.exit(f"{program}: {done.stderr}")


def deepthink(*words: str) -> None:
    """Run a command of this package."""
    subprocess.run([sys.executable, "-m", "deepthink_cli", *words, "-q"], check=True)


def write_work(folder: Path, model: str, args: argparse.Namespace) -> None:
    """Write the memory, the text of its demonstrations, and the rows, one of them to be scored before the others."""
    data = str(args.data_dir)
    words = ["think", "--task", TASK, "--shots", str(args.shots), "--data-dir", data, "-m", model, "-T", "1"]
    deepthink(*words, "--device", "cpu", "-o", str(folder / MEMORY))
    shown = open_memory(folder / MEMORY).provenance.demonstrations
    text = shown.template.demonstrations((each.text, each.label) for each in shown.examples)
    (folder / DEMONSTRATIONS).write_text(text, encoding="utf-8")
    lines = []
    for query in evaluation_set(find_task(TASK), "paper", Source(args.data_dir), args.rows + 1):
        prompt = shown.template.query(query.text)
        start = prompt.rstrip()  # a label's first token begins with the blank before it
        answers = [prompt[len(start) :] + label for label in shown.labels]
        lines.append(json.dumps({"text": query.text, "prompt": start, "answers": answers}) + "\n")
    (folder / FIRST).write_text(lines[0], encoding="utf-8")
    (folder / ROWS).write_text("".join(lines[1:]), encoding="utf-8")


def systems(folder: Path, model: str, args: argparse.Namespace) -> list[System]:
    """The systems whose Python is given; ours is the first one."""
    found = [System("`deepthink predict`", sys.executable, "by_deepthink.py", (model, "packed"))]
    if args.vllm_python:
        found += [
            System("`deepthink predict --engine vllm`", args.vllm_python, "by_deepthink.py", (model, "vllm")),
            System("vLLM, its prefix cache", args.vllm_python, "by_vllm.py", (model,)),
        ]
    if args.llama_python:
        weights = str(as_float32(args.gguf or gguf_file(), folder / "float32.gguf"))
        saved = str(folder / "saved.bin")
        run(args.llama_python, "llama.py", str(folder), weights, saved)
        deepthink("export", str(folder / MEMORY), "--to", "llama.cpp", "--state", saved, "-o", str(folder / STATE))
        found.append(System("llama.cpp, the exported memory", args.llama_python, "by_llama.py", (weights, STATE)))
    if args.harness_python:
        found.append(
            System("lm-evaluation-harness", args.harness_python, "by_harness.py", (model, str(args.harness_rows)))
        )
    return found


def main() -> None:
    """Measure every system once a round, in turns, and print."""
    options = parser(__doc__)
    options.add_argument("-m", "--model", help="a folder with SmolLM2's weights; default: downloaded if need be")
    options.add_argument(
        "--gguf", type=Path, help="the model's GGUF file, for llama.cpp; default: downloaded if need be"
    )
    options.add_argument(
        "--data-dir", type=Path, default=QUESTIONS, help="directory with trec/; default: own questions"
    )
    options.add_argument("--rows", type=int, default=200)
    options.add_argument("--harness-rows", type=int, default=8, help="the first rows, which take it seconds each")
    options.add_argument("--shots", type=int, default=36, help="demonstrations")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--vllm-python", help="the Python of an environment with vLLM and this package (make serving)")
    options.add_argument("--llama-python", help="the Python of an environment with llama-cpp-python")
    options.add_argument("--harness-python", help="the Python of an environment with lm-evaluation-harness")
    args = options.parse_args()
    model = str(Path(args.model or real_model()).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, model, args)
        compared = systems(folder, model, args)
        answers = [[system.answer(folder) for system in compared] for _ in range(args.rounds)]
    ours = answers[0][0]["scores"]
    columns = ("system", "loading s", "rows", "seconds", "rows a second", "largest difference, nats")
    table = Table(args, "Peers", columns, note=NOTE)
    for system, of_system in zip(compared, zip(*answers, strict=True), strict=True):
        loading, seconds = (statistics.median(one[name] for one in of_system) for name in ("loading", "seconds"))
        farthest = max(
            abs(score - expected)
            for one in of_system
            for row, of_ours in zip(one["scores"], ours, strict=False)
            for score, expected in zip(row, of_ours, strict=True)
        )
        rows = len(of_system[0]["scores"])
        table.add(system.title, loading, rows, seconds, rows / seconds, farthest)


if __name__ == "__main__":
    main()
