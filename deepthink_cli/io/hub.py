"""The hub and its libraries: permission to ask it, temporary settings, and failures in words."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import CRITICAL, getLogger
from pickle import UnpicklingError
from threading import RLock

from deepthink_cli.errors import (
    DeepThinkError,
    InputError,
    Problem,
    installing,
    option,
    out_of_memory,
    panicked,
    ran_out_of_memory,
)

_PATIENCE = 3.0  # seconds for each address of the hub, and for its answer
_UNREACHABLE = {"ConnectionError", "TransportError", "Timeout", "LocalEntryNotFoundError", "OfflineModeIsEnabled"}


def forbidden_by(offline: bool) -> str | None:
    """The option or the variable of the hub's library that forbids downloads; None if they are allowed."""
    if offline:
        return option("offline")
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def is_unreachable(error: BaseException) -> bool:
    """Whether an error of a library means that a file is not in the cache and the hub did not answer or was not asked.

    A missing repository or file, which the hub reports itself, does not count.
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any({kind.__name__ for kind in type(each).__mro__} & _UNREACHABLE for each in seen)


class NotInCache(DeepThinkError):
    """Something that is not in the cache cannot be downloaded."""


def unreachable(what: Problem, offline: bool, hint: str) -> NotInCache:
    """The error that `what` is not in the cache, with the reason why the hub does not give it, and the hint."""
    forbidding = forbidden_by(offline)
    if forbidding is None:
        reason = f"not in the cache, and the hub cannot be reached; check the connection, or {hint}"
    else:
        lifted = f"{'omit' if offline else 'unset'} {forbidding}"
        reason = f"not in the cache, and {forbidding} forbids downloads; {lifted}, or {hint}"
    return NotInCache(what.because(reason))


def is_repository(name: str) -> bool:
    """Whether a text can be the name of a repository of the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def answers() -> bool:
    """Whether the hub answers within seconds; its library would try for a minute."""
    from huggingface_hub import constants, get_session

    try:
        return bool(get_session().head(constants.ENDPOINT, timeout=_PATIENCE).status_code < 500)
    except Exception:  # types of the library's HTTP client
        return False


_lock = RLock()  # the settings are global to the process, so only one thread at a time may change them


@contextmanager
def quiet_libraries(offline: bool = False) -> Iterator[None]:
    """Silence the imported libraries until the block ends; with `offline`, also forbid connections.

    Other threads that call this wait. Errors of the libraries are still raised.
    """
    with _lock, ExitStack() as restored:
        logger = getLogger("transformers")
        restored.callback(logger.setLevel, logger.level)
        logger.setLevel(CRITICAL)
        # huggingface_hub comes last, because transformers changes its setting as well.
        if (hub := sys.modules.get("huggingface_hub.utils")) and not hub.are_progress_bars_disabled():
            restored.callback(hub.enable_progress_bars)
            hub.disable_progress_bars()
        for name in ("transformers.utils.logging", "datasets.utils"):
            if (library := sys.modules.get(name)) and library.is_progress_bar_enabled():
                restored.callback(library.enable_progress_bar)
                library.disable_progress_bar()
        # Otherwise transformers looks for a converted copy of a pickled checkpoint on the hub, in a thread.
        if (name := "DISABLE_SAFETENSORS_CONVERSION") not in os.environ:
            os.environ[name] = "1"
            restored.callback(os.environ.pop, name, None)
        # The effect of HF_HUB_OFFLINE, which the libraries read only when they are imported.
        for name in ("huggingface_hub.constants", "datasets.config") if offline else ():
            if library := sys.modules.get(name):
                restored.callback(setattr, library, "HF_HUB_OFFLINE", library.HF_HUB_OFFLINE)
                library.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
        yield


@contextmanager
def without_collection() -> Iterator[None]:
    """Until the block ends, Python does not look for unreachable cycles, which takes a fifth of the time of a start.

    Importing the libraries and loading a model make a million objects, nearly all of which stay. Later they count as
    old, and are looked through rarely.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()  # all objects are now in the oldest generation; `gc.collect` would look at each of them
            gc.enable()


def check_installed(named: Problem, extra: str, *packages: str) -> None:
    """Raise InputError, which begins with `named`, for the first package that is not installed; `extra` installs it."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(named.because(f"{package} is not installed; {installing(extra)}"))


@contextmanager
def library_errors(failure: Problem, hint: str) -> Iterator[None]:
    """Raise every error of the block, unless memory runs out, as an InputError: `failure`, the reason, `hint`."""
    try:
        yield
    except DeepThinkError:
        raise
    except BaseException as error:  # transformers and its dependencies raise many types
        if (not isinstance(error, Exception) and not panicked(error)) or ran_out_of_memory(error):
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
