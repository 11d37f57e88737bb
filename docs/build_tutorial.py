"""Run the commands of docs/tutorial.md's sessions again and put their output under them.

A session stands between <!-- session --> and <!-- /session -->; its commands are the lines that begin
with "$ ". Seconds are those of the run. The model is downloaded once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from real_model import real_model  # noqa: E402  of the benchmarks, which are no package that is installed

PAGE = ROOT / "docs" / "tutorial.md"
SESSION = re.compile(r"(?<=<!-- session -->\n).*?(?=<!-- /session -->)", re.DOTALL)


def main() -> None:
    """Rewrite the sessions in place, one after another in one folder."""
    text = PAGE.read_text(encoding="utf-8")
    model = real_model().resolve()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        (Path(folder) / "smollm2").symlink_to(model)
        text = SESSION.sub(lambda found: session(found[0], folder).replace(str(model), "smollm2"), text)
    PAGE.write_text(text, encoding="utf-8")


def session(text: str, folder: str) -> str:
    """The block: every command with its output, in order."""
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return "```console\n" + "\n".join(f"$ {command}\n{output(command, folder)}" for command in commands) + "```\n"


def output(command: str, folder: str) -> str:
    """What a command prints, stdout and stderr together, without trailing spaces."""
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
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
