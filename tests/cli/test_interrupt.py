"""Ctrl-C is obeyed within a second, also by code that does not hear it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

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
    assert made.stdout is not None
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
    assert process.stderr is not None
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


def test_the_cursor_of_a_terminal_comes_back() -> None:
    screen, terminal = os.openpty()
    process = started("swallowing", terminal)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert os.read(screen, 1000).decode().endswith(f"\x1b[?25h{INTERRUPTED}\r\n")
    os.close(screen)
    os.close(terminal)
