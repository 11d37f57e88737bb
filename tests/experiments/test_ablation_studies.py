"""The studies of ablations that come with the package."""

from __future__ import annotations

import pytest
from helpers.said import Captured, json_of

from deepthink_cli.experiments.study import packaged


@pytest.mark.parametrize("name", [name for name in packaged() if name.startswith("ablation/")])
def test_a_study_has_a_plan(capsys: Captured, name: str) -> None:
    assert json_of(capsys, "study", "plan", name, "--no-probe", "--json")
