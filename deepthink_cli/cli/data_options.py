"""Options of the data: tasks and their rows, how demonstrations are drawn, and how rows become prompts."""

from __future__ import annotations

import csv
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.calibration.registry import STORED, choices
from deepthink_cli.cli.sources import came_from
from deepthink_cli.cli.values import label_list, pattern, unescaped
from deepthink_cli.data.chat import Chat
from deepthink_cli.data.source import FormatName, RowSource
from deepthink_cli.data.template import SEPARATOR
from deepthink_cli.errors import InputError
from deepthink_cli.options import DATA, METHOD, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.tasks.sources import Source


def _labels(context: typer.Context, typed: list[str] | None) -> list[str] | None:
    """What was typed for --labels; an environment variable is one value, which typer splits at blanks."""
    return [os.environ["DEEPTHINK_LABELS"]] if came_from(context, "labels") == "ENVIRONMENT" else typed


MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file written by deepthink think.")]
TaskName = Annotated[
    str | None,
    Flag(DATA, "Built-in task (deepthink tasks lists them), or a task file.", "NAME|FILE", complete="task_names"),
]
TaskNames = Annotated[
    list[str] | None,
    Flag(
        DATA,
        "Task, group (classic, mmlu, mmlu/stem, bbh) or task file; give it several times for several.",
        "NAME|GROUP|FILE",
        complete="task_names",
    ),
]
ProtocolName = Annotated[
    str,
    Flag(DATA, "Rows of a task that are evaluated: official (the authors' code) or paper (the appendix).", "NAME"),
]
DataDir = Annotated[
    Path | None,
    Flag(
        DATA,
        "Read tasks from DIR/FOLDER/SPLIT.jsonl instead of from the hub.",
        "DIR",
    ),
]
RowFormat = Annotated[
    FormatName | None,
    Flag(
        DATA,
        "Format of the rows, where the suffix of their file does not say it. Default for stdin: jsonl.",
        name="format",
    ),
]
Renamed = Annotated[
    str | None,
    Flag(
        DATA,
        "Columns of the rows that are read as other fields, as in --map Text=text,Class=label.",
        "COLUMN=FIELD,...",
        name="map",
    ),
]
LabelField = Annotated[
    str | None,
    Flag(
        DATA,
        "Name of the label field. Default: the last field; tasks new guesses it.",
        "NAME",
    ),
]
Cache = Annotated[
    Path | None,
    Flag(DATA, "Cache of what is computed with models. Default: deepthink in $XDG_CACHE_HOME or ~/.cache.", "DIR"),
]


LabelSeparator = Annotated[
    str | None,
    Flag(
        DATA,
        "Text between the labels of a row that may have several, as in ';'. A list of labels needs none.",
        "TEXT",
    ),
]


class PromptArguments(Options):
    """How rows become demonstrations, unless a task defines it."""

    template: Annotated[
        str | None,
        Flag(
            DATA,
            r"Named fields, the label last, as in 'Review: {text}\nSentiment: {label}'. "
            "Default: the rows' field names.",
            "TEXT|FILE",
        ),
    ] = None
    label_field: LabelField = None
    labels: Annotated[
        list[str] | None,
        Flag(
            DATA,
            "Label words, in order: a line of CSV, as in 'yes,\"no, never\"'; @FILE, with one label a line; or "
            "one label each time, if the option is repeated. Default: those of the demonstrations.",
            "A,B,...|@FILE",
            callback=_labels,
        ),
    ] = None
    separator: Annotated[
        str | None,
        Flag(
            DATA,
            r"Text after every demonstration. Default: \n\n",
            "TEXT",
        ),
    ] = None

    def decoded(self) -> tuple[str | None, str | None, list[str] | None, str]:
        """The template, the name of the label field, the label words and the separator that were typed.

        Raises InputError as `pattern` and `label_list` do.
        """
        separator = SEPARATOR if self.separator is None else unescaped(self.separator)
        return pattern(self.template), self.label_field, label_list(self.labels), separator


class ChatArguments(Options):
    """Whether demonstrations and queries are turns of a conversation."""

    chat: Annotated[
        bool,
        Flag(
            DATA,
            "Write demonstrations and queries as turns of a conversation, by the tokenizer's chat template.",
        ),
    ] = False
    system: Annotated[
        str | None,
        Flag(
            DATA,
            "System message of the conversation.",
            "TEXT",
        ),
    ] = None

    @property
    def value(self) -> Chat | None:
        """The conversation, or None."""
        return Chat(self.system) if self.chat else None


def row_source(path: str | None, row_format: FormatName | None, renamed: str | None = None) -> RowSource | None:
    """The rows that an argument names; raises InputError for a format or names of columns without rows."""
    for name, value in (("format", row_format), ("map", renamed)):
        if path is None and value is not None:
            raise InputError.of(name, value, "no rows are read from a file; name one, or omit it")
    return None if path is None else RowSource(path, row_format, renamed=columns_in(renamed))


def task_words(name: str, source: Source) -> str:
    """A task as it is typed after `--task`, with the directory of its rows."""
    return shlex.join([name] if source.data_dir is None else [name, "--data-dir", str(source.data_dir)])


def columns_in(text: str | None) -> tuple[tuple[str, str], ...]:
    """The columns and fields in `Text=text,Class=label`, a line of CSV; raises InputError for another text."""
    if text is None:
        return ()
    pairs = [tuple(map(str.strip, each.split("="))) for each in next(csv.reader([text], skipinitialspace=True), [])]
    columns, fields = {pair[0] for pair in pairs}, {pair[-1] for pair in pairs}
    whole = pairs and all(len(pair) == 2 and all(pair) for pair in pairs)
    if not whole or len(columns) < len(pairs) or len(fields) < len(pairs):
        raise InputError.of("map", text, "give COLUMN=FIELD, each name once, as in Text=text,Class=label")
    return tuple((pair[0], pair[-1]) for pair in pairs)


IterationChoice = Annotated[
    str, Flag(METHOD, "Which kept iterations to use: numbers as in 1,5, last, or all.", "T,...", formerly="iteration")
]
Calibrate = Annotated[
    str | None,
    Flag(
        METHOD,
        f"Correct the scores for a bias toward some labels: {', '.join((*choices(), STORED))}; "
        "of several, the first gives the label. Default: what the memory stores.",
        "NAME,...",
        complete="calibrations",
    ),
]
EnsembleFiles = Annotated[
    list[Path] | None,
    Flag(
        METHOD,
        "Another memory of the same model, template and labels: average the log-probabilities. Repeatable.",
        "FILE",
        variable=False,
    ),
]
