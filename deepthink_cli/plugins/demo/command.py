"""`deepthink demo`: both stages, on files of the package, with the built-in model or another one."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments
from deepthink_cli.cli.values import PACKAGE
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.options import POCKET, ModelOptions

_NEXT = (
    "That is one choice of demonstrations: thinking may gain or lose with others, as deepthink run --seeds 5 shows.",
    'Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:',
    "  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors",
    "  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl",
    "  deepthink eval mem.safetensors labelled.jsonl",
)


@about("demo", group="The two stages")
@grouped
def demo(
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Show both stages, and what thinking changes.

    The default is the built-in model, which is offline and takes seconds.
    """
    from deepthink_cli.cli.main import run

    model = model.but(model=model.model or POCKET)
    folders = (Path(__file__).parent / "reviews", PACKAGE.parent / "examples" / "reviews")  # of a wheel, of a checkout
    data = next(each for each in folders if each.is_dir())
    words = [word for name, value in model.changed.items() for word in (flag(name), str(value)) if word != "True"]
    demos, inputs, rows = (str(data / f"{name}.jsonl") for name in ("demos", "inputs", "sentences"))
    with temporary_folder() as folder:
        memory = str(folder / "reviews.safetensors")
        think = ["think", demos, *words, "-T", "12", "--eta", "0.1", "-o", memory, "--keep", "1,2,4,8,12"]
        for title, arguments in (
            ("Think: read the demonstrations 12 times; keep five memories in a file.", think + ["-q"] * common.quiet),
            ("Predict: label new inputs with the last memory.", ["predict", memory, inputs, "--at", "12", "-q"]),
            ("Evaluate: what thinking changes from T = 1, plain in-context learning.", ["eval", memory, rows, "-q"]),
        ):
            for line in ("", title, f"$ deepthink {shlex.join(arguments)}"):
                note(line)
            if code := run(arguments):
                raise typer.Exit(code)
            sys.stdout.flush()
    for line in ("", *_NEXT):
        note(line, common.quiet)
