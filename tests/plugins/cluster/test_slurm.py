"""The script for sbatch: each of its jobs runs one shard."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from conftest import Models
from helpers.said import Captured, output
from helpers.tiny import run_words

from deepthink_cli.cli.main import run


def test_the_script_for_slurm_runs_every_shard(models: Models, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, models("llama"), "--seeds", "2")
    out = tmp_path / "out of 'two' $words"
    with_script = [*words, "-o", str(out), "--workers", "2@slurm"]
    command = shlex.split(output(capsys, *with_script))
    assert command[0] == "sbatch"
    lines = Path(command[1]).read_text().splitlines()
    assert "#SBATCH --array=1-2" in lines
    assert not out.exists()
    execs = [line for line in lines if line.startswith("exec ")]
    checked = subprocess.run(
        ["bash", "-c", execs[0].replace("exec ", "printf '%s\\n' ", 1)],
        env={"SLURM_ARRAY_TASK_ID": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.splitlines()[1:] == ["-P", "-m", "deepthink_cli", *words, "-o", str(out), "--shard", "2/2"]


def test_a_folders_name_adds_no_line_to_the_script_for_sbatch(models: Models, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, models("llama"))
    assert run([*words, "-o", str(tmp_path / "x\ntouch made\n#"), "--workers", "2@slurm"]) == 2
    assert "a line break in it would end a line of the script" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.sbatch"))
