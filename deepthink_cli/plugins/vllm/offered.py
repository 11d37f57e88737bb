"""Memories of this process that a vLLM in it serves without files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.plugins.vllm.settings import SALT

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

OFFERED: dict[str, Memory] = {}  # by salt


def offer(memory: Memory) -> str:
    """Have a memory served, with its provenance; returns the `cache_salt` of its requests."""
    salt = f"{SALT}offered:{len(OFFERED)}"
    OFFERED[salt] = memory
    return salt
