"""Failures of libraries while a model is opened, and packages that are missing, in words."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError

from deepthink_cli.errors import DeepThinkError, InputError, Problem, option, out_of_memory, panicked, ran_out_of_memory
from deepthink_cli.io.hub import is_unreachable, unreachable


def check_installed(named: Problem, extra: str, *packages: str) -> None:
    """Raise InputError, which begins with `named`, for the first package that is not installed; `extra` installs it."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(named.because(f"{package} is not installed; pip install 'deepthink-cli[{extra}]'"))


@contextmanager
def library_errors(failure: Problem, hint: str) -> Iterator[None]:
    """Raise every error of the block as an InputError: `failure`, the library's reason, `hint`."""
    try:
        yield
    except DeepThinkError:
        raise
    except BaseException as error:  # transformers and its dependencies raise many types
        if not isinstance(error, Exception) and not panicked(error):
            raise
        if "trust_remote_code" in str(error):
            hint = f"read that code, and allow it with {option('trust_remote_code')}"
        raise InputError(failure.because(f"{_reason(error)}; {hint}")) from error


@contextmanager
def hub_errors(what: Problem, offline: bool, hint: str) -> Iterator[None]:
    """Raise an error of the block as a DeepThinkError if a file is not in the cache and the hub does not give it."""
    try:
        yield
    except DeepThinkError:
        raise
    except Exception as error:  # the hub's library, transformers and the HTTP library raise many types
        if not is_unreachable(error):
            raise
        raise unreachable(what, offline, hint) from error


def _reason(error: BaseException) -> str:
    """The first line of an error's message, which some libraries continue on the second."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(" .")


def load_failure(name: str, error: Exception) -> DeepThinkError:
    """The error for weights that cannot be loaded."""
    if ran_out_of_memory(error):
        return DeepThinkError.of("model", name, f"{out_of_memory(error)}")
    if isinstance(error, UnpicklingError):
        return DeepThinkError.of(
            "model",
            name,
            "its weights are a pickle that torch's safe loader refuses: damaged, or made to run code; get "
            "them as safetensors",
        )
    if isinstance(error, ImportError):
        reason = _reason(error).partition(". ")[0]
        return InputError.of("model", name, f"a package is missing ({reason}); install it, or choose another model")
    return DeepThinkError.of("model", name, f"its weights cannot be loaded: {_reason(error)}")
