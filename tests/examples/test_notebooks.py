"""The notebooks of examples/notebooks run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Soak

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent.parent / "examples" / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@every_notebook
def test_no_outputs_are_stored(path: Path) -> None:
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells(path))


@every_notebook
def test_the_code_of_a_notebook_runs_as_a_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells(path), start=1):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)


@every_notebook
def test_a_notebook_runs_in_jupyter_and_shows_tables(path: Path, soak: Soak) -> None:
    if not soak.long:
        pytest.skip("long form only: it starts a kernel")
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    seen = [data.get("text/html") or data["text/plain"] for data in shown]
    assert any("64 rows</caption>" in each for each in seen)
    assert not any("tensor(" in each for each in seen)
