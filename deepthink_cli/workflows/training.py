"""Train a memory by gradients: the part of `deepthink think` that belongs to --method ct-kv."""

from __future__ import annotations

import time
from pathlib import Path

from deepthink_cli.context_tuning.partial import Partial
from deepthink_cli.context_tuning.rows import FEWEST, check_trainable
from deepthink_cli.context_tuning.training import ContextTuning, Training
from deepthink_cli.engine.base import Engine
from deepthink_cli.memory import Memory
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import TechniqueOptions
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.workflows.events import Note, Progress, Tell


def plan_training(
    spec: ModelSpec, demonstrations: TokenizedDemonstrations, options: TechniqueOptions, tell: Tell
) -> ContextTuning:
    """The parameters of the training; raises InputError if the model or the demonstrations cannot be trained on."""
    check_trainable(spec, demonstrations)
    if len(demonstrations.examples) < FEWEST:
        tell(Note(f"fewer than {FEWEST} demonstrations: each is trained with its own tokens in sight"))
    chosen = {name: value for name in ("steps", "lr") if (value := getattr(options, name)) is not None}
    return ContextTuning(**chosen)


def train(
    engine: Engine, demonstrations: TokenizedDemonstrations, tuning: ContextTuning, output: str | Path, tell: Tell
) -> Memory:
    """The trained memory; continues from `OUTPUT.partial`, which is written every few seconds and at Ctrl-C."""
    training, partial = Training(engine, demonstrations, tuning), Partial(output)
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
