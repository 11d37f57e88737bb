"""Findings of trying a model, kept in the user's cache folder, so that it is tried once and not at every start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
import transformers
from pydantic import BaseModel, ConfigDict, ValidationError

from deepthink_cli.engine.logits import HeadKind
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.probe import Verdict
from deepthink_cli.io.cache import read_cached, write_cached
from deepthink_cli.io.text import json_sha256

_SMALL = 2**24  # bytes; smaller models are probed in a fraction of a second


class Findings(BaseModel):
    """The findings of trying a model: the verdict of the probe and the kind of its head, with all they depend on."""

    model_config = ConfigDict(extra="forbid")

    depends_on: dict[str, str | None]
    head: HeadKind
    verdict: Verdict


def found_before(model: LanguageModel) -> Findings | None:
    """The findings of an earlier start; None if there are none, or if the entry is damaged or of another model."""
    depends_on = _dependencies(model)
    text = None if depends_on is None else read_cached(_name(depends_on))
    try:
        found = None if text is None else Findings.model_validate_json(text)
    except ValidationError:
        return None
    return found if found is not None and found.depends_on == depends_on else None


def keep(model: LanguageModel, verdict: Verdict) -> None:
    """Keep the findings for later starts, unless an error has failed the probe."""
    depends_on = _dependencies(model)
    if depends_on is not None and verdict.failure is None:
        found = Findings(depends_on=depends_on, head=model.head_kind, verdict=verdict)
        write_cached(_name(depends_on), found.model_dump_json())


def _name(depends_on: Mapping[str, str | None]) -> str:
    return f"probes/{json_sha256(depends_on)}"


def _dependencies(model: LanguageModel) -> dict[str, str | None] | None:
    """All that the findings depend on; None for a model whose findings are not kept.

    The findings of a small model, of weights without a digest, and of code from outside transformers are not kept.
    """
    identity, network = model.identity, model.network
    small = sum(each.nbytes for each in network.parameters()) < _SMALL
    if small or not identity.weights_sha256 or not type(network).__module__.startswith("transformers."):
        return None
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
