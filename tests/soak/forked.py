"""Processes of the program that begin at once: forked from one that has imported everything and done nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

SERVER = """
import json, os, signal, socket, sys
import deepthink_cli.engine.choice, deepthink_cli.prediction, deepthink_cli.artifact.files
from deepthink_cli.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
link = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, files, _, _ = socket.recv_fds(link, 2**16, 3)
    if not message:
        break
    child = os.fork()
    if child == 0:
        link.close()
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        sys.argv = json.loads(message)
        main()
    for file in files:
        os.close(file)
    link.send(json.dumps(child).encode())
    _, status, used = os.wait4(child, 0)
    link.send(json.dumps([os.waitstatus_to_exitcode(status), used.ru_maxrss]).encode())
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, and the most memory that it held, in the system's units (KiB on Linux)."""

    code: int
    peak: int


class Process:
    """A running command, with this end of its pipes."""

    def __init__(self, link: socket.socket, arguments: Sequence[str], errors: IO[bytes]) -> None:
        (inward, stdin), (stdout, outward) = os.pipe(), os.pipe()
        socket.send_fds(link, [json.dumps(["deepthink", *arguments]).encode()], [inward, outward, errors.fileno()])
        os.close(inward)
        os.close(outward)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self.link = link
        self.pid: int = json.loads(link.recv(2**10))

    def wait(self, seconds: float) -> Ended:
        """How it ends; raises TimeoutError where it does not in this time."""
        self.link.settimeout(seconds)
        return Ended(*json.loads(self.link.recv(2**10)))


class Forks:
    """Starts commands, one after the other."""

    def __init__(self) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", SERVER, str(theirs.fileno())]
        # Pipes, so that the streams are buffered as they are between two programs.
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()], env=usual
        )
        theirs.close()

    def start(self, arguments: Sequence[str], errors: IO[bytes]) -> Process:
        """Start the program with these arguments; stderr goes to a file."""
        return Process(self.link, arguments, errors)

    def close(self) -> None:
        """End the process that others are forked from."""
        self.link.close()
        self.server.communicate()
