"""Temporary changes to settings of the Hugging Face libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from logging import CRITICAL, getLogger
from threading import RLock

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
        _hide_progress_bars(restored)
        _set_variable(restored, "DISABLE_SAFETENSORS_CONVERSION")
        if offline:
            _disconnect(restored)
        yield


def _hide_progress_bars(restored: ExitStack) -> None:
    # huggingface_hub comes last, because transformers changes its setting as well.
    if (hub := sys.modules.get("huggingface_hub.utils")) and not hub.are_progress_bars_disabled():
        restored.callback(hub.enable_progress_bars)
        hub.disable_progress_bars()
    for name in ("transformers.utils.logging", "datasets.utils"):
        if (library := sys.modules.get(name)) and library.is_progress_bar_enabled():
            restored.callback(library.enable_progress_bar)
            library.disable_progress_bar()
    # Has a progress bar of its own, which no setting hides.
    if library := sys.modules.get("transformers.modeling_gguf_pytorch_utils"):
        restored.callback(setattr, library, "tqdm", library.tqdm)
        library.tqdm = partial(library.tqdm, disable=True)  # type: ignore[attr-defined]


def _set_variable(restored: ExitStack, name: str) -> None:
    # Otherwise transformers looks for a converted copy of a pickled checkpoint on the hub, in a thread.
    if name not in os.environ:
        os.environ[name] = "1"
        restored.callback(os.environ.pop, name, None)


def _disconnect(restored: ExitStack) -> None:
    """Has the effect of HF_HUB_OFFLINE, which the libraries read only when they are imported."""
    for module, name in (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("datasets.config", "HF_HUB_OFFLINE")):
        if library := sys.modules.get(module):
            restored.callback(setattr, library, name, getattr(library, name))
            setattr(library, name, True)
