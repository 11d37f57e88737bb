"""Run the harness's own command line with the model `deepthink` and prepared tasks."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.integrations.lm_eval.tasks import prepared_tasks
from deepthink_cli.io.permissions import RUN_CODE, check_allows_no_code
from deepthink_cli.model.failures import check_installed

COMMANDS = ("run", "ls", "validate")
_CACHE = ("--use_cache", "-c")
_RUN_CODE = RUN_CODE | {"confirm_run_unsafe_code", "include_path"}  # task files under a path may name Python code


def run_harness(arguments: Sequence[str]) -> int:
    """Run the harness with these arguments, by default its command `run` with the model `deepthink`; its exit code.

    Raises InputError if it is not installed and for its cache of responses, and DeepThinkError, on one line, for its
    own errors.
    """
    check_installed(Problem("harness"), "lm-eval", "lm_eval", "accelerate")
    _refuse_cache(arguments)
    command, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("run", arguments)
    words = [command, *rest]
    if command == "run" and rest and not _names_model(rest):
        words += ["--model", "deepthink"]
    with _as_program(words), _one_line_errors(), prepared_tasks():
        register()
        from lm_eval.__main__ import cli_evaluate

        try:
            _check_config()
            cli_evaluate()
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return 0


def register() -> None:
    """Make the harness know the model `deepthink`, beside its own ones; done once."""
    # Importing its models registers them; it does so itself only while it knows none.
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    if "deepthink" not in model_registry:
        model_registry.register("deepthink", target="deepthink_cli.integrations.lm_eval.model:DeepThinkLM")


def _refuse_cache(arguments: Sequence[str]) -> None:
    for word in arguments:
        if word in _CACHE or word.startswith("--use_cache="):
            from deepthink_cli.integrations.lm_eval.contexts import NO_RESPONSE_CACHE

            raise InputError(NO_RESPONSE_CACHE)


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
    check_allows_no_code(values, lambda *_: config, _RUN_CODE, "_")
    tasks = values.get("tasks") or ()
    for task in tasks.split(",") if isinstance(tasks, str) else map(str, tasks):
        if task.endswith(".yaml") or os.path.isdir(task):  # what the harness takes for a path
            raise InputError(
                f"{config}: tasks: {task}: a file must not let code run, as a task file can; "
                "omit it, and give --tasks on the command line"
            )


def _names_model(arguments: Sequence[str]) -> bool:
    """Whether the arguments name a model, or a file that may."""
    return any(word.partition("=")[0] in ("--model", "-M", "--config", "-C", "--help", "-h") for word in arguments)


@contextmanager
def _as_program(words: Sequence[str]) -> Iterator[None]:
    """Within the block, the process has these arguments, which the harness reads."""
    plain = sys.argv
    sys.argv = ["lm-eval", *words]
    try:
        yield
    finally:
        sys.argv = plain


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Raise the harness's own errors as DeepThinkError; those of this package stay what they are."""
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
