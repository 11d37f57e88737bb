"""Options of the model and of what a command writes, each declared once for all commands."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepthink_cli.cli.configfile import apply_config
from deepthink_cli.engine.registry import AUTO, ENGINES
from deepthink_cli.io.permissions import RUN_CODE
from deepthink_cli.model.options import POCKET, Dtype, ModelOptions, Quantize

if TYPE_CHECKING:
    from deepthink_cli.events import Tell

MODEL, METHOD, DATA, OUTPUT = "Model", "Method", "Data", "Output"


def option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """An option with its environment variable, DEEPTHINK_ and the first name; one that lets code run has none."""
    name = names[0].removeprefix("--").replace("-", "_")
    variable = None if name in RUN_CODE else f"DEEPTHINK_{name.upper()}"
    return typer.Option(*names, envvar=variable, show_envvar=False, rich_help_panel=panel, help=help, **more)


def one_of(name: str, names: Collection[str]) -> str:
    """The name, if it is one of these; raises BadParameter otherwise, as typer does for a choice."""
    if name not in names:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
    return name


def _engine(name: str) -> str:
    """The name of a registered engine, or `auto`."""
    return one_of(name, (AUTO, *ENGINES))


# Numbers arrive as text: the check in deepthink_cli.options names the value and reports all mistakes at once.
Offline = Annotated[bool, option("--offline", panel=MODEL, help="Use only files on this machine; no downloads.")]


@dataclass(frozen=True)
class ModelArguments:
    """Which model, in which dtype, on which device, by which engine."""

    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            panel=MODEL,
            metavar="MODEL",
            help="Hub id, local directory, GGUF file, or pocket, the built-in toy model. Default: the memory's model; "
            "for a new memory pocket.",
        ),
    ] = None
    revision: Annotated[
        str | None, option("--revision", panel=MODEL, metavar="REV", help="Branch, tag or commit of a hub model.")
    ] = None
    gguf: Annotated[
        str | None,
        option(
            "--gguf",
            panel=MODEL,
            metavar="FILE",
            help="GGUF file in the model's directory or hub repository (needs gguf).",
        ),
    ] = None
    adapter: Annotated[
        str | None,
        option(
            "--adapter",
            panel=MODEL,
            metavar="ADAPTER",
            help="LoRA adapter, merged into the weights: local directory or hub id, also ID@REVISION (needs peft).",
        ),
    ] = None
    dtype: Annotated[
        Dtype,
        option(
            "--dtype",
            panel=MODEL,
            help="Compute dtype; auto is the memory's dtype; for a new memory float32 on a CPU, "
            "the checkpoint's dtype on a GPU.",
        ),
    ] = "auto"
    device: Annotated[
        str, option("--device", panel=MODEL, metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
    ] = "auto"
    device_map: Annotated[
        Literal["auto"] | None,
        option(
            "--device-map",
            panel=MODEL,
            help="Spread the model over all GPUs; each layer's memory stays on its layer's device.",
        ),
    ] = None
    quantize: Annotated[
        Quantize | None,
        option("--quantize", panel=MODEL, help="Load the weights in 8 or 4 bits (needs bitsandbytes)."),
    ] = None
    engine: Annotated[
        str,
        option(
            "--engine",
            panel=MODEL,
            parser=_engine,
            metavar=f"[{'|'.join((AUTO, *ENGINES))}]",
            help="Score batches packed (without padding) or padded; auto is packed if a probe gives the same scores.",
        ),
    ] = "auto"
    offline: Offline = False
    trust_remote_code: Annotated[
        bool, option("--trust-remote-code", panel=MODEL, help="Run Python code that comes with the model.")
    ] = False
    batch_tokens: Annotated[
        str | None,
        option(
            "--batch-tokens",
            panel=MODEL,
            metavar="TOKENS",
            help="Tokens per scoring pass. Default: chosen for the device. A longer input runs in a pass of its own.",
        ),
    ] = None

    def checked(self) -> ModelOptions:
        """The validated options; also applies `--offline` to the hub's library."""
        if self.offline:
            os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is first imported, which is later
        return ModelOptions.checked(**{name: value for name, value in asdict(self).items() if value is not None})


_OF_THE_MEMORY = ("model", "revision", "gguf", "adapter", "quantize")


def for_memory(context: typer.Context, model: ModelArguments) -> ModelArguments:
    """The options of a command whose model is named by a memory: only a flag names another one.

    Environment variables and config files hold defaults for new memories.
    """
    sources = {name: context.get_parameter_source(name) for name in _OF_THE_MEMORY}
    ignored = {name: None for name, source in sources.items() if source is None or source.name != "COMMANDLINE"}
    return replace(model, **ignored)  # type: ignore[arg-type]


def tell_of_toy(model: ModelArguments, tell: Tell) -> None:
    """Note that no model was named, and that the built-in one is a toy."""
    from deepthink_cli.events import Note

    if model.model is None:
        text = (
            f"no model named: {POCKET} is a toy for trials and tests; name a real one with -m, as in -m gpt2, or set "
        )
        tell(Note(f"{text}DEEPTHINK_MODEL"))


@dataclass(frozen=True)
class CommonArguments:
    """The form of a command's output, and the config file of its options."""

    json: Annotated[bool, option("--json", panel=OUTPUT, help="Print one JSON object on stdout.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", panel=OUTPUT, help="Show no progress and no notes.")] = False
    verbose: Annotated[bool, option("--verbose", "-v", panel=OUTPUT, help="Print details of what is being done.")] = (
        False
    )
    debug: Annotated[bool, option("--debug", panel=OUTPUT, help="Show a traceback for a bug in the program.")] = False
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="DEEPTHINK_CONFIG",
            is_eager=True,
            callback=apply_config,
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="TOML or YAML file with option values; flags and DEEPTHINK_* variables take precedence.",
        ),
    ] = None
