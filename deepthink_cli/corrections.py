"""The corrections that `deepthink calibrate` stores: a bias, a head or thresholds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator, with_config

from deepthink_cli.io.records import LARGEST, STRICT, Count, Digest, Share, Value

Nats = Annotated[float, Field(ge=-1e6, le=1e6)]  # the log-probabilities of a label are nearer to 0
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"  # names of calibrations; other packages name their own
_SHOWN = 6  # labels


@with_config(STRICT)
@dataclass(frozen=True)
class StoredBias:
    """log b of every label in nats, for the compared scores and for the scores per token."""

    compared: dict[str, Nats]
    per_token: dict[str, Nats]


@with_config(STRICT)
@dataclass(frozen=True)
class Head:
    """A linear function of hidden states that scores labels, as `scoring.heads.LinearHead` computes it.

    `layers` are numbers of layers, from 1. `weights` holds for each label W float32 numbers for every layer, one layer
    after another, little-endian and in base64. `bias` is in nats. `of_scores` is the weight of log p(y | x).
    """

    layers: Annotated[tuple[Count, ...], Field(min_length=1)]
    weights: dict[str, str]
    bias: dict[str, Nats]
    of_scores: Annotated[float, Field(ge=0, le=1e6)]


@with_config(STRICT)
@dataclass(frozen=True)
class HeldOut:
    """The probabilities of the labels that held-out rows get, those of right labels and those of wrong labels."""

    right: tuple[Share, ...]
    wrong: tuple[Share, ...]


@with_config(STRICT)
@dataclass(frozen=True)
class UnlabelledInputs:
    """The rows without labels to which a head was fitted, too: their number, file, and digest as of labelled rows."""

    inputs: Count
    sha256: Digest
    source: str


@with_config(STRICT)
@dataclass(frozen=True)
class Calibrated:
    """The correction that a memory stores (`deepthink calibrate`), and the inputs of its estimate.

    `method` is a name of `--calibrate`. `scoring` are the options of the corrected scores that differ from their
    defaults. `bias` has T = 1 and every kept iteration; methods by hidden states have a `head` in its place. `inputs`
    counts the texts, or the rows of the file `source`. `sha256` is the digest of their list as canonical JSON, with
    pairs of text and label if true labels are needed. `held_out` is of the last iteration, by cross-validation of the
    rows, if true labels are needed.
    """

    method: Annotated[str, Field(pattern=_NAME)]
    scoring: dict[str, Value]
    bias: dict[str, StoredBias]
    inputs: Count
    sha256: Digest
    source: str | None = None
    head: dict[str, Head] | None = None
    held_out: HeldOut | None = None
    unlabelled: UnlabelledInputs | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if bool(self.bias) == bool(self.head):
            raise ValueError("a correction has either a bias or a head")
        return self

    @property
    def at_iterations(self) -> Mapping[str, StoredBias | Head]:
        """The bias or the head of T = 1 and every kept iteration."""
        return self.bias if self.head is None else self.head

    @property
    def of_states(self) -> bool:
        """Whether it uses hidden states alone, and no scores."""
        return self.head is not None and not any(each.of_scores for each in self.head.values())

    @property
    def counted(self) -> Literal["texts", "rows"]:
        """The kind of inputs of the estimate."""
        return "texts" if self.source is None else "rows"

    def of(self, iterations: Collection[int]) -> Calibrated:
        """The correction of some iterations only."""
        bias = {t: each for t, each in self.bias.items() if int(t) in iterations}
        head = self.head and {t: each for t, each in self.head.items() if int(t) in iterations}
        held_out = self.held_out if max(map(int, self.at_iterations)) in iterations else None
        return replace(self, bias=bias, head=head, held_out=held_out)

    def __str__(self) -> str:
        inputs = f"{self.inputs} {self.counted}" if self.inputs != 1 else f"1 {self.counted.removesuffix('s')}"
        whence = inputs if self.source is None else f"{inputs} of {self.source}"
        if self.unlabelled is not None:
            whence += f", and {self.unlabelled.inputs} without labels of {self.unlabelled.source}"
        whence += "".join(f", {name} {value}" for name, value in self.scoring.items())
        if self.head is not None:
            layers = len(self.head["1"].layers)
            return f"{self.method} calibration, hidden states of {layers} layer{'s' * (layers > 1)}, of {whence}"
        last = max(self.bias, key=int)
        bias = sorted(self.bias[last].compared.items(), key=lambda item: -item[1])
        shown = [f"{label!r} {value:+.3f}" for label, value in bias[:_SHOWN]] + ["..."] * (len(bias) > _SHOWN)
        return f"{self.method} calibration of {whence}; at T = {last}: {', '.join(shown)} nats"


@with_config(STRICT)
@dataclass(frozen=True)
class Thresholds:
    """The share of each label above which a row gets it (`deepthink calibrate MEMORY ROWS`), at every iteration.

    They were fitted to scores with the options `scoring`, on `rows` rows of the file `source` in `folds` folds. The
    figures are of the last iteration, on rows to which the thresholds were not fitted. With a `head`, the shares are
    those of its scores (`multilabel.py`).
    """

    scoring: dict[str, Value]
    at: dict[str, dict[str, Share]]
    rows: Count
    folds: Annotated[int, Field(ge=2, le=LARGEST)]
    source: str
    micro_f1: Share
    macro_f1: Share
    subset_accuracy: Share
    head: dict[str, Head] | None = None

    def of(self, iterations: Collection[int]) -> Thresholds:
        """The thresholds of some iterations only."""
        at = {t: each for t, each in self.at.items() if int(t) in iterations}
        head = self.head and {t: each for t, each in self.head.items() if int(t) in iterations}
        return replace(self, at=at, head=head)

    def __str__(self) -> str:
        last = max(self.at, key=int)
        shown = [f"{label!r} {value:.3f}" for label, value in list(self.at[last].items())[:_SHOWN]]
        shown += ["..."] * (len(self.at[last]) > _SHOWN)
        options = "".join(f", {name} {value}" for name, value in self.scoring.items())
        what = "thresholds" if self.head is None else "head and thresholds"
        return (
            f"{what} of {self.rows} rows of {self.source}{options}; at T = {last}: {', '.join(shown)}; "
            f"{self.folds}-fold cross-validation: micro-F1 {self.micro_f1:.3f}, macro-F1 {self.macro_f1:.3f}, subset "
            f"accuracy {self.subset_accuracy:.1%}"
        )
