"""Write docs/cli.md from the --help-all of every command, and README's table of commands from the program's help.

With --check, only say whether they are up to date.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pages import ROOT, write_or_check

from deepthink_cli.cli.command import WHICH
from deepthink_cli.cli.main import program

PAGE = ROOT / "docs" / "cli.md"
README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- commands -->\n).*?(?=<!-- /commands -->)", re.DOTALL)
INTRODUCTION = """\
# Command line

<!-- Written by docs/build_cli.py from the commands' own help; do not edit. -->

Data go to stdout; progress, notes and errors go to stderr. [Concepts](concepts.md) explains the words, the
[data formats](concepts.md#rows), where [option values](concepts.md#where-an-option-gets-its-value) come from and
the [exit codes](concepts.md#exit-codes). `--help` shows the options that come first, `--help-all`
every option, as here.
"""

PROGRAM = """
import json, sys
from deepthink_cli.cli.main import run
for words in json.loads(sys.argv[1]):
    run(words)
    print(end="\\0")
"""


def main() -> None:
    """Write or check the pages."""
    write_or_check({PAGE: page(), README: readme()})


def readme() -> str:
    """README with the table of which command serves what."""
    rows = "".join(f"| {wanted} | {_linked(names)} |\n" for wanted, names in WHICH.items())
    return TABLE.sub(f"| you want | command |\n| --- | --- |\n{rows}", README.read_text(encoding="utf-8"))


def _linked(names: str) -> str:
    return re.sub(r"\b(?!then\b)[a-z]+", lambda name: f"[`{name[0]}`](docs/cli.md#deepthink-{name[0]})", names)


def page() -> str:
    """The whole page: the program's help, then a section for every command."""
    names = [(), *(tuple(name.split()) for name in commands())]
    sections = (section(("deepthink", *name), text) for name, text in zip(names, helps(names), strict=True))
    return "\n".join([INTRODUCTION, *sections])


def commands() -> list[str]:
    """Names of all commands, in the order of the program's help, those of a group after it, as in `study run`."""
    return [name for name, _ in _commands(program(), ())]


def _commands(group: Any, before: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield " ".join((*before, name)), command
        if hasattr(command, "commands"):
            yield from _commands(command, (*before, name))


def section(words: Sequence[str], text: str) -> str:
    """A heading and the help of one command."""
    return f"## {' '.join(words)}\n\n```text\n{text}\n```\n"


def helps(names: Sequence[Sequence[str]]) -> list[str]:
    """What `deepthink COMMAND --help-all`, or `--help` of a group, prints for each name, 100 columns wide."""
    groups = {tuple(name[:-1]) for name in names} | {()}
    given = json.dumps([[*name, "--help" if tuple(name) in groups else "--help-all"] for name in names])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    texts = done.stdout.split("\0")[: len(names)]
    return ["\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in texts]


def environment() -> dict[str, str]:
    """This process's environment without the variables that change the help."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEPTHINK_")}
    return {**kept, "COLUMNS": "100", "PYTHONUTF8": "1"}


if __name__ == "__main__":
    main()
