"""`deepthink doctor`: what a bug report needs to know of this machine."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.cli import options
from deepthink_cli.cli.console import report, size, write_json
from deepthink_cli.cli.values import model_options

if TYPE_CHECKING:
    from deepthink_cli.options import ModelOptions

_PACKAGES = ("deepthink-cli", "torch", "transformers", "tokenizers", "safetensors", "datasets", "pydantic",
             "typer", "rich", "accelerate", "bitsandbytes")  # fmt: skip
_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "CUDA_VISIBLE_DEVICES")


def doctor(
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Versions, devices, number formats that work here, a model's engine, caches and offline flags, ready to paste."""
    chosen = model_options(model, revision, dtype, device, device_map, quantize, offline, trust_remote_code)
    found: dict[str, Any] = {
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(),
        "engine": _engine(chosen),
        "cache": _cache(),
        "environment": {name: os.environ[name] for name in _variables()},
    }
    if json:
        write_json(found)
        return
    report(
        f"python       {found['python']}",
        f"platform     {found['platform']}",
        *(f"{name:<12} {number or 'not installed'}" for name, number in found["packages"].items()),
        *(f"{one['device']:<12} {one['name']}; works: {', '.join(one['dtypes'])}" for one in found["devices"]),
        "engine       {model} in {dtype} on {device}: {description}".format(**found["engine"]),
        f"cache        {found['cache']['path']} ({size(found['cache']['free_bytes'])} free)",
        *(f"{name}={value}" for name, value in found["environment"].items()),
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
    """The number formats in which a matrix product gives finite numbers on this device."""
    import torch

    working = []
    for name in ("float32", "bfloat16", "float16"):
        try:
            one = torch.ones(8, 8, device=device, dtype=getattr(torch, name))
            if bool((one @ one).isfinite().all()):
                working.append(name)
        except (RuntimeError, TypeError):
            continue
    return working


def _engine(chosen: ModelOptions) -> dict[str, Any]:
    """Which engine a model gets here and why, found by a probe."""
    from deepthink_cli.cli.recall import find_model, load

    engine = load(find_model(chosen, quiet=False), quiet=False)
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


def _variables() -> list[str]:
    ours = [name for name in os.environ if name.startswith("DEEPTHINK_")]
    return [name for name in (*_VARIABLES, *sorted(ours)) if name in os.environ]
