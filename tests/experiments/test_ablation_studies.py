"""The studies of ablations that come with the package."""

from __future__ import annotations

import json

import pytest

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.study import packaged


@pytest.mark.parametrize("name", [name for name in packaged() if name.startswith("ablation/")])
def test_a_study_has_a_plan(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["study", "plan", name, "--no-probe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
