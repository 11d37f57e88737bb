"""Shell commands in which `deepthink` runs in the process of the test, which has imported everything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path

from deepthink_cli.cli.main import run

CLIENT = """#!{python} -SE
import json, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    socket.send_fds(link, [json.dumps(sys.argv[1:]).encode()], [1, 2])
    sys.exit(int(link.recv(16)))
"""


class Shell:
    """Runs commands as a step of a workflow does, with further variables; `folder` is for its programs."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        folder.mkdir()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(folder / "link"))
        self.server.listen()
        self.server.settimeout(0.05)
        program = folder / "deepthink"
        program.write_text(CLIENT.format(python=sys.executable, address=str(folder / "link")))
        program.chmod(0o755)
        (folder / "python").symlink_to(sys.executable)
        self.variables = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **variables}

    def __call__(self, command: str, variables: Mapping[str, str]) -> int:
        """The exit code of a command."""
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        with subprocess.Popen(words, env={**self.variables, **variables}) as process:
            while process.poll() is None:
                try:
                    link, _ = self.server.accept()
                except TimeoutError:
                    continue
                with link:
                    _answer(link)
        return process.returncode


def _answer(link: socket.socket) -> None:
    """Run one command line here, with the streams of the program that asks."""
    link.settimeout(None)
    message, streams, _, _ = socket.recv_fds(link, 2**16, 2)
    with ExitStack() as stack:
        out, err = (stack.enter_context(open(stream, "w", encoding="utf-8")) for stream in streams)
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        code = run(json.loads(message))
    link.send(str(code).encode())
