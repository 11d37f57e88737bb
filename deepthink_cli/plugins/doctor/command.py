"""`deepthink doctor`: the facts about this machine that a bug report needs."""

from __future__ import annotations

import os
import platform
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, report, write_json
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments
from deepthink_cli.model.options import ModelOptions

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


@about("doctor --json", group="This machine")
@grouped
def doctor(
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    common: Annotated[CommonArguments, Without("quiet", "verbose", "config")],
) -> None:
    """Show versions, devices, a model's engine and caches."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from deepthink_cli.engine.opening import find_model, load
    from deepthink_cli.events import silent
    from deepthink_cli.io.cache import cache_folder

    options = model.checked()
    with Show(CommonArguments()) as tell:
        engine = load(find_model(options, tell), silent)
    prefixed = sorted(name for name in os.environ if name.startswith("DEEPTHINK_"))
    facts: dict[str, Any] = {
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(),
        "engine": f"{engine.identity.id} in {engine.identity.dtype} on {engine.device}: {engine.description}",
        "hub cache": HF_HUB_CACHE,
        "cache": str(cache_folder()),
        "environment": {name: os.environ[name] for name in (*_VARIABLES, *prefixed) if name in os.environ},
    }
    if common.as_json:
        write_json(facts)
        return
    shown = {
        **{name: facts[name] for name in ("python", "platform", "hub cache", "cache")},
        **{name: number or "not installed" for name, number in facts["packages"].items()},
        **facts["devices"],
        "engine": facts["engine"],
    }
    for name, text in shown.items():
        report(*textwrap.wrap(f"{name:<12} {text}", width=80, subsequent_indent=" " * 13, break_on_hyphens=False))
    report(*(f"{name}={value}" for name, value in facts["environment"].items()))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> dict[str, str]:
    """The names of the devices that torch sees."""
    import torch

    devices = {"cpu": f"{platform.machine()}, {torch.get_num_threads()} threads"}
    devices |= {f"cuda:{n}": torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())}
    return devices | ({"mps": "Apple GPU"} if torch.backends.mps.is_available() else {})
