"""Options of techniques other than Deep-Thinking."""

from __future__ import annotations

from typing import Annotated

from deepthink_cli.cli.options import METHOD, option

Steps = Annotated[
    str | None, option("--steps", panel=METHOD, metavar="N", help="Gradient steps of ct-kv. Default: 200.")
]
LearningRate = Annotated[
    str | None, option("--lr", panel=METHOD, metavar="X", help="Learning rate of ct-kv. Default: 0.001.")
]
