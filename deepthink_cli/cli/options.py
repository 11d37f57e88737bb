"""The options that several commands share: the same names, the same meaning, the same environment variables."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from deepthink_cli.cli.configfile import apply_config

MODEL, METHOD, DATA, OUTPUT = "Model", "Method", "Data", "Output"


class DtypeName(StrEnum):
    """Numbers a model computes in."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class PositionsName(StrEnum):
    """Where every reading after the first stands."""

    continued = "continued"
    restarted = "restarted"


class SamplingName(StrEnum):
    """How demonstrations are drawn from a task's training rows."""

    random = "random"
    stratified = "stratified"
    first = "first"


class QuantizeName(StrEnum):
    """Quantization by bitsandbytes."""

    eight = "8bit"
    four = "4bit"


class DeviceMapName(StrEnum):
    """How a model is spread over devices."""

    auto = "auto"


# Numbers arrive as text: the options' own check (config.py) names the value, and reports all mistakes at once.
def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    variable = "DEEPTHINK_" + names[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(*names, envvar=variable, show_envvar=False, rich_help_panel=panel, help=help, **more)


Model = Annotated[
    str | None,
    _option(
        "--model", "-m", panel=MODEL, metavar="MODEL", help="Hub id, local directory, or pocket, the built-in model."
    ),
]
Revision = Annotated[
    str | None, _option("--revision", panel=MODEL, metavar="REV", help="Branch, tag or commit of a hub model.")
]
Dtype = Annotated[
    DtypeName,
    _option(
        "--dtype",
        panel=MODEL,
        help="Numbers the model computes in; auto is what the memory was made in; for a new one float32 on a CPU, the checkpoint's own on a GPU.",
    ),
]
Device = Annotated[str, _option("--device", panel=MODEL, metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")]
DeviceMap = Annotated[
    DeviceMapName | None,
    _option(
        "--device-map",
        panel=MODEL,
        help="Spread the model over all GPUs; each layer's memory stays on its layer's device.",
    ),
]
Quantize = Annotated[
    QuantizeName | None,
    _option("--quantize", panel=MODEL, help="Load the weights in 8 or 4 bits (needs bitsandbytes)."),
]
Offline = Annotated[bool, _option("--offline", panel=MODEL, help="Use only what is on this machine.")]
TrustRemoteCode = Annotated[
    bool, _option("--trust-remote-code", panel=MODEL, help="Run Python code that comes with the model.")
]
BatchTokens = Annotated[
    str | None,
    _option(
        "--batch-tokens",
        panel=MODEL,
        metavar="TOKENS",
        help="Tokens of one scoring pass; found if not given. A longer input still runs, alone.",
    ),
]

Iterations = Annotated[
    str,
    _option(
        "--iterations",
        "-T",
        panel=METHOD,
        metavar="T",
        help="Readings of the demonstrations; 1 is plain in-context learning.",
    ),
]
Eta = Annotated[
    str, _option("--eta", panel=METHOD, metavar="ETA", help="Gate: how far each reading moves the memory, in (0, 1].")
]
Momentum = Annotated[
    str,
    _option("--momentum", panel=METHOD, metavar="BETA", help="0 is the paper; 0.9 is the official code's recipe."),
]
Etas = Annotated[str, _option("--eta", panel=METHOD, metavar="ETA,...", help="Gate, or several by commas, in (0, 1].")]
Momentums = Annotated[
    str, _option("--momentum", panel=METHOD, metavar="BETA,...", help="0 is the paper; several by commas, as in 0,0.9.")
]
Positions = Annotated[
    PositionsName,
    _option(
        "--positions",
        panel=METHOD,
        help="Readings after the first stand behind the memory (continued) or in its place.",
    ),
]
Keep = Annotated[
    str,
    _option("--keep", panel=METHOD, metavar="WHICH", help="Iterations to store: last, all, or numbers as in 1,3,5."),
]

TemplateText = Annotated[
    str | None,
    _option(
        "--template",
        panel=DATA,
        metavar="TEXT|FILE",
        help=r"Named fields, the label last, as in 'Review: {text}\nSentiment: {label}'. Default: the rows' field names.",
    ),
]
LabelField = Annotated[
    str | None,
    _option("--label-field", panel=DATA, metavar="NAME", help="Field that holds the label. Default: the last."),
]
Labels = Annotated[
    str | None,
    _option(
        "--labels",
        panel=DATA,
        metavar="A,B,...",
        help="Label words, in order. Default: those seen in the demonstrations.",
    ),
]
Separator = Annotated[
    str | None,
    _option("--separator", panel=DATA, metavar="TEXT", help=r"Stands after every demonstration. Default: \n\n"),
]

TaskName = Annotated[
    str | None,
    _option(
        "--task", panel=DATA, metavar="NAME|FILE", help="Built-in task (deepthink tasks lists them), or a task file."
    ),
]
TaskNames = Annotated[
    list[str] | None,
    _option(
        "--task",
        panel=DATA,
        metavar="NAME|GROUP|FILE",
        help="Task, group (classic, mmlu, mmlu/stem, bbh) or task file; give it several times for several.",
    ),
]
Shots = Annotated[
    str | None, _option("--shots", panel=DATA, metavar="N", help="Demonstrations of a task. Default: the task's own.")
]
Seeds = Annotated[
    str,
    _option(
        "--seeds", panel=DATA, metavar="N", help="Demonstration seeds: 10 for 0 to 9, or a list, as in 3,5; 42, is one."
    ),
]
Seed = Annotated[
    str | None, _option("--seed", panel=DATA, metavar="S", help="Draws a task's demonstrations. Default: 0.")
]
OrderSeed = Annotated[
    str | None, _option("--order-seed", panel=DATA, metavar="S", help="Permutes the same demonstrations.")
]
SamplingChoice = Annotated[
    SamplingName | None,
    _option("--sampling", panel=DATA, help="How a task's demonstrations are drawn. Default: the task's own, random."),
]
ProtocolName = Annotated[
    str,
    _option(
        "--protocol",
        panel=DATA,
        metavar="NAME",
        help="Rows of a task that are evaluated: official (the authors' code) or paper (the appendix).",
    ),
]
DataDir = Annotated[
    Path | None,
    _option(
        "--data-dir", panel=DATA, metavar="DIR", help="Read tasks from DIR/FOLDER/SPLIT.jsonl instead of from the hub."
    ),
]
Limit = Annotated[
    str | None, _option("--limit", panel=DATA, metavar="N", help="Evaluate a sample of N rows, the same every time.")
]

IterationChoice = Annotated[
    str,
    _option("--iteration", panel=METHOD, metavar="T|all", help="Which kept iteration to use: a number, last, or all."),
]

Json = Annotated[bool, _option("--json", panel=OUTPUT, help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, _option("--quiet", "-q", panel=OUTPUT, help="No progress and no notes.")]
Verbose = Annotated[bool, _option("--verbose", "-v", panel=OUTPUT, help="Say what is being done.")]
Debug = Annotated[bool, _option("--debug", panel=OUTPUT, help="Show a traceback where the program itself fails.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", envvar="DEEPTHINK_CONFIG", is_eager=True, callback=apply_config, metavar="FILE",
                 rich_help_panel=OUTPUT, help="TOML or YAML file with option values; flags and DEEPTHINK_* variables go before it."),
]  # fmt: skip
