"""`deepthink chat`: ask one question after another, with a memory and everything said so far in the cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_text
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.process import raising_ctrl_c
from deepthink_cli.cli.values import decoding_of
from deepthink_cli.engine.decoding import Decoding
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import METHOD, Flag

if TYPE_CHECKING:
    from deepthink_cli.plugins.chat.dialogue import Dialogue

PROMPT = "> "
QUIT = ("/quit", "/exit")
At = Annotated[str, Flag(METHOD, "Which kept iteration to use: a number, or last.", "T")]
HELP = "Ctrl-C stops an answer, Ctrl-D or /quit leaves"


@about("chat mem.safetensors --temperature 0.7", first="at temperature top_p max_new_tokens stop seed device")
@grouped
def chat(
    context: typer.Context,
    memory: MemoryFile,
    at: At = "last",
    *,
    decoding: Given[Decoding],
    model: Annotated[Given[ModelOptions], Without("batch_tokens")],
    common: Annotated[CommonArguments, Without("json")],
) -> None:
    """Talk with a model after a memory.

    Each question follows the demonstrations and everything said so far. Answers are shown as they are generated; Ctrl-C
    stops one, Ctrl-D or /quit leaves. Where standard input is not a terminal, each of its lines is a question. A memory
    made with --chat uses the model's chat template, others their template.
    """
    from deepthink_cli.artifact.format import one_iteration, read_header
    from deepthink_cli.artifact.opening import find_its_model, load_both, open_memory
    from deepthink_cli.plugins.chat.dialogue import Dialogue

    model_arguments, problems = for_memory(context, model), Problems()
    options = problems.tried(model_arguments.checked)
    chosen = problems.tried(decoding_of, decoding)
    opened = problems.tried(lambda: open_memory(memory, one_iteration(read_header(memory), at)))
    problems.raise_any()
    with Show(common) as tell:
        engine, memories = load_both(opened, find_its_model(opened, options, tell), tell)
        dialogue = Dialogue(engine, memories[-1], chosen)
    typed = sys.stdin.isatty()
    note(HELP, common.quiet or not typed)
    with raising_ctrl_c():
        for question in _questions(typed):
            _answer(dialogue, question, fail=not typed)


def _questions(typed: bool) -> Iterator[str]:
    """The lines of standard input that are not empty; at a terminal, Ctrl-C starts a new line."""
    while True:
        if typed:
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            if not typed:
                raise
            note(f"\n{HELP}".strip())
            continue
        if not line or (typed and line.strip() in QUIT):
            break
        if line.strip():
            yield line.strip()


def _answer(dialogue: Dialogue, question: str, fail: bool) -> None:
    """Show an answer as it is generated; Ctrl-C stops it. A question that does not fit is told, or raises if `fail`."""
    answer, before = dialogue.ask(question), dialogue.forgotten
    try:
        for number, piece in enumerate(answer):
            write_text(piece if number else piece.lstrip(" "))
    except KeyboardInterrupt:
        if fail:
            raise
    except InputError as error:
        if fail:
            raise
        note(f"deepthink: {error}")
        return
    finally:
        answer.close()
    write_text("\n")
    if dialogue.forgotten > before:
        note("note: the model's context is full; the oldest questions and answers are forgotten")
