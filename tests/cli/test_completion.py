"""The shell completes commands, options and their choices without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.imports import HEAVY

LINES = {
    "deepthink calib": ["calibrate"],
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
    package = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
    environment = os.environ | package | {"_DEEPTHINK_COMPLETE": "complete_bash"}
    program = [sys.executable, "-c", PROGRAM, *LINES]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    offered = [words.split() for words in done.stdout.split("\0")[: len(LINES)]]
    assert dict(zip(LINES, offered, strict=True)) == LINES
    assert not set(done.stderr.split()) & (HEAVY | {"numpy"})
