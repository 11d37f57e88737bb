"""Deep-Thinking for frozen language models: think about demonstrations, then predict.

The names below are loaded when first used, so that `import deepthink_cli` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepthink_cli.artifact.files import load_memory, save_memory
    from deepthink_cli.data.chat import Chat
    from deepthink_cli.data.examples import DemonstrationSet, Example, Query, read_demonstrations
    from deepthink_cli.data.template import Template
    from deepthink_cli.decoding import Decoding
    from deepthink_cli.dialogue import Dialogue
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.choice import load_model
    from deepthink_cli.generation import Generation, generate
    from deepthink_cli.memory import Memory
    from deepthink_cli.method import Method
    from deepthink_cli.model.tokens import tokenize_demonstrations, tokenize_queries
    from deepthink_cli.options import ModelOptions
    from deepthink_cli.pools.options import SelectOptions
    from deepthink_cli.pools.rows import pool_of_file, pool_of_task
    from deepthink_cli.pools.store import Store
    from deepthink_cli.prediction import Prediction, predict
    from deepthink_cli.scoring import score
    from deepthink_cli.thinking import think
    from deepthink_cli.updates.gate import Gate
    from deepthink_cli.workflows.diff import diff
    from deepthink_cli.workflows.evaluate import EvaluationReport, evaluate
    from deepthink_cli.workflows.evaluated_rows import rows_of_file, rows_of_task
    from deepthink_cli.workflows.memories import open_memory
    from deepthink_cli.workflows.quantize import quantize
    from deepthink_cli.workflows.select import SelectResult, select, write_selection

_HOME = {
    "Chat": "data.chat",
    "Decoding": "decoding",
    "DemonstrationSet": "data.examples",
    "Dialogue": "dialogue",
    "Engine": "engine.base",
    "EvaluationReport": "workflows.evaluate",
    "Example": "data.examples",
    "Gate": "updates.gate",
    "Generation": "generation",
    "Memory": "memory",
    "Method": "method",
    "ModelOptions": "options",
    "Prediction": "prediction",
    "Query": "data.examples",
    "SelectOptions": "pools.options",
    "SelectResult": "workflows.select",
    "Store": "pools.store",
    "Template": "data.template",
    "tokenize_demonstrations": "model.tokens",
    "diff": "workflows.diff",
    "evaluate": "workflows.evaluate",
    "generate": "generation",
    "load_memory": "artifact.files",
    "load_model": "engine.choice",
    "open_memory": "workflows.memories",
    "pool_of_file": "pools.rows",
    "pool_of_task": "pools.rows",
    "predict": "prediction",
    "quantize": "workflows.quantize",
    "read_demonstrations": "data.examples",
    "rows_of_file": "workflows.evaluated_rows",
    "rows_of_task": "workflows.evaluated_rows",
    "save_memory": "artifact.files",
    "score": "scoring",
    "select": "workflows.select",
    "think": "thinking",
    "tokenize_queries": "model.tokens",
    "write_selection": "workflows.select",
}

__all__ = [
    "Chat",
    "Decoding",
    "DemonstrationSet",
    "Dialogue",
    "Engine",
    "EvaluationReport",
    "Example",
    "Gate",
    "Generation",
    "Memory",
    "Method",
    "ModelOptions",
    "Prediction",
    "Query",
    "SelectOptions",
    "SelectResult",
    "Store",
    "Template",
    "diff",
    "evaluate",
    "generate",
    "load_memory",
    "load_model",
    "open_memory",
    "pool_of_file",
    "pool_of_task",
    "predict",
    "quantize",
    "read_demonstrations",
    "rows_of_file",
    "rows_of_task",
    "save_memory",
    "score",
    "select",
    "think",
    "tokenize_demonstrations",
    "tokenize_queries",
    "write_selection",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deepthink_cli' has no attribute {name!r}")
    return getattr(import_module(f"deepthink_cli.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
