"""Folders import only those below them, only the engine and the model know networks, and help is instant."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from helpers.forks import Forks
from helpers.imports import HEAVY, ORDER, modules_after, modules_of

import deepthink_cli

PACKAGE = Path(deepthink_cli.__file__).parent


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The modules of the package by their names."""
    paths = (path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of this package that a file imports anywhere, relative to the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[2] for name in node.names if name.name.startswith("deepthink_cli"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "deepthink_cli":
            inside = str(node.module).partition(".")[2]
            yield from (
                [f"{inside}.{name.name}" for name in node.names] if inside else (name.name for name in node.names)
            )


def test_a_folder_imports_only_those_before_it(modules: dict[str, ast.Module]) -> None:
    rank = {folder: number for number, folder in enumerate(ORDER)}
    climbing = []
    for module, tree in modules.items():
        folder = module.partition(".")[0]
        for name in imported(tree):
            other = deepthink_cli._HOME.get(name, name).partition(".")[0]
            if rank[other] > rank[folder]:
                climbing.append(f"{module} imports {name}")
    assert not climbing


@pytest.mark.parametrize(
    "folder",
    [
        *("artifact", "calibration", "engine", "evaluation", "experiments", "model"),
        *("prediction", "report", "scoring", "techniques", "tuning"),
    ],
)
def test_no_modules_of_a_folder_import_each_other_in_a_circle(modules: dict[str, ast.Module], folder: str) -> None:
    inside = {name: tree for name, tree in modules.items() if name.partition(".")[0] == folder}
    reached = {
        name: {each for each in inside for other in imported(tree) if f"{other}.".startswith(f"{each}.")}
        for name, tree in inside.items()
    }
    TopologicalSorter(reached).prepare()  # raises CycleError


def test_a_plugin_imports_no_other_plugin(modules: dict[str, ast.Module]) -> None:
    crossing = [
        f"{module} imports {name}"
        for module, tree in modules.items()
        if module.startswith("plugins.") and module.count(".") > 1
        for name in imported(tree)
        if name.startswith("plugins.") and name.split(".")[1] != module.split(".")[1]
    ]
    assert not crossing


def test_only_the_engine_the_model_and_two_plugins_touch_a_network(modules: dict[str, ast.Module]) -> None:
    touched = [
        f"{module}:{node.lineno} {name}"
        for module, tree in modules.items()
        if module.partition(".")[0] not in ("engine", "model")
        and module not in ("plugins.context_tuning.training", "plugins.vectors.passes")
        for node in ast.walk(tree)
        for name in touched_by(node)
    ]
    assert not touched


def touched_by(node: ast.AST) -> Iterator[str]:
    """The names in a node that only code which runs a network uses."""
    if isinstance(node, ast.Attribute) and node.attr in {"network", "nn", "forward", "base_model"}:
        yield node.attr
    if isinstance(node, ast.Name) and node.id in {"nn", "LanguageModel", "PreTrainedModel"}:
        yield node.id
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
        ("torch.nn", "deepthink_cli.engine.network", "deepthink_cli.engine.attention")
    ):
        yield str(node.module)


def test_help_does_not_import_torch() -> None:
    lines = (["--help"], ["think", "--help"], ["eval", "--help"], ["--version"], ["tasks"])
    assert not modules_after(*lines) & HEAVY


def test_mistakes_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    rows, missing, memory = tmp_path / "rows.csv", str(tmp_path / "missing"), str(tmp_path / "m.safetensors")
    rows.write_text("text,label\ngood,yes\nbad,no\n")
    lines = (
        ["think", str(rows), "--eta", "2"],
        ["think", str(rows), "--label-field", "topic", "-o", memory],
        ["think", str(rows), "-m", "./nowhere", "-o", memory],
        *([command, missing] for command in ("think", "predict", "calibrate", "chat", "tune", "report")),
        *([command, missing, str(rows)] for command in ("predict", "eval", "generate", "diff")),
        *([command, missing, "-o", memory] for command in ("export", "quantize", "select", "vectors")),
        ["run", "--task", "nope", "-o", missing],
        *(["study", command, missing] for command in ("run", "plan", "report")),
    )
    assert not modules_after(*lines) & {"torch", "transformers"}


def test_the_registries_and_the_header_of_a_memory_do_not_import_torch() -> None:
    names = ("techniques", "calibration", "selection", "engine")
    modules = (*(f"{name}.registry" for name in names), "updates", "export", "artifact.format", "tasks.catalogue")
    assert not modules_of("".join(f"import deepthink_cli.{name}\n" for name in modules)) & HEAVY


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
    select: "poll",
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
