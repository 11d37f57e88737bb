"""The package works without its folder of plugins: the tests of the rest pass there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import deepthink_cli

PACKAGE, TESTS = Path(deepthink_cli.__file__).parent, Path(__file__).resolve().parents[1]
OF_OTHERS = ("examples", "package", "plugins", "research", "soak")


@pytest.mark.soak
def test_the_tests_of_the_core_pass_without_plugins(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "deepthink_cli", ignore=shutil.ignore_patterns("plugins", "__pycache__"))
    about = site / "deepthink_cli-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: deepthink-cli\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[console_scripts]\ndeepthink = deepthink_cli.__main__:main\n")
    folders = [path for path in sorted(TESTS.iterdir()) if path.is_dir() and path.name not in OF_OTHERS]
    files = [
        str(path) for path in (*folders, *TESTS.glob("test_*.py")) if any(path.rglob("test_*.py")) or path.is_file()
    ]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:]
