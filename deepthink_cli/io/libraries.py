"""Settings of the Hugging Face libraries, changed for the length of a call and then put back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import CRITICAL, getLogger
from threading import RLock

_lock = RLock()  # the settings belong to the process, so one thread at a time changes them


@contextmanager
def quiet_libraries(offline: bool = False) -> Iterator[None]:
    """Silence the libraries that are imported until the block ends; with `offline`, they open no connection either.

    Other threads that call this wait. Their errors are raised as ever, so nothing is lost.
    """
    with _lock, ExitStack() as restored:
        logger = getLogger("transformers")
        restored.callback(logger.setLevel, logger.level)
        logger.setLevel(CRITICAL)
        _hide_progress_bars(restored)
        _set_variable(restored, "DISABLE_SAFETENSORS_CONVERSION")
        if offline:
            _disconnect(restored)
        yield


def _hide_progress_bars(restored: ExitStack) -> None:
    # The hub's library comes last: the one of transformers switches it too.
    if (hub := sys.modules.get("huggingface_hub.utils")) and not hub.are_progress_bars_disabled():
        restored.callback(hub.enable_progress_bars)
        hub.disable_progress_bars()
    for name in ("transformers.utils.logging", "datasets.utils"):
        if (library := sys.modules.get(name)) and library.is_progress_bar_enabled():
            restored.callback(library.enable_progress_bar)
            library.disable_progress_bar()


def _set_variable(restored: ExitStack, name: str) -> None:
    # Without this, a pickled checkpoint makes transformers ask the hub for a converted one in a thread.
    if name not in os.environ:
        os.environ[name] = "1"
        restored.callback(os.environ.pop, name, None)


def _disconnect(restored: ExitStack) -> None:
    """What HF_HUB_OFFLINE does where it is set before the libraries are imported."""
    for module, name in (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("datasets.config", "HF_HUB_OFFLINE")):
        if library := sys.modules.get(module):
            restored.callback(setattr, library, name, getattr(library, name))
            setattr(library, name, True)
