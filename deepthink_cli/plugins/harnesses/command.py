"""`deepthink harness`: lm-evaluation-harness with the model `deepthink`; its own arguments follow."""

from __future__ import annotations

from typing import Annotated

import typer

from deepthink_cli.cli.about import about

Remaining = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGUMENTS]...",
        help="Arguments of lm-eval: run (the default), ls or validate, and its options; see deepthink harness run -h.",
        show_default=False,
    ),
]


@about(
    "harness --model_args pretrained=gpt2,iterations=5 --tasks mmlu --num_fewshot 5",
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def harness(arguments: Remaining = None) -> None:
    """Evaluate tasks of lm-evaluation-harness with Deep-Thinking.

    Needs the extra lm-eval. All arguments are those of lm-eval; the model is deepthink unless --model names another.

    --model_args name=value,name=value:

    pretrained=MODEL, and revision, gguf, dtype, quantize, offline, engine: as the options of other commands.

    iterations=5, eta=0.01 and positions: the method; iterations=1 is plain in-context learning, as with the model hf.

    demonstrations=fixed: draw the demonstrations once for each task instead of for each row (per-doc).

    max_length, add_bos_token, enable_thinking: as those of the model hf.
    """
    from deepthink_cli.plugins.harnesses.lm_eval.tasks import run_harness

    if code := run_harness(arguments or []):
        raise typer.Exit(code)
