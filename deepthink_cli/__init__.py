"""Deep-Thinking for frozen language models: think about demonstrations, then predict.

The names below are loaded when first used, so that `import deepthink_cli` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepthink_cli.examples import DemonstrationSet, Example, Query, read_demonstrations
    from deepthink_cli.memory import Memory
    from deepthink_cli.model import load_model
    from deepthink_cli.prediction import Prediction, predict
    from deepthink_cli.scoring import score
    from deepthink_cli.store import load_memory, save_memory
    from deepthink_cli.template import Template
    from deepthink_cli.thinking import think
    from deepthink_cli.tokens import tokenize_demonstrations, tokenize_queries

_HOME = {
    "DemonstrationSet": "examples",
    "Example": "examples",
    "Memory": "memory",
    "Prediction": "prediction",
    "Query": "examples",
    "Template": "template",
    "tokenize_demonstrations": "tokens",
    "load_memory": "store",
    "load_model": "model",
    "predict": "prediction",
    "read_demonstrations": "examples",
    "save_memory": "store",
    "score": "scoring",
    "think": "thinking",
    "tokenize_queries": "tokens",
}

__all__ = [
    "DemonstrationSet",
    "Example",
    "Memory",
    "Prediction",
    "Query",
    "Template",
    "load_memory",
    "load_model",
    "predict",
    "read_demonstrations",
    "save_memory",
    "score",
    "think",
    "tokenize_demonstrations",
    "tokenize_queries",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deepthink_cli' has no attribute {name!r}")
    return getattr(import_module(f"deepthink_cli.{_HOME[name]}"), name)
