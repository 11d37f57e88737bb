"""What the harness stores beside its results: the method, the model, and what was read."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepthink_cli.integrations.lm_eval.model import DeepThinkLM


def model_info(model: DeepThinkLM) -> dict[str, Any]:
    """The fields of `config` in the harness's results, as JSON values."""
    from deepthink_cli.artifact.metadata import rule_as_json

    identity, method = model.engine.identity, model.arguments.method
    return {
        "model_dtype": identity.dtype,
        "model_revision": identity.revision or "",
        "model_sha": identity.revision or "",
        "deepthink": {
            "version": version("deepthink-cli"),
            "iterations": method.iterations,
            **rule_as_json(method.update),
            "positions": method.positions,
            "model": identity.id,
            "weights_sha256": identity.weights_sha256,
            "tokenizer_sha256": identity.tokenizer_sha256,
            "engine": model.engine.description,
            "demonstrations": model.arguments.harness.demonstrations,
            "splits": model.splits,
            "readings": model.memories.readings,
            "memories_loaded": model.memories.loaded,
            "moved_boundaries": model.moved,
        },
    }
