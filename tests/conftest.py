"""Fixtures: tiny models on disk, demonstrations, and the real data where they lie beside the checkout."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.forks import Forks
from hypothesis import HealthCheck, settings

# Libraries of models are imported where they are used: the process that hands out the tests needs none.
if TYPE_CHECKING:
    from deepthink_cli import DemonstrationSet, Memory, Method
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.network import LanguageModel
    from deepthink_cli.engine.probe import Verdict
    from deepthink_cli.model.options import ModelOptions
    from deepthink_cli.model.spec import ModelSpec

HAS_PLUGINS = find_spec("deepthink_cli.plugins") is not None
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
Loaded = Callable[[str], "Engine"]
Models = Callable[[str], Path]
TEMPLATE = "Review: {review}\nSentiment: {sentiment}"
REVIEWS = [
    ("a warm and funny film", "positive"),
    ("a dull and lifeless mess", "negative"),
    ("tender, wise and moving", "positive"),
    ("far too long", "negative"),
]


@dataclass(frozen=True)
class Soak:
    """How long the harnesses of tests/soak run, and with which seed."""

    long: bool
    seed: int

    def count(self, short: int, long: int) -> int:
        """How often something is tried: `short` in the suite, `long` with --soak."""
        return long if self.long else short

    def draw(self, name: str) -> random.Random:
        """Random numbers of a harness's own, the same for the same seed."""
        return random.Random(f"{name} {self.seed}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make soak` runs the long form, and `make gpu` what needs a GPU."""
    parser.addoption("--soak", action="store_true", help="run the harnesses of tests/soak in their long form")
    parser.addoption("--seed", type=int, default=0, help="what the harnesses of tests/soak draw from")
    parser.addoption(
        "--gpu", action="store_true", help="let torch see the GPUs of this machine, for tests/engine/test_gpu.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Properties hold for a few examples, the same every time, or with --soak for very many, drawn from --seed.

    Expected values are those of a processor, so that the models of the tests, also in other processes, run on it.
    """
    if not config.getoption("--gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    usual = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    settings.register_profile("suite", max_examples=30, derandomize=True, **usual)
    settings.register_profile("soak", max_examples=2000, **usual)
    settings.load_profile("soak" if config.getoption("--soak") else "suite")
    if config.getoption("--soak"):
        config.option.hypothesis_seed = str(config.getoption("--seed"))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules that import plugins are left out where the package has none."""
    if HAS_PLUGINS or collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    return "deepthink_cli.plugins" in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `soak` runs with --soak only, and what is marked `plugins` where there are plugins."""
    names = [*([] if config.getoption("--soak") else ["soak"]), *([] if HAS_PLUGINS else ["plugins"])]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in names)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """The garbage collector looks for cycles after each module only: its work took an eighth of the suite."""
    gc.disable()
    _collect_garbage()


def _collect_garbage() -> None:
    gc.collect()
    gc.freeze()  # what is left stays, and need not be looked through again


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_collected_after_each_module() -> Iterator[None]:
    yield
    _collect_garbage()


class _Kept:
    """Standard error, whose text is kept as well; that of a command within a command is kept by the inner one."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.text = stream.stream if isinstance(stream, _Kept) else stream, ""

    def write(self, text: str) -> int:
        self.text += text
        return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@pytest.fixture(autouse=True)
def _commands_name_no_option_that_they_do_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a command prints for people is checked, in every test that runs one in this process."""
    from helpers.advice import not_had

    from deepthink_cli.cli import main

    def kept(arguments: list[str], inner: Callable[[list[str]], int] = main._run) -> int:
        stderr = sys.stderr
        sys.stderr = found = _Kept(stderr)  # type: ignore[assignment]
        try:
            code = inner(arguments)
        finally:
            sys.stderr = stderr
        wrong = {line: names for line in found.text.splitlines() if (names := not_had(line, arguments))}
        assert not wrong, f"options that deepthink {' '.join(arguments[:2])} does not have: {wrong}"
        return code

    monkeypatch.setattr(main, "_run", kept)


_specs: dict[object, ModelSpec] = {}
_engines: dict[object, Engine] = {}
_verdicts: dict[object, Verdict] = {}


@pytest.fixture(autouse=True)
def _commands_load_a_model_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use a model that an earlier one has opened, if its options and files are the same."""
    if "loaded_anew" not in request.fixturenames:
        from deepthink_cli.engine import opening, probe
        from deepthink_cli.experiments.executors import handler

        _load_model()
        _probe()
        monkeypatch.setattr(probe, "try_packed", _probed)
        for module in (opening, handler):
            monkeypatch.setattr(module, "open_model", _opened)
            monkeypatch.setattr(module, "load_model", _loaded)


@pytest.fixture
def loaded_anew() -> None:
    """Commands load and probe their models all the same: for tests of what they do then."""


def _opened(options: ModelOptions) -> ModelSpec:
    from deepthink_cli.model.opening import open_model
    from deepthink_cli.model.options import POCKET

    folder = Path(options.model).absolute()
    if not (options.model == POCKET or folder.is_dir()):
        return open_model(options)
    key = (options, _files(folder))
    if key not in _specs:
        _specs[key] = open_model(options)
    return _specs[key]


@cache
def _load_model() -> Callable[..., Engine]:
    """What loads models, as it is before anything replaces it."""
    from deepthink_cli.engine import opening

    return opening.load_model


def _loaded(spec: str | ModelSpec = "pocket", **options: Any) -> Engine:
    load_model = _load_model()
    if isinstance(spec, str):
        return load_model(spec, **options)
    key = (spec.options, _files(Path(spec.source)))
    if key not in _engines:
        _engines[key] = load_model(spec)
    return copy(_engines[key])


@cache
def _probe() -> Callable[[LanguageModel], Verdict]:
    """What probes models, as it is before anything replaces it."""
    from deepthink_cli.engine.probe import try_packed

    return try_packed


def _probed(model: LanguageModel) -> Verdict:
    key = (model.identity, model.device)
    if key not in _verdicts:
        _verdicts[key] = _probe()(model)
    return _verdicts[key]


def _files(folder: Path) -> tuple[object, ...]:
    """What changes when a file of a folder does."""
    stats = ((path, path.stat()) for path in sorted(folder.glob("*")))
    return tuple((path, each.st_size, each.st_mtime_ns) for path, each in stats)


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> Soak:
    """The length and the seed of a harness."""
    return Soak(request.config.getoption("--soak"), request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Directories of random tiny models, by family, each written once."""
    from helpers.families import write_model

    root = tmp_path_factory.mktemp("models")

    def directory(family: str) -> Path:
        folder = root / family
        return folder if folder.exists() else write_model(folder, family)

    return directory


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Copies of a process that has imported the large libraries, and nothing of the package."""
    made = Forks(tmp_path_factory.mktemp("forks"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def forks(libraries: Forks, models: Models) -> Iterator[Forks]:
    """Copies of a process that has run both stages once."""
    made = libraries.copy()
    memory, rows = made.folder / "mem.safetensors", write_reviews(made.folder / "demos.jsonl")
    made.warm(["think", str(rows), "-m", str(models("llama")), "-T", "2", "-q", "-o", str(memory)])
    made.warm(["predict", str(memory), str(rows), "-q", "-o", str(made.folder / "labels.jsonl")])
    yield made
    made.close()


@pytest.fixture(scope="session")
def loaded(models: Models) -> Loaded:
    """Engines of the tiny models, by family, each loaded once; a test that changes its model loads its own."""
    from deepthink_cli import load_model

    return cache(lambda family: load_model(str(models(family))))


@pytest.fixture(scope="session")
def llama(loaded: Loaded) -> Engine:
    """A random tiny Llama with grouped heads."""
    return loaded("llama")


@pytest.fixture(scope="session")
def thought_of(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Copies of memories of the four reviews, by their target, the model's family and options; each is made once."""
    from deepthink_cli.cli.main import run

    root = tmp_path_factory.mktemp("memories")
    demos = write_reviews(root / "demos.jsonl")

    @cache
    def made(family: str, *options: str) -> bytes:
        path = root / "mem.safetensors"
        assert run(["think", str(demos), "-m", str(models(family)), *options, "-q", "-o", str(path)]) == 0
        return path.read_bytes()

    def copy(target: Path, family: str, *options: str) -> Path:
        target.write_bytes(made(family, *options))
        return target

    return copy


@pytest.fixture
def reviews() -> DemonstrationSet:
    """Four solved reviews."""
    from deepthink_cli import DemonstrationSet, Example

    return DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    """The four reviews as JSON Lines."""
    return write_reviews(tmp_path / "demos.jsonl")


def read(engine: Engine, token_ids: Iterable[int], history: Memory | None = None, start: int = 0) -> Memory:
    """The present of one reading."""
    from deepthink_cli.engine.base import Reading

    (present,) = engine.read([Reading(tuple(token_ids), history, start)])
    return present


def readings_of(engine: Engine, demonstrations: DemonstrationSet, method: Method | None = None) -> Iterator[Memory]:
    """The memory after every reading of demonstrations."""
    from deepthink_cli import think, tokenize_demonstrations

    read = tokenize_demonstrations(engine.tokenizer, demonstrations)
    return think(engine, read, *([] if method is None else [method]))


def write_reviews(path: Path) -> Path:
    """Write the four reviews as JSON Lines."""
    return write_rows(path, [{"review": text, "sentiment": label} for text, label in REVIEWS])


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def shared(part: str) -> Path:
    """A folder of real models, tokenizers or data; the test is skipped where it is not beside the checkout."""
    path = SHARED / part
    if not path.exists():
        pytest.skip(f"no {part} beside this checkout")
    return path
