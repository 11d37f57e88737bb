"""Tasks of the harness, prepared, and its own command line with the model `deepthink`.

The prompts of a prepared task carry where the query begins, and its demonstrations may be fixed.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.io.documents import RUN_CODE, check_allows_no_code
from deepthink_cli.io.hub import check_installed
from deepthink_cli.plugins.harnesses.lm_eval.contexts import (
    NO_RESPONSE_CACHE,
    SplitContext,
    Turns,
    before_query,
    split_at_query,
    split_in_turn,
)

if TYPE_CHECKING:
    from deepthink_cli.plugins.harnesses.lm_eval.model import DeepThinkLM

Task = Any  # lm_eval.api.task.Task, which is not typed


@contextmanager
def prepared_tasks() -> Iterator[None]:
    """Within the block, the harness prepares the tasks of a model that wants it: their contexts are split exactly."""
    from lm_eval import evaluator

    plain = evaluator.evaluate

    def evaluate(lm: Any, task_dict: Any, *arguments: Any, **options: Any) -> Any:
        if hasattr(lm, "prepare"):
            if options.get("cache_requests"):
                raise InputError("--cache_requests: its key does not name the demonstrations; omit it")
            lm.prepare(task_dict["tasks"])
        return plain(lm, task_dict, *arguments, **options)

    with patch.object(evaluator, "evaluate", evaluate):
        yield


def carry_splits(task: Task, model: DeepThinkLM) -> None:
    """Make the prompts of a task carry where the query begins.

    What the task does not write with its turns, as no task of the harness does, stays unsplit.
    """
    plain: Callable[..., Any] = task.fewshot_context

    def fewshot_context(*arguments: Any, **options: Any) -> Any:
        conversations: list[Turns] = []
        if (template := options.get("chat_template")) is not None:

            def recorded(turns: Turns, **more: Any) -> Any:
                conversations.append(turns)
                return template(turns, **more)

            options["chat_template"] = recorded
        with _recording(task) as turns:
            context = plain(*arguments, **options)
        several = isinstance(context, list)
        contexts = context if several else [context]
        asked = turns[-len(contexts) :]
        if len(asked) < len(contexts):
            return context
        talks: Sequence[Turns | None] = conversations if len(conversations) == len(contexts) else [None] * len(contexts)
        split = [_split(model, *each) for each in zip(contexts, asked, talks, strict=True)]
        return split if several else split[0]

    task.fewshot_context = fewshot_context


@contextmanager
def _recording(task: Task) -> Iterator[list[list[Any]]]:
    """The turns that the task writes within the block, one list for every question."""
    turns: list[list[Any]] = []
    plain = getattr(task, "build_qa_turn", None)
    if plain is None:
        yield turns
        return

    def build_qa_turn(*arguments: Any, **options: Any) -> Any:
        turns.append(plain(*arguments, **options))
        return turns[-1]

    with patch.object(task, "build_qa_turn", build_qa_turn):
        yield turns


def _split(model: DeepThinkLM, context: str, asked: Sequence[Any], turns: Turns | None) -> str:
    """A prompt with its split, from the turns of its query; unsplit if these are not at its end."""
    if turns is None:
        query = "".join(turn.to_text() for turn in asked)
        return SplitContext(context, len(context) - len(query)) if context.endswith(query) else context
    rest = turns[len(before_query(turns)) :]
    content = rest[0]["content"] if rest else ""
    if content == asked[0].content:
        return split_at_query(turns, context, model.apply_chat_template)
    return split_in_turn(content, asked[0].content, context)


def fix_demonstrations(task: Task) -> None:
    """Make a task draw its demonstrations once, for all of its rows.

    A row that is among them gets one more of the draw in its place, so that it never sees its own answer.
    """
    from lm_eval.api.samplers import FirstNSampler

    sampler = getattr(task, "sampler", None)
    if sampler is None or isinstance(sampler, FirstNSampler):
        return
    draw: Callable[..., Sequence[Any]] = sampler.sample
    drawn: dict[int, list[Any]] = {}

    def sample(n: int, eval_doc: Any = None, **options: Any) -> Sequence[Any]:
        if n not in drawn:
            spare = int(eval_doc is not None and len(sampler.df) > n)
            drawn[n] = list(draw(n + spare, **options))
        rows = [row for row in drawn[n] if eval_doc is None or row != eval_doc][:n]
        return rows if len(rows) == n else draw(n, eval_doc=eval_doc, **options)

    sampler.sample = sample


COMMANDS = ("run", "ls", "validate")
_CACHE = ("--use_cache", "-c")
_OF_MODEL = ("--model", "-M", "--config", "-C", "--help", "-h")
_RUN_CODE = RUN_CODE | {"confirm_run_unsafe_code", "include_path"}  # task files under a path may name Python code


def run_harness(arguments: Sequence[str]) -> int:
    """Run the harness with these arguments, by default its command `run` with the model `deepthink`; its exit code.

    Raises InputError if it is not installed and for its cache of responses, and DeepThinkError, on one line, for its
    own errors.
    """
    check_installed(Problem("harness"), "lm-eval", "lm_eval", "accelerate")
    if any(word in _CACHE or word.startswith("--use_cache=") for word in arguments):
        raise InputError(NO_RESPONSE_CACHE)
    command, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("run", arguments)
    words = [command, *rest]
    names_model = any(word.partition("=")[0] in _OF_MODEL for word in rest)  # or a file that may, or asks for help
    if command == "run" and rest and not names_model:
        words += ["--model", "deepthink"]
    with patch.object(sys, "argv", ["lm-eval", *words]), _one_line_errors(), prepared_tasks():
        register()
        from lm_eval.__main__ import cli_evaluate

        try:
            _check_config()
            cli_evaluate()
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return 0


def register() -> None:
    """Register the model `deepthink` with the harness, once."""
    # Importing its models registers them; it does so itself only while it knows none.
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    if "deepthink" not in model_registry:
        model_registry.register("deepthink", target="deepthink_cli.plugins.harnesses.lm_eval.model:DeepThinkLM")


def _check_config() -> None:
    """Raise InputError for a `--config` file of the harness that lets code of models, answers or tasks run."""
    from lm_eval._cli import HarnessCLI
    from lm_eval.config.evaluate_config import EvaluatorConfig
    from lm_eval.utils import simple_parse_args_string

    config = getattr(HarnessCLI().parse_args(), "config", None)
    if config is None:
        return
    values = EvaluatorConfig.load_yaml_config(config)
    arguments = values.get("model_args")
    if isinstance(arguments, str):
        values["model_args"] = simple_parse_args_string(arguments)
    check_allows_no_code(values, lambda *_: config, _RUN_CODE)
    tasks = values.get("tasks") or ()
    for task in tasks.split(",") if isinstance(tasks, str) else map(str, tasks):
        if task.endswith(".yaml") or os.path.isdir(task):  # a path, for the harness
            raise InputError(
                f"{config}: tasks: {task}: a file must not let code run, as a task file can; "
                "omit it, and give --tasks on the command line"
            )


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Raise the harness's own errors as DeepThinkError; errors of this package stay unchanged."""
    try:
        yield
    except DeepThinkError:
        raise
    except Exception as error:
        if _raised_by_us(error.__traceback__):
            raise
        lines = str(error).strip().splitlines() or [""]
        raise DeepThinkError(f"lm-eval: {type(error).__name__}: {lines[0]}") from error


def _raised_by_us(trace: TracebackType | None) -> bool:
    """Whether this package, rather than the harness, made the last call of either."""
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(trace)]
    ours = [name.startswith("deepthink_cli.") for name in modules if name.startswith(("deepthink_cli.", "lm_eval."))]
    return ours[-1]
