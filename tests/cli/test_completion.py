"""The shell completes names of tasks, methods and calibrations, quickly and in any shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.imports import HEAVY

LINES = {
    "deepthink think --task ss": ["sst2", "sst5"],
    "deepthink eval mem.safetensors --task my": ["my_task.yaml"],
    "deepthink run --task mmlu/ast": ["mmlu/astronomy"],
    "deepthink tasks ne": ["new"],
    "deepthink select pool.csv --demos-by her": ["herding"],
    "deepthink think --technique fl": ["flipped"],
    "deepthink run --technique ct-kv,fr": ["ct-kv,fresh"],
    "deepthink predict mem.safetensors rows.csv --calibrate batch,p": ["batch,pmi", "batch,prior"],
    "deepthink tune rows.csv --demos-by herding,h": [],
    "deepthink think --format j": ["jsonl", "json"],
    "deepthink think --mom": ["--momentum"],
    "deepthink think --help-": ["--help-all"],
}
PROGRAM = """
import os, sys
from deepthink_cli.cli.main import program, run
program()
for line in sys.argv[1:]:
    if not os.fork():
        os.environ.update(COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
        run([])
        sys.exit(" ".join(name.split(".")[0] for name in sys.modules))
    os.wait()
    print(end="\\0", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs each line in a copy of one process")
def test_words_are_completed_without_torch(tmp_path: Path) -> None:
    (tmp_path / "my_task.yaml").touch()
    package = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
    environment = os.environ | package | {"_DEEPTHINK_COMPLETE": "complete_bash"}
    program = [sys.executable, "-c", PROGRAM, *LINES]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    offered = [words.split() for words in done.stdout.split("\0")[: len(LINES)]]
    assert dict(zip(LINES, offered, strict=True)) == LINES
    assert not set(done.stderr.split()) & (HEAVY | {"numpy"})
