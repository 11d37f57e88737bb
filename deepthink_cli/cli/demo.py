"""`deepthink demo`: both stages and what they give, on files of the package, with the built-in model or another one."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, report
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.options import POCKET, ModelOptions

AGAIN = 20  # inputs before each of which the demonstrations are read again
_NEXT = (
    "That is one choice of demonstrations: thinking may gain or lose with others, as deepthink run --seeds 5 shows.",
    'Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:',
    "  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors",
    "  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl",
    "  deepthink eval mem.safetensors labelled.jsonl",
)


@about("demo")
@grouped
def demo(
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Show both stages, what thinking changes and a memory saves.

    The default is the built-in model, which is offline and takes seconds.
    """
    from deepthink_cli.cli.main import run

    model = model.but(model=model.model or POCKET)
    options, package = model.checked(), Path(__file__).resolve().parent.parent
    data = next(each for each in (package / "demo_data", package.parent / "examples") if each.is_dir()) / "reviews"
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
    report("", "What a memory saves: the demonstrations are read once.", _saved(options, demos, rows))
    for line in ("", *_NEXT):
        note(line, common.quiet)


def _saved(options: ModelOptions, demos: str, rows: str) -> str:
    """The times of scoring after one reading, and with the demonstrations read again before each input."""
    from deepthink_cli.data.examples import read_demonstrations, read_queries
    from deepthink_cli.engine.base import Reading
    from deepthink_cli.engine.opening import find_model, load
    from deepthink_cli.events import silent
    from deepthink_cli.model.tokens import query_tokenizer, tokenize_demonstrations

    engine, read = load(find_model(options, silent), silent), read_demonstrations(demos)
    tokenized = tokenize_demonstrations(engine.tokenizer, read)
    queries = query_tokenizer(engine.tokenizer, tokenized)(list(read_queries(rows, read.template, read.labels)))
    reading, started = Reading(tokenized.token_ids), time.perf_counter()
    (before,) = engine.score(engine.read([reading]), engine.plan(queries))
    each, started = (time.perf_counter() - started) / len(queries), time.perf_counter()
    after = [engine.score(engine.read([reading]), engine.plan([query]))[0][0] for query in queries[:AGAIN]]
    anew = (time.perf_counter() - started) / len(after)
    difference = max(
        abs(one - other) for pair in zip(before, after, strict=False) for one, other in zip(*pair, strict=True)
    )
    return (
        f"One reading of {len(reading)} tokens and {len(queries)} inputs: {1000 * each:.1f} ms an input. Reading them "
        f"again before each of {len(after)} inputs: {1000 * anew:.1f} ms, {anew / each:.1f} times as long, for the "
        f"same scores (largest difference {difference:.1g} nats)."
    )
