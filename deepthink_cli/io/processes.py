"""The only place that starts processes: none of them imports modules from the working directory.

With `-m` and `-c`, Python searches the working directory before its own modules, so that a `queue.py` among somebody's
data would run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

Process = subprocess.Popen[bytes]
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # for the processes that libraries start, too


def python(*words: str) -> list[str]:
    """The words that run this Python with some arguments."""
    return [sys.executable, "-P", *words]


def start(words: Sequence[str], variables: Mapping[str, str] = os.environ, **more: Any) -> Process:
    """Start a process with these variables of the environment; `more` are arguments of Popen."""
    return subprocess.Popen(words, env={**variables, **SAFE_PATH}, **more)
