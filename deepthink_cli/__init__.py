"""Deep-Thinking for frozen language models: think about demonstrations, then predict.

The names below are loaded when first used, so that `import deepthink_cli` does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # nothing is imported here: the program hears Ctrl-C only afterwards
if TYPE_CHECKING:
    from typing import Any

    from deepthink_cli.artifact.files import load_memory, save_memory
    from deepthink_cli.artifact.opening import open_memory
    from deepthink_cli.calibrate_memory import calibrate
    from deepthink_cli.data.chat import Chat
    from deepthink_cli.data.examples import DemonstrationSet, Example, Query, read_demonstrations
    from deepthink_cli.data.template import Template
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.decoding import Decoding
    from deepthink_cli.engine.opening import load_model
    from deepthink_cli.evaluation.evaluate import EvaluationReport, evaluate
    from deepthink_cli.generation.generation import Generation, generate
    from deepthink_cli.memory import Memory
    from deepthink_cli.method import Method
    from deepthink_cli.model.options import ModelOptions
    from deepthink_cli.model.tokens import tokenize_demonstrations, tokenize_queries
    from deepthink_cli.prediction.predict import predict
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.likelihood import score
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.scoring.scoring import Scoring
    from deepthink_cli.selection.options import SelectOptions
    from deepthink_cli.selection.pool import pool_of_file
    from deepthink_cli.selection.select import SelectResult, select, write_selection
    from deepthink_cli.selection.store import Store
    from deepthink_cli.tasks.rows import pool_of_task, rows_of_file, rows_of_task
    from deepthink_cli.thinking import think
    from deepthink_cli.updates.rules import Gate

_HOME = {
    "Chat": "data.chat",
    "Decoding": "engine.decoding",
    "DemonstrationSet": "data.examples",
    "Engine": "engine.base",
    "EvaluationReport": "evaluation.evaluate",
    "Example": "data.examples",
    "Gate": "updates.rules",
    "Generation": "generation.generation",
    "Memory": "memory",
    "Method": "method",
    "ModelOptions": "model.options",
    "Prediction": "scoring.prediction",
    "Query": "data.examples",
    "Scorer": "prediction.scorer",
    "Scoring": "scoring.scoring",
    "SelectOptions": "selection.options",
    "SelectResult": "selection.select",
    "Store": "selection.store",
    "Template": "data.template",
    "tokenize_demonstrations": "model.tokens",
    "calibrate": "calibrate_memory",
    "evaluate": "evaluation.evaluate",
    "generate": "generation.generation",
    "load_memory": "artifact.files",
    "load_model": "engine.opening",
    "open_memory": "artifact.opening",
    "pool_of_file": "selection.pool",
    "pool_of_task": "tasks.rows",
    "predict": "prediction.predict",
    "read_demonstrations": "data.examples",
    "rows_of_file": "tasks.rows",
    "rows_of_task": "tasks.rows",
    "save_memory": "artifact.files",
    "score": "scoring.likelihood",
    "select": "selection.select",
    "think": "thinking",
    "tokenize_queries": "model.tokens",
    "write_selection": "selection.select",
}

__all__ = [
    "Chat",
    "Decoding",
    "DemonstrationSet",
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
    "Scorer",
    "Scoring",
    "SelectOptions",
    "SelectResult",
    "Store",
    "Template",
    "calibrate",
    "evaluate",
    "generate",
    "load_memory",
    "load_model",
    "open_memory",
    "pool_of_file",
    "pool_of_task",
    "predict",
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
    from importlib import import_module

    return getattr(import_module(f"deepthink_cli.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
