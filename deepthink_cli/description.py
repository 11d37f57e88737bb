"""What a memory is, as named lines of text: shown by `deepthink inspect` and in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deepthink_cli.data.chat import Chat
from deepthink_cli.data.template import Template
from deepthink_cli.provenance import ModelIdentity, Provenance, Quantized, Selected, Technique, Tuned


class Origin(Protocol):
    """What the metadata of a file and the provenance of a memory call by the same names."""

    @property
    def model(self) -> ModelIdentity: ...
    @property
    def task(self) -> str | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def selected(self) -> Selected | None: ...
    @property
    def technique(self) -> Technique | None: ...
    @property
    def tuned(self) -> Tuned | None: ...
    @property
    def quantized(self) -> Quantized | None: ...


def origin_lines(origin: Origin, method: str) -> dict[str, str]:
    """The model, the method, and where demonstrations and method come from, by name."""
    model, technique, tuned = origin.model, origin.technique, origin.tuned
    revision = f" at {model.revision}" if model.revision else ""
    quantized = f", {model.quantize}" if model.quantize else ""
    adapter = f", with {model.adapter}" if model.adapter else ""
    drawn = "" if origin.seed is None else f", seed {origin.seed}"
    return {
        "model": f"{model.id}{revision} ({model.architecture}, {model.dtype}{quantized}{adapter})",
        "method": method,
        **({"made by": str(technique)} if technique else {}),
        **({"words": _words(technique)} if technique and technique.words else {}),
        **({"task": f"{origin.task}{drawn}"} if origin.task else {}),
        **({"selected": str(origin.selected)} if origin.selected else {}),
        **({"tuned": _tuned(tuned)} if tuned else {}),
        **({"quantized": str(origin.quantized)} if origin.quantized else {}),
    }


def prompt_lines(labels: Sequence[str], template: Template, chat: Chat | None) -> dict[str, str]:
    """The labels and how the prompts are written, by name."""
    return {
        "labels": ", ".join(labels) or "with every input",
        "template": f"{template.pattern!r}, separator {template.separator!r}",
        **({"prompts": f"{chat}, template {chat.template_sha256[:12]}"} if chat else {}),
    }


def method_text(iterations: int, rule: str, positions: str) -> str:
    """The method in one line."""
    return f"T = {iterations}, {rule}, {positions} positions"


def provenance_lines(provenance: Provenance) -> dict[str, str]:
    """All of a memory's provenance, by name."""
    method, demonstrations = provenance.method, provenance.demonstrations
    read = f"{len(demonstrations.examples)}, L = {len(demonstrations.token_ids)} tokens"
    return {
        **origin_lines(provenance, method_text(method.iterations, str(method.update), method.positions)),
        "demonstrations": read,
        **prompt_lines(demonstrations.labels, demonstrations.template, demonstrations.chat),
    }


def stored_text(
    iterations: Sequence[int], layers: int, keys: Sequence[int], values: Sequence[int], dtype: str = "float32"
) -> str:
    """Which iterations a memory holds, and the shapes of one layer's keys and values."""
    kept = ", ".join(map(str, iterations))
    shapes = f"keys {_by(keys)} and values {_by(values)} (kv_heads x L x head_dim)"
    return f"iteration {kept}: {layers} layers of {shapes}, {dtype}"


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _tuned(tuned: Tuned) -> str:
    chosen = f"chosen from {tuned.tried} settings by {tuned.folds}-fold cross-validation over {tuned.rows} rows"
    return f"{chosen}: {tuned.accuracy:.1%}, plain {tuned.baseline:.1%}; calibration {tuned.calibration}"


def _words(technique: Technique) -> str:
    """What the model reads in place of the labels."""
    return "read in place of the labels: " + ", ".join(f"{label} -> {word}" for label, word in technique.words.items())
