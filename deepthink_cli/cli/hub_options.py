"""Options of the commands that publish and fetch memories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.options import DATA, OUTPUT

Repo = Annotated[str, typer.Argument(metavar="REPO", help="A model repository of the hub, as OWNER/NAME.")]
# No variable of the environment: DEEPTHINK_REVISION is the model's.
RepoRevision = Annotated[
    str | None,
    typer.Option("--revision", metavar="REV", rich_help_panel=DATA, help="Branch of the repository. Default: main."),
]
Private = Annotated[
    bool, typer.Option("--private", rich_help_panel=OUTPUT, help="Create the repository as a private one.")
]
Yes = Annotated[bool, typer.Option("--yes", rich_help_panel=OUTPUT, help="Publish the demonstrations without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Print what would be published; send nothing.")
]
Results = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Results for the card: the output of deepthink eval --json.",
    ),
]
Licence = Annotated[
    str | None,
    typer.Option(
        "--licence",
        metavar="NAME",
        rich_help_panel=DATA,
        help="Licence of the model for the card, as in apache-2.0. Default: the one that the model's own card names.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Output file. Default: the repository's name with .safetensors.",
    ),
]
