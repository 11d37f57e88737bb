"""`deepthink doctor`: the facts about this machine that a bug report needs."""

from __future__ import annotations

import os
import platform
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, report, write_json
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments
from deepthink_cli.io.text import size
from deepthink_cli.model.options import ModelOptions

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine

_PACKAGES = (
    "deepthink-cli",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "pydantic",
    "typer",
    "rich",
    "accelerate",
    "gguf",
    "peft",
    "bitsandbytes",
)
_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "CUDA_VISIBLE_DEVICES")


@about("doctor --json")
@grouped
def doctor(
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    common: Annotated[CommonArguments, Without("quiet", "verbose", "config")],
) -> None:
    """Show versions, devices, dtypes, a model's engine and caches."""
    from deepthink_cli.selection.store import default_folder

    engine, folder = _loaded(model.checked()), default_folder()
    cached = folder.rglob("*.safetensors")  # results of models, of `deepthink select`
    prefixed = sorted(name for name in os.environ if name.startswith("DEEPTHINK_"))
    facts: dict[str, Any] = {
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(),
        "engine": _engine(engine),
        "cache": _cache(),
        "selection_cache": {"path": str(folder), "bytes": sum(each.stat().st_size for each in cached)},
        "environment": {name: os.environ[name] for name in (*_VARIABLES, *prefixed) if name in os.environ},
    }
    if common.as_json:
        write_json(facts)
        return
    report(
        f"python       {facts['python']}",
        f"platform     {facts['platform']}",
        *(f"{name:<12} {number or 'not installed'}" for name, number in facts["packages"].items()),
        *(f"{item['device']:<12} {item['name']}; works: {', '.join(item['dtypes'])}" for item in facts["devices"]),
        *textwrap.wrap(
            "engine       {model} in {dtype} on {device}: {description}".format(**facts["engine"]),
            width=80,
            subsequent_indent=" " * 13,
            break_on_hyphens=False,
        ),
        f"cache        {facts['cache']['path']} ({size(facts['cache']['free_bytes'])} free)",
        f"selection    {facts['selection_cache']['path']} ({size(facts['selection_cache']['bytes'])} cached)",
        *(f"{name}={value}" for name, value in facts["environment"].items()),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]]:
    import torch

    devices = [("cpu", f"{platform.machine()}, {torch.get_num_threads()} threads")]
    devices += [(f"cuda:{n}", torch.cuda.get_device_name(n)) for n in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(("mps", "Apple GPU"))
    return [{"device": device, "name": name, "dtypes": _dtypes(device)} for device, name in devices]


def _dtypes(device: str) -> list[str]:
    """The dtypes in which a matrix product is finite on this device."""
    import torch

    working = []
    for name in ("float32", "bfloat16", "float16"):
        try:
            ones = torch.ones(8, 8, device=device, dtype=getattr(torch, name))
            if bool((ones @ ones).isfinite().all()):
                working.append(name)
        except (RuntimeError, TypeError):
            continue
    return working


def _loaded(options: ModelOptions) -> Engine:
    from deepthink_cli.engine.opening import find_model, load

    with Show(CommonArguments()) as tell:
        return load(find_model(options, tell), tell)


def _engine(engine: Engine) -> dict[str, Any]:
    """The engine that a probe chooses for the model on this machine, and the reason."""
    return {
        "model": engine.identity.id,
        "dtype": engine.identity.dtype,
        "device": engine.device,
        "packed": engine.description.startswith("packed"),
        "description": engine.description,
    }


def _cache() -> dict[str, Any]:
    from huggingface_hub.constants import HF_HUB_CACHE

    existing = Path(HF_HUB_CACHE)
    while not existing.exists():
        existing = existing.parent
    free = os.statvfs(existing)
    return {"path": HF_HUB_CACHE, "exists": Path(HF_HUB_CACHE).exists(), "free_bytes": free.f_bavail * free.f_frsize}
