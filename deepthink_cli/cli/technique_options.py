"""Options of techniques other than Deep-Thinking."""

from __future__ import annotations

from typing import Annotated

from deepthink_cli.cli import completion
from deepthink_cli.cli.options import METHOD, option

Steps = Annotated[
    str | None, option("--steps", panel=METHOD, metavar="N", help="Gradient steps of ct-kv. Default: 200.")
]
Update = Annotated[
    str | None,
    option(
        "--update",
        panel=METHOD,
        metavar="RULE[:PARAMETER=VALUE,...]",
        autocompletion=completion.updates,
        help="How a reading changes the memory, with --eta: gate, as in the paper, or an ablation, such as keys-only, "
        "cosine:readings=15 or rotated (docs/ablations.md). Default: gate.",
    ),
]
Updates = Annotated[
    str | None,
    option(
        "--update",
        panel=METHOD,
        metavar="RULE,...",
        autocompletion=completion.updates,
        help="How readings change the memory, each rule with rows of its own: gate, as in the paper, and ablations, "
        "such as keys-only, cosine:readings=15 or rotated (docs/ablations.md). Default: gate.",
    ),
]
LearningRate = Annotated[
    str | None, option("--lr", panel=METHOD, metavar="X", help="Learning rate of ct-kv. Default: 0.001.")
]
