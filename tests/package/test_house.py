"""Imports go downward only, files and functions stay small, and help is instant."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports import HEAVY, LAYERS, modules_after

import deepthink_cli

PACKAGE = Path(__file__).resolve().parent.parent.parent / "deepthink_cli"


def dotted(path: Path) -> str:
    """A module's dotted name below the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


ROOMS = [room for layer in LAYERS for room in layer]
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__") or (path.parent != PACKAGE and "import" in path.read_text())
)


def room_of(module: str) -> str:
    """The room of a module, given by its dotted name below the package."""
    rooms = [room for room in ROOMS if module == room or f"{module}.".startswith(f"{room}.")]
    assert rooms, f"{module} has no room in LAYERS of tests/imports.py"
    return rooms[0]


def layer_of(module: str) -> int:
    """The number of a module's layer."""
    return next(number for number, layer in enumerate(LAYERS) if room_of(module) in layer)


def imported(tree: ast.Module, everywhere: bool) -> Iterator[str]:
    """Modules that a file imports at its top or, `everywhere`, also for types and within functions."""
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative import"
            yield from (source_of(str(node.module), name.name) for name in node.names)


def source_of(module: str, name: str) -> str:
    """The module that `from module import name` imports, or takes the name from."""
    if module == "deepthink_cli" and name in deepthink_cli._HOME:
        return f"{module}.{deepthink_cli._HOME[name]}"
    path = PACKAGE.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if path.is_dir() or path.with_suffix(".py").is_file() else module


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_from_its_room_and_below(path: Path) -> None:
    own = ROOMS.index(room_of(dotted(path)))
    for name in imported(ast.parse(path.read_text()), everywhere=True):
        top, _, rest = name.partition(".")
        assert name != "deepthink_cli", f"{dotted(path)} imports the whole package"
        if top == "deepthink_cli":
            assert ROOMS.index(room_of(rest)) <= own, f"{dotted(path)} imports {name} from a room above"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_layer_imports_only_the_libraries_that_it_is_about(path: Path) -> None:
    layer = layer_of(dotted(path))
    for name in imported(ast.parse(path.read_text()), everywhere=False):
        top = name.partition(".")[0]
        if layer <= 1:
            assert top not in HEAVY | {"typer", "rich"}, f"{path.name} knows text and numbers, and imports {top}"
        if layer in (2, 3):
            assert top not in {"typer", "rich"}, f"{path.name} does not print, and imports {top}"
        if layer >= 4:
            assert top not in HEAVY, f"{path.name} imports {top} outside a command"


def test_momentum_is_a_matter_of_few_files() -> None:
    """The method is one value: everything else holds a `Method` or a `Gate`, not its fields."""
    naming = [dotted(path) for path in MODULES if "momentum" in path.read_text()]
    assert len(naming) <= 6, naming


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.end_lineno - node.body[0].lineno + 1 if node.end_lineno else 0
            assert body <= 40, f"{path.name}: {node.name} has {body} lines"


@pytest.mark.parametrize("arguments", [["--help"], ["think", "--help"], ["eval", "--help"], ["--version"], ["tasks"]])
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    assert not modules_after(arguments) & HEAVY


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
    for name in (
        imported(ast.Module([node], []), everywhere=False) if isinstance(node, (ast.Import, ast.ImportFrom)) else ()
    ):
        if name.startswith(("torch.nn", "deepthink_cli.engine.network", "deepthink_cli.engine.attention")):
            yield name
