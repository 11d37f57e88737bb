"""Options of the model and of a command's output, each declared once for all commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.grouped import Given, Help
from deepthink_cli.cli.sources import apply_config, is_typed
from deepthink_cli.model.options import MODEL_NAMES, POCKET, TOY, ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.events import Tell


_OF_THE_MEMORY = ("model", "revision", "quantize")


# The help of -m where there is no memory, whose model would be the default.
NEW_MODEL = Help(model=f"{MODEL_NAMES}. Default: {POCKET}.")
Details = Annotated[bool, Flag(OUTPUT, "Also print the tables behind the result.", variable=False)]


def for_memory(context: typer.Context, model: Given[ModelOptions]) -> Given[ModelOptions]:
    """The model options of a command whose memory names the model: only a flag names another model.

    Environment variables and config files hold defaults for new memories.
    """
    return model.but(**{name: None for name in _OF_THE_MEMORY if not is_typed(context, name)})


def tell_of_toy(model: Given[ModelOptions], tell: Tell) -> None:
    """Note that no model was named, and that the built-in model is a toy."""
    from deepthink_cli.events import Note

    if model.model is None:
        tell(Note(f"no model named: {TOY}; -m names a real one"))


class CommonArguments(Options):
    """The form of a command's output, and the config file of its options."""

    as_json: Annotated[bool, Flag(OUTPUT, "Print one JSON object on stdout.", name="json")] = False
    quiet: Annotated[bool, Flag(OUTPUT, "Show no progress and no notes.", short="-q")] = False
    verbose: Annotated[bool, Flag(OUTPUT, "Print details of what is being done.", short="-v")] = False
    debug: Annotated[bool, Flag(OUTPUT, "Show a traceback for a bug in the program.")] = False
    config: Annotated[
        Path | None,
        Flag(
            OUTPUT,
            "TOML or YAML file with option values; flags and DEEPTHINK_* variables take precedence.",
            "FILE",
            callback=apply_config,
            eager=True,
        ),
    ] = None
