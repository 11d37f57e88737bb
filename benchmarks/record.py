"""The file of results: rewritten whole after every measurement, so that an interrupted run keeps what it had."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

KEYS = ("shape", "length", "candidate_tokens", "dtype", "threads")


class Record:
    """`speed.json` in a folder; a run into a folder that has one replaces what it measures again and keeps the rest."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "speed.json"
        self.content: dict[str, Any] = {"cells": [], "trec": [], "agnews": [], "peak": []}
        if self.path.exists():
            self.content |= json.loads(self.path.read_text(encoding="utf-8"))
        self.content["machine"] = {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def add(self, part: str, measured: dict[str, Any]) -> None:
        """Put a measurement in the place of an older one of the same setting, and write the file."""

        def setting(one: dict[str, Any]) -> list[Any]:
            return [one.get(key) for key in KEYS]

        others = [one for one in self.content[part] if setting(one) != setting(measured)]
        self.content[part] = [*others, measured]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)


def _processor() -> str:
    """The processor's name where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
