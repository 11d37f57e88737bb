"""Where a memory comes from: the model, the demonstrations and the method that made it.

These are the metadata of the artifact (DESIGN 4.3). Plain frozen dataclasses; pydantic checks them
where they are read from a file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from deepthink_cli.data.examples import Example
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

FORMAT_VERSION = 1
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@with_config(STRICT)
@dataclass(frozen=True)
class ModelIdentity:
    """What makes a model this model and no other.

    `id` is a hub id, `pocket`, or the absolute path of a local directory; `revision` the hub's commit.
    The digests cover the configuration, the weights and the tokenizer. `weights_sha256` is two digests with a colon
    between them, of sampled bytes and of all bytes; only the first in memories of earlier versions, and empty while
    the weights are not on this machine. `dtype` and `quantize` say how it computed; they may differ where
    the memory is used.
    """

    id: str
    revision: str | None
    architecture: str
    config_sha256: str
    weights_sha256: str
    tokenizer_sha256: str
    dtype: str
    quantize: str | None = None

    @property
    def sampled_weights(self) -> str:
        """The digest of the weights' sampled bytes, which every version computes in the same way."""
        return self.weights_sha256.partition(":")[0]

    def differences(self, other: ModelIdentity) -> list[str]:
        """Names of the parts in which two models differ; empty where a memory of one fits the other.

        Two revisions of one hub id differ, even where their weights do not. Weights are compared by every byte,
        or by samples where one of the two has only those.
        """
        revisions = (self.revision, other.revision)
        named = self.id == other.id and None not in revisions
        parts = {
            "revision": revisions if named else (None, None),
            "architecture": (self.architecture, other.architecture),
            "configuration": (self.config_sha256, other.config_sha256),
            "weights": _comparable(self.weights_sha256, other.weights_sha256 or self.weights_sha256),
            "tokenizer": (self.tokenizer_sha256, other.tokenizer_sha256),
            "quantization": (self.quantize, other.quantize),
        }
        return [name for name, (one, two) in parts.items() if one != two]


def _comparable(one: str, two: str) -> tuple[str, str]:
    """The parts of two digests of weights that both have."""
    return (one, two) if ":" in one and ":" in two else (one.partition(":")[0], two.partition(":")[0])


@with_config(STRICT)
@dataclass(frozen=True)
class TokenizedDemonstrations:
    """The demonstrations as the model read them: examples, template, label words and token ids [L]."""

    examples: tuple[Example, ...]
    template: Template
    labels: tuple[str, ...]
    token_ids: tuple[int, ...]

    @property
    def sha256(self) -> str:
        """Digest of examples, template, labels and token ids."""
        return hashlib.sha256(canonical_json(ADAPTER_DEMONSTRATIONS.dump_python(self)).encode()).hexdigest()


@with_config(STRICT)
@dataclass(frozen=True)
class Method:
    """T, eta, momentum and positions (section 3.1; momentum is the official code's)."""

    iterations: int
    eta: float
    momentum: float = 0.0
    positions: str = "continued"


@with_config(STRICT)
@dataclass(frozen=True)
class Drift:
    """Relative change of each layer's keys and values in one reading: |K_t - K_(t-1)| / |K_(t-1)|."""

    keys: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def mean_keys(self) -> float:
        """Mean over the layers."""
        return sum(self.keys) / len(self.keys)

    @property
    def mean_values(self) -> float:
        """Mean over the layers."""
        return sum(self.values) / len(self.values)


@with_config(STRICT)
@dataclass(frozen=True)
class Provenance:
    """Everything but the tensors; the same for every iteration of one run but for `method.iterations`."""

    model: ModelIdentity
    demonstrations: TokenizedDemonstrations
    method: Method
    task: str | None = None
    seed: int | None = None


@with_config(STRICT)
@dataclass(frozen=True)
class StoredDemonstrations:
    """The demonstrations as the file holds them."""

    token_ids: list[int]
    texts: list[str | dict[str, str]]
    labels: list[str]
    sha256: str


@with_config(STRICT)
@dataclass(frozen=True)
class Metadata:
    """The one metadata value of the artifact, before it is written as canonical JSON."""

    format_version: int
    model: ModelIdentity
    demonstrations: StoredDemonstrations
    template: Template
    labels: list[str]
    iterations: int
    eta: float
    momentum: float
    positions: str
    kept: list[int]
    dtypes: dict[str, str]
    task: str | None
    seed: int | None
    shots: int
    versions: dict[str, str]
    drift: dict[str, Drift] = field(default_factory=dict)
    sha256: str = ""

    def provenance(self) -> Provenance:
        """The provenance that this metadata was made from."""
        stored = self.demonstrations
        examples = tuple(map(Example, stored.texts, stored.labels))
        demonstrations = TokenizedDemonstrations(examples, self.template, tuple(self.labels), tuple(stored.token_ids))
        method = Method(self.iterations, self.eta, self.momentum, self.positions)
        return Provenance(self.model, demonstrations, method, self.task, self.seed)


ADAPTER_DEMONSTRATIONS = TypeAdapter(TokenizedDemonstrations)
ADAPTER_METADATA = TypeAdapter(Metadata)


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_metadata(text: str, where: str) -> Metadata:
    """Read the metadata of an artifact; raises InputError where it is not one of this format."""
    try:
        raw = json.loads(text)
        canonical_json(raw).encode()  # NaN and lone surrogates are not JSON
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a deepthink memory: its metadata are not JSON") from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(
            f"{where}: memory format {version!r}; this program reads format {FORMAT_VERSION}, upgrade it or think again"
        )
    try:
        parsed = ADAPTER_METADATA.validate_python(raw)
        _check_consistent(parsed)
        # Canonical JSON sorts "10" before "2".
        return replace(parsed, drift=dict(sorted(parsed.drift.items(), key=lambda item: int(item[0]))))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: damaged metadata: {place}: {first['msg']}") from error
    except (ValueError, InputError) as error:
        raise InputError(f"{where}: damaged metadata: {error}") from error


def _check_consistent(metadata: Metadata) -> None:
    """Raise ValueError where fields that belong together do not."""
    stored, kept = metadata.demonstrations, metadata.kept
    if not len(stored.texts) == len(stored.labels) == metadata.shots:
        raise ValueError("demonstrations: texts, labels and shots differ in number")
    if len(set(metadata.labels)) != len(metadata.labels) or not all(map(str.strip, metadata.labels)):
        raise ValueError("labels: one is empty or stands twice")
    if not kept or kept != sorted(set(kept)) or not 1 <= kept[0] <= kept[-1] <= metadata.iterations:
        raise ValueError(f"kept: {kept} are not iterations of T = {metadata.iterations}")
    readings = sorted(map(int, metadata.drift))
    if readings != list(range(2, len(readings) + 2)) or len(readings) < kept[-1] - 1:
        raise ValueError("drift: not one entry for every reading after the first")
    sizes = {len(part) for drift in metadata.drift.values() for part in (drift.keys, drift.values)}
    if len(sizes) > 1 or 0 in sizes or set(metadata.dtypes) != {"memory", "model"}:
        raise ValueError("drift and dtypes do not describe one memory")
