"""Verdicts of the probe, kept in the user's cache folder, so that a model is probed once and not at every start."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
import transformers
from pydantic import BaseModel, ConfigDict, ValidationError

from deepthink_cli.engine import probe
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.probe import Verdict
from deepthink_cli.io.cache import read_cached, write_cached
from deepthink_cli.io.text import json_sha256

_SMALL = 2**24  # bytes; smaller models are probed in a fraction of a second


class _Entry(BaseModel):
    """A verdict, and all that it depends on."""

    model_config = ConfigDict(extra="forbid")

    depends_on: dict[str, str | None]
    verdict: Verdict


def verdict_of(model: LanguageModel) -> Verdict:
    """The kept verdict of a model, or that of a new probe (`try_packed`), which is then kept.

    An error that the network's attention did not cause is no verdict to keep. Neither is kept a verdict of a small
    model, of weights without a digest, and of a network whose code is not that of transformers.
    """
    network = model.network
    small = sum(each.nbytes for each in network.parameters()) < _SMALL
    if small or not model.identity.weights_sha256 or not type(network).__module__.startswith("transformers."):
        return probe.try_packed(model)
    depends_on = _dependencies(model)
    name = f"probes/{json_sha256(depends_on)}"
    kept = _read(name)
    if kept is not None and kept.depends_on == depends_on:
        return kept.verdict
    verdict = probe.try_packed(model)
    if verdict.failure is None:
        write_cached(name, _Entry(depends_on=depends_on, verdict=verdict).model_dump_json())
    return verdict


def _read(name: str) -> _Entry | None:
    text = read_cached(name)
    try:
        return None if text is None else _Entry.model_validate_json(text)
    except ValidationError:  # damaged
        return None


def _dependencies(model: LanguageModel) -> dict[str, str | None]:
    identity, network = model.identity, model.network
    devices = {each.device for each in network.parameters()}
    names = {torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices}
    return {
        "configuration": identity.config_sha256,
        "weights": identity.weights_sha256,
        "tokenizer": identity.tokenizer_sha256,
        "quantize": identity.quantize,
        "dtype": identity.dtype,
        "attention": str(network.config._attn_implementation),
        "devices": ", ".join(sorted(names)),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "engine": _engine_sha256(),
    }


@cache
def _engine_sha256() -> str:
    """Digest of the code of the engines."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
