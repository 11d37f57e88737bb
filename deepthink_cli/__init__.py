"""Deep-Thinking for frozen language models: think about demonstrations, then predict.

The names below are loaded when first used, so that `import deepthink_cli` does not import torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # nothing is imported here: the program hears Ctrl-C only afterwards
if TYPE_CHECKING:
    from typing import Any

    from deepthink_cli.artifact.files import load_memory as load_memory
    from deepthink_cli.artifact.files import save_memory as save_memory
    from deepthink_cli.artifact.opening import open_memory as open_memory
    from deepthink_cli.calibrate_memory import calibrate as calibrate
    from deepthink_cli.data.examples import DemonstrationSet as DemonstrationSet
    from deepthink_cli.data.examples import Example as Example
    from deepthink_cli.data.examples import Query as Query
    from deepthink_cli.data.examples import read_demonstrations as read_demonstrations
    from deepthink_cli.data.template import Chat as Chat
    from deepthink_cli.data.template import Template as Template
    from deepthink_cli.engine.base import Engine as Engine
    from deepthink_cli.engine.decoding import Decoding as Decoding
    from deepthink_cli.engine.opening import load_model as load_model
    from deepthink_cli.evaluation.evaluate import evaluate as evaluate
    from deepthink_cli.evaluation.report import EvaluationReport as EvaluationReport
    from deepthink_cli.generation import Generation as Generation
    from deepthink_cli.generation import generate as generate
    from deepthink_cli.io.cache import Store as Store
    from deepthink_cli.memory import Memory as Memory
    from deepthink_cli.method import Method as Method
    from deepthink_cli.model.options import ModelOptions as ModelOptions
    from deepthink_cli.model.tokens import tokenize_demonstrations as tokenize_demonstrations
    from deepthink_cli.model.tokens import tokenize_queries as tokenize_queries
    from deepthink_cli.prediction.predict import predict as predict
    from deepthink_cli.prediction.scorer import Scorer as Scorer
    from deepthink_cli.scoring.likelihood import score as score
    from deepthink_cli.scoring.prediction import Prediction as Prediction
    from deepthink_cli.scoring.scoring import Scoring as Scoring
    from deepthink_cli.selection.choice import Chosen as Chosen
    from deepthink_cli.selection.choice import select as select
    from deepthink_cli.selection.choice import write_selection as write_selection
    from deepthink_cli.selection.options import SelectOptions as SelectOptions
    from deepthink_cli.selection.pool import pool_of_file as pool_of_file
    from deepthink_cli.tasks.rows import pool_of_task as pool_of_task
    from deepthink_cli.tasks.rows import rows_of_file as rows_of_file
    from deepthink_cli.tasks.rows import rows_of_task as rows_of_task
    from deepthink_cli.thinking import think as think
    from deepthink_cli.updates import Gate as Gate

_HOME = {
    "Chat": "data.template",
    "Chosen": "selection.choice",
    "Decoding": "engine.decoding",
    "DemonstrationSet": "data.examples",
    "Engine": "engine.base",
    "EvaluationReport": "evaluation.report",
    "Example": "data.examples",
    "Gate": "updates",
    "Generation": "generation",
    "Memory": "memory",
    "Method": "method",
    "ModelOptions": "model.options",
    "Prediction": "scoring.prediction",
    "Query": "data.examples",
    "Scorer": "prediction.scorer",
    "Scoring": "scoring.scoring",
    "SelectOptions": "selection.options",
    "Store": "io.cache",
    "Template": "data.template",
    "tokenize_demonstrations": "model.tokens",
    "calibrate": "calibrate_memory",
    "evaluate": "evaluation.evaluate",
    "generate": "generation",
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
    "select": "selection.choice",
    "think": "thinking",
    "tokenize_queries": "model.tokens",
    "write_selection": "selection.choice",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deepthink_cli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"deepthink_cli.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
