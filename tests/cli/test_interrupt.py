"""Ctrl-C is obeyed within a second, also by code that does not hear it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from helpers.soak import with_soak

from deepthink_cli.cli.process import INTERRUPTED

DEAF = """
import hashlib, signal, sys, time
from deepthink_cli.cli import main
class Clearing:
    def __del__(self):
        print("begun", flush=True)
        time.sleep(60)
def run(arguments):
    if arguments == ["clearing up"]:
        Clearing()
        time.sleep(60)
    while arguments == ["swallowing"]:
        try:
            print("begun", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)
signal.signal(signal.SIGINT, signal.default_int_handler)
main.run = run
main.main()
"""


def started(kind: str, stderr: int) -> subprocess.Popen[str]:
    made = subprocess.Popen([sys.executable, "-c", DEAF, kind], stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert made.stdout.readline() == "begun\n"
    time.sleep(0.3)
    return made


@pytest.mark.parametrize("kind", ["swallowing", "computing", pytest.param("clearing up", marks=pytest.mark.soak)])
def test_code_that_does_not_hear_ctrl_c_is_ended(kind: str) -> None:
    process = started(kind, subprocess.PIPE)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert time.monotonic() - sent < 1.5  # a second, and what a busy machine adds
    assert process.stderr.read() == INTERRUPTED + "\n"


@pytest.mark.parametrize(("handler", "ended"), [("default_int_handler", True), ("SIG_IGN", False)])
def test_ctrl_c_while_the_program_is_imported_is_heard_unless_it_was_to_be_ignored(handler: str, ended: bool) -> None:
    program = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.{handler})
class Interrupting:
    def find_spec(self, name, *_):
        if name == "deepthink_cli.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from deepthink_cli.__main__ import main
sys.argv = ["deepthink", "--version"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if ended:
        assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{INTERRUPTED}\n")
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("deepthink ")


BEFORE = """
import contextlib, os, signal, sys
seen, handle = [], signal.signal
class Seeing:
    def find_spec(self, name, *_):
        seen.append(name)
def handled(number, handler):
    if number == signal.SIGINT and handler is not signal.default_int_handler:
        os.write(1, " ".join(seen).encode())
        os._exit(0)
    return handle(number, handler)
signal.signal = handled
sys.meta_path.insert(0, Seeing())
from deepthink_cli.__main__ import main
main()
"""


def test_nothing_else_is_imported_before_ctrl_c_is_heard() -> None:
    """Python itself hears it earlier, and would show a traceback."""
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True)
    own = ["deepthink_cli", "deepthink_cli.__main__", "deepthink_cli.cli", "deepthink_cli.cli.process"]
    assert [name for name in done.stdout.split() if name != "__future__"] == own


SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
TRIED = [(signal.SIGTERM, "native"), (signal.SIGTERM, "python"), (signal.SIGHUP, "python"), (signal.SIGINT, "native")]
HOLDING = """
import hashlib, signal, sys, time
from pathlib import Path
from deepthink_cli.cli import main
from deepthink_cli.io.atomic import making_folder, replacing
from deepthink_cli.io.temporary import temporary_folder
def run(arguments):
    with replacing(arguments[0]) as file, making_folder(arguments[1]), temporary_folder(arguments[2]):
        file.write_text("half")
        print("begun", flush=True)
        if arguments[3] == "native":
            hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)
        time.sleep(60)
signal.signal(signal.SIGHUP, signal.Handlers[sys.argv[5]])
main.run = run
main.main()
"""


@pytest.mark.parametrize(("sent", "way"), with_soak(product(SIGNALS, ["python", "native"]), TRIED))
def test_temporary_folders_go_whatever_ends_the_process(sent: signal.Signals, way: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    words = [str(tmp_path / "file"), str(tmp_path / "folder"), str(tmp_path), way, "SIG_DFL"]
    process = subprocess.Popen([sys.executable, "-c", HOLDING, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    assert len(list(tmp_path.iterdir())) == 4
    process.send_signal(sent)
    assert process.wait(30) in ({-sent, 128 + sent} if sent != signal.SIGINT else {130})
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["folder"]


def test_a_process_that_is_to_ignore_a_hangup_continues(tmp_path: Path) -> None:
    words = [str(tmp_path / "file"), str(tmp_path / "folder"), str(tmp_path), "python", "SIG_IGN"]
    process = subprocess.Popen([sys.executable, "-c", HOLDING, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.kill()
    process.wait()


def test_the_cursor_of_a_terminal_comes_back() -> None:
    screen, terminal = os.openpty()
    process = started("swallowing", terminal)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert os.read(screen, 1000).decode().endswith(f"\x1b[?25h{INTERRUPTED}\r\n")
    os.close(screen)
    os.close(terminal)
