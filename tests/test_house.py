"""The house: floors import downward only, files and functions stay small, and help is instant."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "deepthink_cli"
WORDS = {
    "errors",
    "documents",
    "config",
    "rows",
    "threads",
    "examples",
    "template",
    "metrics",
    "origin",
    "atomic",
    "artifact",
    "contents",
    "results",
    "samedata",
    "journal",
    "outputs",
    "tasks",
    "significance",
    "published",
}
TENSORS = {
    "architectures",
    "limits",
    "fingerprint",
    "blueprint",
    "tokens",
    "fitting",
    "footprint",
    "memory",
    "head",
    "model",
    "agreement",
    "thinking",
    "scoring",
    "store",
    "attention",
    "activation",
    "feedforward",
    "packing",
    "reading",
    "passes",
    "budget",
    "probe",
    "engine",
}
STUDIES = {
    "prediction",
    "evaluation",
    "study",
    "trial",
    "samples",
    "jobs",
    "groups",
    "summary",
    "footnotes",
    "curves",
    "plots",
}
FLOORS = (WORDS, TENSORS, STUDIES)
HEAVY = {"torch", "transformers", "safetensors", "datasets", "pyarrow", "tokenizers", "scipy", "matplotlib"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def floor_of(name: str) -> int:
    return next((number for number, rooms in enumerate(FLOORS) if name in rooms), len(FLOORS))


def imports(tree: ast.Module) -> Iterator[str]:
    """Modules imported at the top of a file; what stands under TYPE_CHECKING does not run."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_floor_and_below(path: Path) -> None:
    own = floor_of(room(path))
    for name in imports(ast.parse(path.read_text())):
        top, *rest = name.split(".")
        if top == "deepthink_cli" and rest:
            assert floor_of(rest[0]) <= own, f"{path.name} imports {name} from a floor above"
        if own == 0:
            assert top not in HEAVY | {"typer", "rich"}, f"{path.name} is on the floor of words and imports {top}"
        if own in (1, 2):
            assert top not in {"typer", "rich"}, f"{path.name} knows tensors, not people, and imports {top}"
        if own == len(FLOORS):
            assert top not in HEAVY, f"{path.name} imports {top} outside a command"
            assert not rest or floor_of(rest[0]) in (0, len(FLOORS)), f"{path.name} imports {name} outside a command"


def test_every_module_has_a_floor() -> None:
    known = WORDS | TENSORS | STUDIES | {"cli", "__init__", "__main__"}
    assert {room(path) for path in MODULES} <= known


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.end_lineno - node.body[0].lineno + 1 if node.end_lineno else 0
            assert body <= 40, f"{path.name}: {node.name} has {body} lines"


@pytest.mark.parametrize("arguments", [["--help"], ["think", "--help"], ["eval", "--help"], ["--version"]])
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    assert not modules_after(arguments) & HEAVY


def modules_after(arguments: list[str]) -> set[str]:
    """Top-level modules that one command line leaves imported."""
    program = (
        "import sys\nfrom deepthink_cli.cli.main import run\n"
        f"run({arguments!r})\nsys.stderr.write(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_inspect_does_not_import_torch(tmp_path: Path) -> None:
    from deepthink_cli import DemonstrationSet, Example, load_model, save_memory, think, tokenize_demonstrations

    model = load_model()
    given = DemonstrationSet.of([Example("good", "yes"), Example("bad", "no")], "{text}: {label}")
    save_memory(next(think(model, tokenize_demonstrations(model.tokenizer, given))), tmp_path / "mem.safetensors")
    assert not modules_after(["inspect", "--verify", str(tmp_path / "mem.safetensors")]) & HEAVY
