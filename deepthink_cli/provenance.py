"""The origin of a memory: its model, demonstrations and method."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, with_config

from deepthink_cli.corrections import Calibrated, Thresholds
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.data.template import PARTS
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.records import LARGEST, STRICT, Count, Digest, Finite, Natural, Share, Value
from deepthink_cli.io.text import json_sha256
from deepthink_cli.method import Method

Bits = Literal[8, 4]  # bits a number in a quantized memory
DTYPE = "^(float64|float32|bfloat16|float16)$"  # dtypes in which a model computes
LARGEST_DRIFT = 1e90  # no ratio of two norms in float32 is larger, and a sum over any number of layers is finite


@with_config(STRICT)
@dataclass(frozen=True)
class ModelIdentity:
    """The identity of a model.

    `id` is a hub id, `pocket`, or the absolute path of a local directory; `revision` is the hub's commit. The digests
    cover the configuration, the weights and the tokenizer. `weights_sha256` is empty if the weights are not on this
    machine. `dtype` is the compute dtype, which may differ when the memory is used; `quantize` must be the same. `gguf`
    is the name of the model's GGUF file, None for another format. The file may be renamed, since the digest of the
    weights covers its bytes.
    """

    id: str
    revision: str | None
    architecture: str
    config_sha256: Digest
    weights_sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    tokenizer_sha256: Digest
    dtype: Annotated[str, Field(pattern=DTYPE)]
    quantize: Annotated[str, Field(pattern="^(8bit|4bit)$")] | None = None
    gguf: str | None = None

    @property
    def contents_sha256(self) -> str:
        """Digest of all parts but the dtype; it does not depend on the model's place."""
        described = {name: value for name, value in asdict(self).items() if name != "gguf"}
        return json_sha256({**described, "dtype": "", "id": "", "revision": ""})

    @property
    def computing(self) -> list[str | None]:
        """The parts that determine results of token ids, with all bytes of the weights."""
        return [self.config_sha256, self.weights_sha256, self.dtype, self.quantize]

    @property
    def overflow(self) -> str:
        """The likely cause of NaN or infinite values that the model computes, and how to avoid them."""
        if self.dtype == "float16":
            return f"float16 ends at 65,504, which this model exceeds; use {option('dtype')} bfloat16 or float32"
        if self.dtype == "bfloat16":
            return f"computed in bfloat16; use {option('dtype')} float32, and look for NaN in the weights"
        return "the weights hold NaN or are too large; get the checkpoint again"

    def differences(self, other: ModelIdentity) -> list[str]:
        """The names of the parts in which two models differ; empty if each can use the other's memories.

        Two revisions of one hub id differ, even if their weights do not. Weights are compared by every byte.
        """
        revisions = (self.revision, other.revision)
        named = self.id == other.id and None not in revisions
        parts = {
            "revision": revisions if named else (None, None),
            "architecture": (self.architecture, other.architecture),
            "configuration": (self.config_sha256, other.config_sha256),
            "weights": (self.weights_sha256, other.weights_sha256 or self.weights_sha256),
            "tokenizer": (self.tokenizer_sha256, other.tokenizer_sha256),
            "quantization": (self.quantize, other.quantize),
        }
        return [name for name, (ours, other_value) in parts.items() if ours != other_value]


@with_config(STRICT)
@dataclass(frozen=True)
class TokenizedDemonstrations(DemonstrationSet):
    """The demonstrations as the model read them, with token ids [L].

    `parts` are the numbers of tokens of the parts that the model read without each other, in order; empty if it read
    all together.
    """

    token_ids: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        """The token ids of each part, or of all demonstrations if they have no parts."""
        ids = iter(self.token_ids)
        return tuple(tuple(islice(ids, length)) for length in self.parts or (len(self.token_ids),))

    @property
    def label_counts(self) -> dict[str, int]:
        """The number of demonstrations of each label; empty if they have candidates of their own."""
        counted = Counter(label for each in self.examples for label in self.template.labels_of(each.label))
        return {label: counted[label] for label in self.labels}

    @property
    def groups(self) -> list[int]:
        """The number of every demonstration's input (`input_groups`)."""
        return input_groups(self.examples, self.template, self.labels)

    @property
    def sha256(self) -> str:
        """Digest of examples, template, labels, token ids and, if they are set, the chat and the parts."""
        values = ADAPTER_DEMONSTRATIONS.dump_python(self)
        del values["words"], values["apart"]  # they are in the token ids and the parts
        if self.chat is None:
            del values["chat"]
        if not self.parts:
            del values["parts"]
        if self.template.label_separator is None:
            del values["template"]["label_separator"]
        if self.template.tokens != PARTS:
            del values["template"]["tokens"]
        return json_sha256(values)


@with_config(STRICT)
@dataclass(frozen=True)
class Drift:
    """Relative change of each layer's keys and values in one reading: |K_t - K_(t-1)| / |K_(t-1)|."""

    keys: tuple[Annotated[float, Field(ge=0, le=LARGEST_DRIFT)], ...]
    values: tuple[Annotated[float, Field(ge=0, le=LARGEST_DRIFT)], ...]

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
class Selected:
    """The choice of the demonstrations: `shots` of `pool_rows` rows, by a method (`deepthink list selections`).

    `pool` names the file or the task; `pool_sha256` is the digest of the rows that could be chosen, in content order.
    `model` and `model_sha256` are set if the method read the rows with a model. `options` are values of the method's
    own options.
    """

    method: str
    shots: Count
    seed: Natural
    balanced: bool
    pool: str
    pool_rows: Count
    pool_sha256: Digest
    model: str | None = None
    model_sha256: Digest | None = None
    options: dict[str, Value] | None = None

    def __str__(self) -> str:
        balanced = ", balanced" if self.balanced else ""
        return f"{self.method}, {self.shots} of {self.pool_rows} rows of {self.pool}, seed {self.seed}{balanced}"


@with_config(STRICT)
@dataclass(frozen=True)
class RecordedTechnique:
    """The technique of a memory beside Deep-Thinking alone (`deepthink think --technique`), with its parameters.

    `name` is `ct-kv`, `repeat-5`, `flipped` or `fresh`, for instance; `words` are the words that replaced label words.
    """

    name: str
    values: dict[str, Finite] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.values.items())])


@with_config(STRICT)
@dataclass(frozen=True)
class Tuned:
    """The choice of a memory's method by `deepthink tune`, by cross-validation over its labelled rows.

    `tried` counts the settings. `accuracy` and `baseline` are the shares of held-out rows that the chosen setting and
    plain in-context learning label correctly, in the nested estimate. `calibration` is the chosen correction of the
    scores, `none` or a name of `--calibrate`.
    """

    folds: Annotated[int, Field(ge=2, le=LARGEST)]
    seed: Natural
    rows: Count
    tried: Count
    accuracy: Share
    baseline: Share
    calibration: str

    def __str__(self) -> str:
        chosen = f"chosen from {self.tried} settings by {self.folds}-fold cross-validation"
        right, plain = (round(share * self.rows) for share in (self.accuracy, self.baseline))
        than = "" if right == plain else f", {plain} by plain in-context learning"
        return f"{chosen}: calibration {self.calibration}, {right} of {self.rows} held-out rows right{than}"


@with_config(STRICT)
@dataclass(frozen=True)
class Quantized:
    """The form of a quantized memory (`deepthink quantize`): `bits` a number, and a range for each group.

    A group is `group` tokens of one channel of the keys, or `group` channels of one token's values; the last group may
    be smaller. `source_sha256` is the digest of the float32 memory from which it was made.
    """

    bits: Bits
    group: Annotated[int, Field(ge=1, lt=2**31)]
    source_sha256: Digest

    @property
    def dtype(self) -> str:
        """`int8` or `int4`."""
        return f"int{self.bits}"

    def __str__(self) -> str:
        return f"{self.dtype}, keys per channel and values per token in groups of {self.group}"


@dataclass(frozen=True)
class Provenance:
    """The origin of a memory; the same for every iteration of one run, except `method.iterations`."""

    model: ModelIdentity
    demonstrations: TokenizedDemonstrations
    method: Method
    task: str | None = None
    seed: int | None = None
    selected: Selected | None = None
    technique: RecordedTechnique | None = None
    tuned: Tuned | None = None
    quantized: Quantized | None = None
    calibrated: Calibrated | None = None
    thresholds: Thresholds | None = None

    @property
    def parts(self) -> list[int] | None:
        """The tokens of each part of the demonstrations, if they were read in parts."""
        return list(self.demonstrations.parts) or None


ADAPTER_DEMONSTRATIONS = TypeAdapter(TokenizedDemonstrations)


def check_model(provenance: Provenance, other: ModelIdentity, path: str) -> None:
    """Raise InputError unless the memory `path` was made by the model with identity `other`."""
    made_by, differences = provenance.model, provenance.model.differences(other)
    if differences:
        raise InputError(
            f"{path}: made by another model: {' and '.join(differences)} differ; it was made by "
            f"{_called(made_by)}, this is {_called(other)}: use the model that made it, or run "
            "deepthink think again"
        )


def _called(model: ModelIdentity) -> str:
    revision = f" at revision {model.revision}" if model.revision else ""
    quantized = f" in {model.quantize}" if model.quantize else ""
    file = "" if model.gguf is None or model.id.endswith(model.gguf) else f"/{model.gguf}"
    return f"{model.id}{file}{revision}{quantized}"
