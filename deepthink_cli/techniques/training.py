"""Train a memory by gradients, and continue an interrupted training from `OUTPUT.partial`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Progress, Tell
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.text import canonical_json
from deepthink_cli.memory import Memory
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
from deepthink_cli.techniques.base import Trained, Training

if TYPE_CHECKING:
    from torch import Tensor


_KEY = "deepthink-training"
_EVERY = 10.0  # the least seconds between two writes
_SHARE = 20  # a write may take one part in so many of the time


class Partial:
    """`OUTPUT.partial`: the state of the training whose memory will be written to OUTPUT."""

    def __init__(self, output: str | Path) -> None:
        self.path = Path(f"{output}.partial")
        self._next = time.monotonic() + _EVERY

    def check(self, training: Training) -> None:
        """Raise InputError if the file exists and this training cannot continue from it."""
        if not self.path.exists():
            return
        try:
            with safe_open(self.path, "pt") as file:
                key = (file.metadata() or {}).get(_KEY)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{self.path}: not the state of a training; remove it, or name another output") from error
        if key != _key_of(training):
            raise InputError(
                f"{self.path}: the state of a training with another model, other demonstrations or other options; give "
                "the same ones to continue it, or remove it to start again"
            )

    def restore(self, training: Training) -> bool:
        """Continue from the file, if it exists; raises as `check` does."""
        self.check(training)
        if self.path.exists():
            training.restore(load_file(self.path))
        return training.step > 0

    def save(self, training: Training, now: bool = False) -> None:
        """Write the state atomically, `now` or if the last write is long enough ago."""
        if not now and time.monotonic() < self._next:
            return
        started = time.monotonic()
        with replacing(self.path) as temporary:
            save_file(_contiguous(training.state()), temporary, metadata={_KEY: _key_of(training)})
        taken = time.monotonic() - started
        self._next = time.monotonic() + max(_EVERY, _SHARE * taken)

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.path.unlink(missing_ok=True)


def _key_of(training: Training) -> str:
    """A digest of all that determines the training: model, demonstrations and parameters."""
    provenance = training.memory.provenance
    assert isinstance(provenance, Provenance)
    model = provenance.model
    weights = [model.config_sha256, model.weights_sha256, model.tokenizer_sha256, model.dtype, training.engine.device]
    values = [*weights, provenance.demonstrations.sha256, str(provenance.technique)]
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def _contiguous(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in state.items()}


def train(
    engine: Engine, demonstrations: TokenizedDemonstrations, tuning: Trained, output: str | Path, tell: Tell
) -> Memory:
    """The trained memory; continues from `OUTPUT.partial`, which is written every few seconds and at Ctrl-C."""
    training, partial = tuning.training(engine, demonstrations), Partial(output)
    if partial.restore(training):
        tell(Note(f"continuing from {partial.path}, step {training.step} of {tuning.steps}"))
    before, started = training.step, time.perf_counter()
    tell(Progress("tuning", before, tuning.steps, {"loss": "", "speed": ""}))
    try:
        for loss in training:
            seconds = (time.perf_counter() - started) / (training.step - before)
            fields = {"loss": f"loss {loss:.4f}", "speed": f"{seconds:.2f} s/step"}
            tell(Progress("tuning", training.step, tuning.steps, fields))
            partial.save(training)
    except KeyboardInterrupt:
        partial.save(training, now=True)
        raise
    return training.memory
