"""The metadata of a memory file: fields, serialization and validation (docs/artifact.md)."""

from __future__ import annotations

import json
import math
import platform
import struct
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, with_config

from deepthink_cli.corrections import Calibrated, Head, Thresholds
from deepthink_cli.data.examples import Example
from deepthink_cli.data.template import PARTS, Chat, Template
from deepthink_cli.errors import InputError
from deepthink_cli.io.records import LARGEST, STRICT, Count, Digest, Finite, Natural, Share, place, reason
from deepthink_cli.io.text import canonical_json, named
from deepthink_cli.method import Method, Positions
from deepthink_cli.provenance import (
    Drift,
    ModelIdentity,
    Provenance,
    Quantized,
    RecordedTechnique,
    Selected,
    TokenizedDemonstrations,
    Tuned,
)
from deepthink_cli.updates import GATE, Gate, UpdateRule, name_of, rule_of, values_of

FORMAT_VERSION: Literal[1] = 1
MAX_ITERATIONS = 999_999  # the names of tensors have six digits for an iteration


@with_config(STRICT)
@dataclass(frozen=True)
class StoredDemonstrations:
    """The demonstrations as stored in the file."""

    token_ids: list[Annotated[int, Field(ge=0, lt=2**31)]]
    texts: list[str | dict[str, str]]
    labels: list[str]
    sha256: Digest


@with_config(STRICT)
@dataclass(frozen=True)
class StoredRule:
    """An update rule other than the gate: its registered name and its parameters."""

    name: str
    values: dict[str, bool | Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Finite | str | None]


@with_config(STRICT)
@dataclass(frozen=True)
class Metadata:
    """The metadata of the artifact, before they are written as canonical JSON.

    `eta` and `momentum` are the gate's. For any other update rule both are 0 and `update` holds the rule; for the gate,
    `update` is absent. `chat` is absent unless the demonstrations are turns of a conversation, `parts` unless they were
    read in parts, and every other later field unless a command recorded it.
    """

    format_version: Literal[1]
    model: ModelIdentity
    demonstrations: StoredDemonstrations
    template: Template
    labels: list[str]
    iterations: Annotated[int, Field(ge=1, le=MAX_ITERATIONS)]
    eta: Share
    momentum: Share
    positions: Positions
    kept: list[Annotated[int, Field(ge=1, le=MAX_ITERATIONS)]]
    dtypes: dict[str, str]
    task: str | None
    seed: Natural | None
    shots: Count
    versions: dict[str, str]
    drift: dict[str, Drift] = field(default_factory=dict)
    sha256: str = ""
    update: StoredRule | None = None
    chat: Chat | None = None
    selected: Selected | None = None
    technique: RecordedTechnique | None = None
    tuned: Tuned | None = None
    quantized: Quantized | None = None
    calibrated: Calibrated | None = None
    thresholds: Thresholds | None = None
    parts: list[Count] | None = None

    @property
    def rule(self) -> str:
        """The update rule as text, even if it is not registered in this installation."""
        if self.update is None:
            return str(Gate(self.eta, self.momentum))
        return ", ".join([self.update.name, *(f"{name} {value}" for name, value in self.update.values.items())])

    @property
    def method(self) -> Method:
        """The method that made the memory; raises InputError if its update rule is not registered."""
        gate = Gate(self.eta, self.momentum)
        rule = gate if self.update is None else rule_of(self.update.name, self.update.values)
        return Method(self.iterations, rule, self.positions)

    @property
    def tokenized(self) -> TokenizedDemonstrations:
        """The demonstrations as the model read them."""
        stored = self.demonstrations
        examples = tuple(map(Example, stored.texts, stored.labels))
        words = self.technique.words if self.technique else {}
        return TokenizedDemonstrations(
            examples,
            self.template,
            tuple(self.labels),
            self.chat,
            words,
            bool(self.parts),
            tuple(stored.token_ids),
            tuple(self.parts or ()),
        )

    def provenance(self) -> Provenance:
        """The provenance in these metadata."""
        added = {name: getattr(self, name) for name in ADDED if name != "parts"}  # a field of the demonstrations
        return Provenance(self.model, self.tokenized, self.method, self.task, self.seed, **added)


OPTIONAL = tuple(each.name for each in fields(Metadata) if each.default is None)  # absent if they are not used
ADDED = tuple(name for name in OPTIONAL if name not in ("update", "chat"))  # recorded by commands


ADAPTER_METADATA = TypeAdapter(Metadata)


def rule_fields(rule: UpdateRule) -> dict[str, Any]:
    """The fields of the metadata that name an update rule; raises InputError for an unregistered rule."""
    name, values = name_of(rule), values_of(rule)
    if type(rule) is Gate:
        return {
            field: float(value) for field, value in values.items()
        }  # 1 is written as 1.0, which it would become when it is parsed and written again
    return {"eta": 0.0, "momentum": 0.0, "update": StoredRule(name, values)}


def added_fields(of: Provenance | Metadata) -> dict[str, Any]:
    """The fields that a command recorded."""
    return {name: getattr(of, name) for name in ADDED if getattr(of, name) is not None}


def rule_as_json(rule: UpdateRule) -> dict[str, Any]:
    """The values of the gate, or the name and the parameters of another update rule, as JSON values."""
    if type(rule) is Gate:
        return values_of(rule)
    return {"update": {"name": name_of(rule), "values": values_of(rule)}}


def as_json(metadata: Metadata) -> dict[str, Any]:
    """The metadata as JSON values."""
    fields: dict[str, Any] = ADAPTER_METADATA.dump_python(metadata, mode="json")
    if metadata.model.gguf is None:
        del fields["model"]["gguf"]
    for stored in filter(None, (fields["calibrated"], fields["thresholds"])):
        for name in ("head", "held_out", "unlabelled"):
            if stored.get(name, "") is None:
                del stored[name]
    if metadata.template.label_separator is None:
        del fields["template"]["label_separator"]
    if metadata.template.tokens != PARTS:
        del fields["template"]["tokens"]
    return {name: value for name, value in fields.items() if name not in OPTIONAL or value is not None}


def parse_metadata(text: str, where: str) -> Metadata:
    """Read the metadata of an artifact; raises InputError if they are not valid in this format."""
    try:
        raw = json.loads(text)
        canonical_json(raw).encode()  # NaN and lone surrogates are not JSON
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a deepthink memory: its metadata are not JSON") from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(
            f"{where}: memory format {version!r}; this program reads format {FORMAT_VERSION}; upgrade it, or run "
            "deepthink think again"
        )
    try:
        parsed = ADAPTER_METADATA.validate_python(raw)
        _check_consistent(parsed)
        # Canonical JSON sorts "10" before "2".
        return replace(parsed, drift=dict(sorted(parsed.drift.items(), key=lambda item: int(item[0]))))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{where}: damaged metadata: {place(first)}: {reason(first)}") from error
    except InputError as error:  # of a field, which is no option here
        found = "; ".join(each.written(lambda field, value: f"{field} {value}") for each in error.problems)
        raise InputError(f"{where}: damaged metadata: {found}") from error
    except ValueError as error:
        raise InputError(f"{where}: damaged metadata: {error}") from error


def _check_consistent(metadata: Metadata) -> None:
    """Raise ValueError if fields contradict each other."""
    kept = metadata.kept
    if metadata.update is not None and (metadata.eta or metadata.momentum or metadata.update.name == GATE):
        raise ValueError("update: has an eta and a momentum of its own, and is not the gate")
    _check_demonstrations(metadata)
    if not kept or kept != sorted(set(kept)) or not 1 <= kept[0] <= kept[-1] <= metadata.iterations:
        raise ValueError(f"kept: {kept} are not iterations of T = {metadata.iterations}")
    readings = [str(t) for t in range(2, len(metadata.drift) + 2)]
    if set(metadata.drift) != set(readings) or len(readings) < kept[-1] - 1:
        raise ValueError("drift: not one entry for every reading after the first")
    sizes = {len(part) for drift in metadata.drift.values() for part in (drift.keys, drift.values)}
    if len(sizes) > 1 or 0 in sizes or set(metadata.dtypes) != {"memory", "model"}:
        raise ValueError("drift and dtypes do not describe one memory")
    if metadata.calibrated is not None:
        _check_calibrated(metadata, metadata.calibrated)
    if metadata.thresholds is not None:
        _check_thresholds(metadata, metadata.thresholds)
    stored_as = "float32" if metadata.quantized is None else metadata.quantized.dtype
    for name, dtype in (("memory", stored_as), ("model", metadata.model.dtype)):
        if metadata.dtypes[name] != dtype:
            raise ValueError(f"dtypes.{name}: {metadata.dtypes[name]} is not {dtype}")


def _check_demonstrations(metadata: Metadata) -> None:
    """Raise ValueError or InputError unless the demonstrations fit the template, the labels and their digest."""
    stored, labels = metadata.demonstrations, metadata.labels
    if not len(stored.texts) == len(stored.labels) == metadata.shots:
        raise ValueError("demonstrations: texts, labels and shots differ in number")
    if metadata.parts is not None and sum(metadata.parts) != len(stored.token_ids):
        raise ValueError("parts: not of as many tokens as the demonstrations")
    if len(set(labels)) != len(labels) or not all(map(str.strip, labels)):
        raise ValueError("labels: one is empty or duplicated")
    for text in stored.texts:
        metadata.template.values(text)
    named = {each for answer in stored.labels for each in metadata.template.labels_of(answer)}
    if labels and (unknown := named - set(labels)):
        raise ValueError(f"demonstrations.labels: {min(unknown)!r} is not one of the labels")
    if metadata.technique is not None and not set(metadata.technique.words) <= set(labels):
        raise ValueError("technique.words: not of the labels")
    if stored.sha256 != metadata.tokenized.sha256:
        raise ValueError("demonstrations.sha256: not the digest of the demonstrations")


def _check_calibrated(metadata: Metadata, calibrated: Calibrated) -> None:
    """Raise ValueError unless a correction has a bias or head of every label, at T = 1 and every kept iteration."""
    if not metadata.labels or set(calibrated.at_iterations) != {str(t) for t in (1, *metadata.kept)}:
        raise ValueError("calibrated.bias: not one for the labels at T = 1 and at each kept iteration")
    _check_heads("calibrated.head", calibrated.head or {}, metadata)
    for bias in calibrated.bias.values():
        if not set(bias.compared) == set(bias.per_token) == set(metadata.labels):
            raise ValueError(f"calibrated.bias: of {', '.join(bias.compared)}, not of the labels")


def _check_heads(field: str, heads: Mapping[str, Head], metadata: Metadata) -> None:
    """Raise ValueError, naming the field, unless heads have finite weights of every label, all as many."""
    if len({(head.layers, _numbers(field, head, metadata.labels)) for head in heads.values()}) > 1:
        raise ValueError(f"{field}: not of the same layers and number of float32 numbers")


def _numbers(field: str, head: Head, labels: Sequence[str]) -> int:
    """The number of weights of a label; raises ValueError unless each label has as many, all finite."""
    if not set(head.weights) == set(head.bias) == set(labels):
        raise ValueError(f"{field}: of {', '.join(head.weights)}, not of the labels")
    if list(head.layers) != sorted(set(head.layers)):
        raise ValueError(f"{field}: layers {list(head.layers)} are not in increasing order")
    weights = [b64decode(each, validate=True) for each in head.weights.values()]
    width, rest = divmod(len(weights[0]), 4 * len(head.layers))
    if rest or not width or {len(each) for each in weights} != {len(weights[0])}:
        raise ValueError(f"{field}: not of one number of float32 numbers a layer")
    if not all(math.isfinite(number) for each in weights for (number,) in struct.iter_unpack("<f", each)):
        raise ValueError(f"{field}: a number is NaN or infinite")
    return width * len(head.layers)


def _check_thresholds(metadata: Metadata, thresholds: Thresholds) -> None:
    """Raise ValueError unless every label has thresholds at T = 1 and every kept iteration, for rows with several."""
    if metadata.template.label_separator is None or set(thresholds.at) != {str(t) for t in (1, *metadata.kept)}:
        raise ValueError("thresholds.at: not one for the labels at T = 1 and at each kept iteration")
    if any(set(each) != set(metadata.labels) for each in thresholds.at.values()):
        raise ValueError("thresholds.at: not of the labels")
    if thresholds.head is not None and thresholds.head.keys() != thresholds.at.keys():
        raise ValueError("thresholds.head: not one at T = 1 and at each kept iteration")
    _check_heads("thresholds.head", thresholds.head or {}, metadata)


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python and of the libraries that determine a memory."""
    packages = {name: version(name) for name in ("safetensors", "tokenizers", "torch", "transformers")}
    return {"deepthink": version("deepthink-cli"), "python": platform.python_version(), **packages}


def origin_lines(origin: Provenance | Metadata, method: str) -> dict[str, str]:
    """The model, the method, and the origin of demonstrations and method, by name."""
    model, technique = origin.model, origin.technique
    revision = f" at {model.revision}" if model.revision else ""
    quantized = f", {model.quantize}" if model.quantize else ""
    drawn = "" if origin.seed is None else f", seed {origin.seed}"
    words = [f"{label} -> {word}" for label, word in technique.words.items()] if technique else []
    return {
        "model": f"{model.id}{revision} ({model.architecture}, {model.dtype}{quantized})",
        "method": method,
        **({"made by": str(technique)} if technique else {}),
        **({"words": f"read in place of the labels: {', '.join(words)}"} if words else {}),
        **({"task": f"{origin.task}{drawn}"} if origin.task else {}),
        **({"selected": str(origin.selected)} if origin.selected else {}),
        **({"tuned": str(origin.tuned)} if origin.tuned else {}),
        **({"quantized": str(origin.quantized)} if origin.quantized else {}),
        **({"corrected": str(origin.calibrated)} if origin.calibrated else {}),
        **({"thresholds": str(origin.thresholds)} if origin.thresholds else {}),
    }


def prompt_lines(labels: Sequence[str], template: Template, chat: Chat | None) -> dict[str, str]:
    """The labels and the form of the prompts, by name."""
    return {
        "labels": ", ".join(map(named, labels)) or "with every input",
        "template": f"{template.pattern!r}, separator {template.separator!r}",
        **({"token ids": "of demonstrations and query, each alone"} if template.tokens == PARTS else {}),
        **({"prompts": f"{chat}, template {chat.template_sha256[:12]}"} if chat else {}),
    }


def versions_line(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of the libraries that determine a file, by name."""
    return {"versions": ", ".join(f"{name} {number}" for name, number in versions.items())}


def method_text(iterations: int, rule: str, positions: str) -> str:
    """The method in one line; rule and positions act from the second reading on."""
    return "T = 1" if iterations == 1 else f"T = {iterations}, {rule}, {positions} positions"
