"""Nothing that people read can steer their terminal, whoever wrote the names and texts in it; data stay as they are.

Texts, messages, and every command that prints rows, on a pseudo-terminal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from conftest import Models, write_rows
from helpers.forks import Forks
from helpers.said import Captured
from helpers.synthetic import curve, write
from helpers.tiny import tiny_task

from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.main import MESSAGE, run
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.events import Progress
from deepthink_cli.io.text import json_line, printable

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08\u202etxt.exe\u2066\u200f\u2028\x85\r\x0b|$&*`_"
KIND = "é שלום مرحبا 日本 👩‍👩‍👧 e\u0301"


def safe(capsys: Captured) -> tuple[str, str]:
    """What was printed on stdout and stderr, which no terminal obeys."""
    out, err = capsys.readouterr()
    assert not STEERING.search(out + err)
    return out, err


def test_a_note_is_one_line(capsys: Captured) -> None:
    note(f"wrote {EVIL}")
    _, err = safe(capsys)
    assert err.count("\n") == 1


def test_an_error_keeps_its_beginning_and_its_hint(capsys: Captured) -> None:
    assert run(["think", "x" * 10_000_000 + ".jsonl"]) == 2
    _, err = safe(capsys)
    assert err.startswith("deepthink: xxx")
    assert err.endswith("no such file; check the path, or use - for standard input\n")
    assert len(err) < MESSAGE + 10


@pytest.mark.parametrize(
    "arguments",
    [
        [EVIL],
        ["think", EVIL],
        ["think", f"--{EVIL}"],
        ["predict", EVIL, EVIL],
        ["tasks", EVIL + ".yaml"],
        ["run", "--task", EVIL, "-o", EVIL],
        [
            "think",
            "demos.jsonl",
            *("-m", EVIL, "--labels", EVIL, "--eta", EVIL),
            *("--template", EVIL, "-o", f"{EVIL}/x"),
        ],
        ["think", "demos.jsonl", "--config", "evil.yaml"],
    ],
)
def test_errors_do_not_steer(
    arguments: list[str], demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text(json.dumps({EVIL: 1}))
    assert run(arguments) == 2
    _, err = safe(capsys)
    assert err.startswith("deepthink: ")


@pytest.mark.plugins
def test_a_printed_task_of_any_characters_is_still_the_task(tmp_path: Path, capsys: Captured) -> None:
    from deepthink_cli.tasks.catalogue import read_tasks

    task, _ = tiny_task(tmp_path, title=EVIL, note=KIND)
    assert run(["tasks", str(task), "--yaml"]) == 0
    (tmp_path / "copy.yaml").write_text(safe(capsys)[0])
    assert read_tasks(tmp_path / "copy.yaml") == read_tasks(task)


def test_no_name_breaks_out_of_a_table(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "run", curve([50, 60], task="*a | b\n| c\r\n\\end{x} $1 <b> `d` & ~")))
    assert run(["report", folder, "--output-format", "markdown"]) == 0
    head, rule, row = [line for line in safe(capsys)[0].splitlines() if line.startswith("|")]
    assert len(re.findall(r"(?<!\\)\|", row)) == head.count("|") == rule.count("|")
    assert run(["report", folder, "--output-format", "csv"]) == 0
    assert len(list(csv.DictReader(io.StringIO(safe(capsys)[0])))) == 1


def test_a_progress_bar_shows_hostile_names_safely() -> None:
    from rich.console import Console

    show, screen = Show(CommonArguments()), io.StringIO()
    show(Progress(f"reading {EVIL}", 1, 2, {"more": EVIL}))
    assert show.bar is not None
    show.bar.live.console = Console(file=screen, width=200, force_terminal=False)
    show.bar.live.console.print(show.bar.get_renderable())
    assert r"\x1b]0;owned\x07" in screen.getvalue()
    assert not STEERING.search(screen.getvalue())


def test_what_steers_a_terminal_becomes_a_visible_escape() -> None:
    assert printable("a\x1b[31m\x9b\u202eb\n\x7f") == r"a\x1b[31m\x9b\u202eb\n\x7f"
    assert printable(KIND) == KIND


def test_every_character_of_json_comes_back() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x30000)]))
    line = json_line({every: every})
    assert json.loads(line) == {every: every}
    assert not STEERING.search(line)


def test_a_long_text_keeps_its_ends() -> None:
    assert printable("a" * 50 + "b" * 50, 20) == "a" * 10 + " ... " + "b" * 10


FIELD = "te\x1b\x9b2J\x07\u202ext"  # brackets have a meaning in a template
# What the program itself writes: colours, and progress bars, which draw their line again without a cursor.
OWN = re.compile(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\r?\x1b\[(?:2K|1A)")
SEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


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
        Path(self.places["OUT"]).unlink(missing_ok=True)  # of an earlier command, and of another kind
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
    "run --task TASK --data-dir DATA -m MODEL -T 2 --seeds 1 -o RUNS",
    "run --task TASK --data-dir DATA -m MODEL -T 2 --seeds 1 --dry-run -o RUNS",
    *(f"report RUN --output-format {form}" for form in ("terminal", "markdown", "csv", "latex", "json", "html")),
    "export MEM --to peft -o ADAPTER",
    "push MEM me/memory --dry-run",
    "quantize MEM --to int8 -o OUT",
    "diff MEM MEM ROWS",
    "diff MEM MEM --json",
    "serve-config MEM",
    "doctor -m MODEL",
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs copies of a process")
@pytest.mark.plugins
@pytest.mark.parametrize("words", COMMANDS)
def test_no_text_steers_the_terminal_of(words: str, hostile: Hostile) -> None:
    code, seen = hostile.run(words, stdin=f"{EVIL}\n")
    assert code == 0, seen
    assert SEEN.findall(OWN.sub("", seen)) == []
