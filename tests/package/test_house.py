"""The house: floors import downward only, files and functions stay small, and help is instant."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "deepthink_cli"
LAYERS = (
    ("errors", "io"),
    ("options", "provenance", "updates", "method", "data", "tasks", "metrics", "artifact.format", "artifact.metadata"),
    ("memory", "model", "engine", "thinking", "scoring", "artifact.files"),
    ("prediction", "evaluation", "workflows", "runs", "report"),
    ("cli",),
)
HEAVY = {"torch", "transformers", "safetensors", "datasets", "pyarrow", "tokenizers", "scipy", "matplotlib"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def layer_of(module: str) -> int:
    """The number of a module's layer; `module` is its dotted name below the package."""
    rooms = [(number, room) for number, layer in enumerate(LAYERS) for room in layer]
    return next((n for n, room in rooms if module == room or module.startswith(f"{room}.")), len(LAYERS))


def imports(tree: ast.Module) -> Iterator[str]:
    """Modules imported at the top of a file; what stands under TYPE_CHECKING does not run."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_from_its_layer_and_below(path: Path) -> None:
    own = layer_of(dotted(path))
    for name in imports(ast.parse(path.read_text())):
        top, _, rest = name.partition(".")
        if top == "deepthink_cli" and rest:
            assert layer_of(rest) <= own, f"{path.name} imports {name} from a layer above"
        if own <= 1:
            assert top not in HEAVY | {"typer", "rich"}, f"{path.name} knows text and numbers, and imports {top}"
        if own in (2, 3):
            assert top not in {"typer", "rich"}, f"{path.name} does not print, and imports {top}"
        if own >= 4:
            assert top not in HEAVY, f"{path.name} imports {top} outside a command"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
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

    engine = load_model()
    given = DemonstrationSet.of([Example("good", "yes"), Example("bad", "no")], "{text}: {label}")
    save_memory(next(think(engine, tokenize_demonstrations(engine.tokenizer, given))), tmp_path / "mem.safetensors")
    assert not modules_after(["inspect", "--verify", str(tmp_path / "mem.safetensors")]) & HEAVY


def test_only_the_engine_and_the_model_touch_a_network() -> None:
    touched = [
        f"{dotted(path)}:{node.lineno} {name}"
        for path in MODULES
        if dotted(path).partition(".")[0] not in ("engine", "model")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in touched_by(node)
    ]
    assert not touched


def touched_by(node: ast.AST) -> Iterator[str]:
    """The names in a node that only code which runs a network uses."""
    if isinstance(node, ast.Attribute) and node.attr in {"network", "nn", "forward", "base_model"}:
        yield node.attr
    if isinstance(node, ast.Name) and node.id in {"nn", "LanguageModel", "PreTrainedModel"}:
        yield node.id
    for name in imports(ast.Module([node], [])) if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
        if name.startswith(("torch.nn", "deepthink_cli.engine.network", "deepthink_cli.engine.attention")):
            yield name
