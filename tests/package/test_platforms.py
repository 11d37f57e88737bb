"""The package can be imported where Python lacks what only POSIX systems have, as on Windows."""

from __future__ import annotations

import pytest
from helpers.forks import Forks

IMPORT_ALL = """
import importlib, os, pkgutil, select, signal, sys
import deepthink_cli

OPTIONAL = (
    "deepthink_cli.plugins.harnesses.lighteval",
    "deepthink_cli.plugins.harnesses.lm_eval",
    "deepthink_cli.plugins.vllm.connector",
)

def import_all():
    for module in pkgutil.walk_packages(deepthink_cli.__path__, "deepthink_cli."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            if not module.name.startswith(OPTIONAL):  # these have classes derived from those of optional packages
                raise

import_all()  # the libraries find out by themselves where they run
for name in [name for name in sys.modules if name.startswith("deepthink_cli.")]:
    del sys.modules[name]
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "O_DIRECTORY O_NOFOLLOW fork openpty set_blocking statvfs sysconf",
    select: "PIPE_BUF poll",
    signal: "SIGHUP SIGKILL set_wakeup_fd",
}.items():
    for name in names.split():
        delattr(module, name)
import_all()
print(len([name for name in sys.modules if name.startswith("deepthink_cli.")]))
"""


@pytest.mark.soak  # imports every module and every library that any of them uses, twice
def test_every_module_is_imported_without_what_only_posix_has(libraries: Forks) -> None:
    done = libraries.program(IMPORT_ALL)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 70
