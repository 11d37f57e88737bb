"""Every command that prints rows, on a pseudo-terminal: hostile texts, labels and names are shown, not obeyed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from conftest import Models, write_rows
from helpers.forks import Forks
from helpers.synthetic import curve, write
from helpers.tiny import tiny_task

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs copies of a process")

FIELD = "te\x1b\x9b2J\x07\u202ext"  # brackets have a meaning in a template
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08\u202e\u2066\u2028\x85\r\x0b"
# What the program itself writes: colours, and progress bars, which draw their line again without a cursor.
OWN = re.compile(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\r?\x1b\[(?:2K|1A)")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Hostile:
    """Files with hostile names and contents, by the word that stands for them in a command line."""

    forks: Forks
    places: Mapping[str, str]

    def run(self, words: str, stdin: str = "") -> tuple[int, str]:
        """The exit code of a command line, and all that it wrote to its terminal."""
        ours, theirs = pty.openpty()
        _leave_line_breaks(theirs)
        seen = bytearray()
        reader = Thread(target=_read, args=(ours, seen))
        reader.start()
        typed = Path(self.places["FOLDER"]) / "stdin"
        typed.write_text(stdin)
        with typed.open("rb") as file:
            arguments = [self.places.get(word, word) for word in words.split()]
            child = self.forks.start(arguments, stdin=file.fileno(), stdout=theirs, stderr=theirs)
        code = child.wait()
        os.close(theirs)
        reader.join()
        os.close(ours)
        return code, seen.decode()


def _leave_line_breaks(terminal: int) -> None:
    import termios

    mode = termios.tcgetattr(terminal)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, mode)


def _read(terminal: int, seen: bytearray) -> None:
    try:
        while part := os.read(terminal, 65536):
            seen += part
    except OSError:  # nobody has the other end any more
        pass


@pytest.fixture(scope="module")
def hostile(forks: Forks, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A memory, rows, a task and a run, whose names and contents are hostile."""
    folder = tmp_path_factory.mktemp("hostile") / EVIL
    folder.mkdir()
    model = folder / f"model {EVIL}"
    model.symlink_to(models("llama"))
    rows: list[dict[str, object]] = [
        {FIELD: f"{word} {EVIL} {number}", "label": f"{word} {FIELD}"} for number in range(12) for word in "ab"
    ]
    task, data = tiny_task(
        folder,
        template=f"{EVIL} {{text}}\nIs: {{kind}}",
        title=EVIL,
        note=EVIL,
        source=EVIL,
        labels=["no", f"y {EVIL}"],
    )
    runs = [*curve([50, 60], task=EVIL, model=EVIL), *curve([50, 60], task="b", model=EVIL)]
    places = {
        "FOLDER": str(folder),
        "MODEL": str(model),
        "ROWS": str(write_rows(folder / f"rows{EVIL}.jsonl", rows[:2])),
        "POOL": str(write_rows(folder / f"pool{EVIL}.jsonl", rows)),
        "BAD": str(write_rows(folder / f"bad{EVIL}.jsonl", [rows[0], {f"{FIELD}2": EVIL}])),
        "MEM": str(folder / f"mem{EVIL}.safetensors"),
        "OUT": str(folder / f"out{EVIL}.safetensors"),
        "TASK": str(task),
        "DATA": str(data),
        "RUN": str(write(folder / f"run{EVIL}", runs)),
        "ADAPTER": str(folder / f"adapter{EVIL}"),
        "RUNS": str(folder / f"runs{EVIL}"),
    }
    made = Hostile(forks, places)
    code, seen = made.run("think ROWS -m MODEL -T 2 --keep all -o MEM")
    assert code == 0, seen
    return made


COMMANDS = [
    "think ROWS -m MODEL -T 1 -v -o OUT",
    "think ROWS -m MODEL --dry-run",
    "calibrate MEM POOL --calibrate batch -o OUT",
    "inspect MEM --verify",
    "inspect MEM --json",
    "predict MEM ROWS",
    "predict MEM ROWS --output-format csv",
    "predict MEM ROWS --output-format tsv --at all",
    "predict MEM BAD --output-format csv --on-error skip --allow-errors 1",
    "predict MEM ROWS --show-prompt",
    "predict MEM ROWS --dry-run",
    "eval MEM ROWS",
    "eval MEM ROWS --json",
    "eval MEM ROWS --dry-run",
    "generate MEM ROWS --max-new-tokens 8",
    "generate MEM ROWS --max-new-tokens 2 --at all",
    "chat MEM --max-new-tokens 8",
    "select POOL -m MODEL --shots 2 --demos-by herding -o -",
    "list selections",
    "tune POOL -m MODEL -T 2 --folds 3 --shots 2 -o OUT",
    "vectors POOL -m MODEL --episodes 2 --shots 1 -o OUT",
    "tasks TASK --data-dir DATA",
    "tasks TASK --json",
    "tasks TASK --yaml",
    "tasks validate TASK",
    "run --task TASK --data-dir DATA -m MODEL -T 2 --seeds 1 -o RUNS",
    "run --task TASK --data-dir DATA -m MODEL -T 2 --seeds 1 --dry-run -o RUNS",
    *(f"report RUN --output-format {form}" for form in ("terminal", "markdown", "csv", "latex", "json", "html")),
    "export MEM --to peft -o ADAPTER",
    "push MEM me/memory --dry-run",
    "quantize MEM --to int8 -o OUT --eval ROWS",
    "compose MEM MEM -o OUT",
    "diff MEM MEM ROWS",
    "diff MEM MEM --json",
    "serve-config MEM",
    "doctor -m MODEL",
]


@pytest.mark.plugins
@pytest.mark.parametrize("words", COMMANDS)
def test_no_text_steers_the_terminal_of(words: str, hostile: Hostile) -> None:
    code, seen = hostile.run(words, stdin=f"{EVIL}\n")
    assert code == 0, seen
    assert STEERING.findall(OWN.sub("", seen)) == []
