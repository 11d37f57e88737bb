"""Packages of other people, installed in a folder, and command lines in processes that find them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.forks import Forks

Program = subprocess.CompletedProcess[str]
DEMONSTRATIONS = '{"text": "sun", "label": "yes"}\n{"text": "rain", "label": "no"}\n'
TASK = """
name: weather
title: "Weather: is it good?"
template: "Weather: {text}\\nGood: {label}"
labels: ["yes", "no"]
fields: {text: text, label: label}
answer: label
shots: 2
demonstrations: train
folder: weather
protocols: {official: {split: test}}
groups: [examples]
example: {text: sun, label: "yes"}
source: Written for this test.
licence: Apache-2.0
"""


@dataclass
class Guest:
    """A folder with an installed package and demonstrations, and the process whose copies find the package."""

    folder: Path
    forks: Forks

    @property
    def variables(self) -> dict[str, str]:
        """The variables of its processes."""
        return {"PYTHONPATH": str(self.folder), "COLUMNS": "200", "DEEPTHINK_MODEL": "pocket"}

    @contextmanager
    def warmed(self, *options: str) -> Iterator[Guest]:
        """The same in copies of a process that has imported the package and made the memory `mem.safetensors`."""
        forks = self.forks.copy(**self.variables)
        demos, memory = (str(self.folder / name) for name in ("demos.jsonl", "mem.safetensors"))
        forks.warm(["think", demos, "-T", "2", *options, "-q", "-o", memory])
        yield Guest(self.folder, forks)
        forks.close()

    def program(self, text: str) -> Program:
        """A program in the folder."""
        return self.forks.program(text, (), self.folder, **self.variables)

    def run(self, *lines: str) -> Program:
        """Command lines, one after the other in a process; it ends where one fails."""
        code = "\n".join(f"sys.exit(code) if (code := run({shlex.split(line)!r})) else None" for line in lines)
        return self.program(f"import sys\nfrom deepthink_cli.cli.main import run\n{code}")

    def each(self, *lines: str) -> list[Program]:
        """What each of these command lines gives, one after the other in one process, whether it fails or not."""
        code = "".join(
            f"code = run({shlex.split(line)!r})\nprint(end=f'\\0{{code}}\\0')\nprint(end='\\0', file=sys.stderr)\n"
            for line in lines
        )
        done = self.program(f"import sys\nfrom deepthink_cli.cli.main import run\n{code}")
        (*said, _), errors = done.stdout.split("\0"), done.stderr.split("\0")
        return [
            subprocess.CompletedProcess(line, int(code), out, error)
            for line, out, code, error in zip(lines, said[::2], said[1::2], errors, strict=False)
        ]


def install(folder: Path, forks: Forks, entries: dict[str, str], **modules: str) -> Guest:
    """Install a package: its modules, and beside them what an installer writes of its entry points."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "demos.jsonl").write_text(DEMONSTRATIONS)
    about = folder / "guest_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-package\nVersion: 1.0\n")
    sections = [f"[deepthink.{kind}]\n{lines}\n" for kind, lines in entries.items()]
    (about / "entry_points.txt").write_text("\n".join(sections))
    return Guest(folder, forks)
