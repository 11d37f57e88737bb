"""Models that bring code of their own, which notes that it has run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def changed(model: Path, file: str = "config.json", **fields: Any) -> Path:
    """Change fields of a model's JSON file."""
    content = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps({**content, **fields}))
    return model


def bring_code(model: Path, ran: Path) -> Path:
    """Make a model one of an unknown kind that brings its own code."""
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil"):
        (model / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    names = {"AutoConfig": "configuration_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"}
    return changed(model, model_type="evil", auto_map=names)
