"""Run the commands of docs/tutorial.md's session again and put their output under them.

The session stands between <!-- session --> and <!-- /session -->; its commands are the lines that begin
with "$ ". Lines with timings are left out, since no two runs agree on them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
SESSION = re.compile(r"(?<=<!-- session -->\n).*?(?=<!-- /session -->)", re.DOTALL)
TIMING = re.compile(r"\d\.\d s\b")


def main() -> None:
    """Rewrite the session in place."""
    text = PAGE.read_text(encoding="utf-8")
    found = SESSION.search(text)
    if found is None:
        sys.exit("docs/tutorial.md: no <!-- session --> block")
    commands = [line.removeprefix("$ ") for line in found[0].splitlines() if line.startswith("$ ")]
    PAGE.write_text(text[: found.start()] + session(commands) + text[found.end() :], encoding="utf-8")


def session(commands: list[str]) -> str:
    """The block: every command with its output, in order, in one temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        parts = [f"$ {command}\n{output(command, folder)}" for command in commands]
    return "```console\n" + "\n".join(parts) + "```\n"


def output(command: str, folder: str) -> str:
    """What a command prints, stdout and stderr together, without trailing spaces and timings."""
    bin_folder = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEPTHINK_")}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**kept, "PATH": os.pathsep.join([bin_folder, kept.get("PATH", "")]), "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    if done.returncode:
        sys.exit(f"docs/tutorial.md: {command}: exit code {done.returncode}\n{done.stdout}")
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines() if not TIMING.search(line))


if __name__ == "__main__":
    main()
