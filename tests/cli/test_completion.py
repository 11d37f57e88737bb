"""The shell completes names of tasks, methods and calibrations, quickly and in any shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.imports import HEAVY

PROGRAM = (
    "import sys\nfrom deepthink_cli.cli.main import run\nrun([])\n"
    "sys.stderr.write(' '.join({name.split('.')[0] for name in sys.modules}))"
)


def completed(folder: Path, line: str) -> tuple[list[str], set[str]]:
    """What the program offers for the last word of a line, as bash asks for it, and the modules that it imported."""
    asked = {"_DEEPTHINK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    package = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=folder, env=os.environ | asked | package
    )
    return done.stdout.split(), set(done.stderr.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("deepthink think --task ss", ["sst2", "sst5"]),
        ("deepthink eval mem.safetensors --task my", ["my_task.yaml"]),
        ("deepthink run --task mmlu/ast", ["mmlu/astronomy"]),
        ("deepthink tasks ne", ["new"]),
        ("deepthink select pool.csv --method her", ["herding"]),
        ("deepthink think --method fl", ["flipped"]),
        ("deepthink run --method ct-kv,fr", ["ct-kv,fresh"]),
        ("deepthink predict mem.safetensors rows.csv --calibrate batch,p", ["batch,pmi", "batch,prior"]),
        ("deepthink tune rows.csv --demos-by herding,h", []),
        ("deepthink think --format j", ["jsonl", "json"]),
        ("deepthink think --mom", ["--momentum"]),
        ("deepthink think --help-", ["--help-all"]),
    ],
)
def test_a_word_is_completed_without_torch(tmp_path: Path, line: str, offered: list[str]) -> None:
    (tmp_path / "my_task.yaml").touch()
    words, modules = completed(tmp_path, line)
    assert words == offered
    assert not modules & HEAVY
