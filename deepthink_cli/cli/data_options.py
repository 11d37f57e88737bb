"""Options of the data: tasks and their rows, the drawing of demonstrations, and the form of prompts."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.calibration.registry import STORED, choices
from deepthink_cli.cli.sources import is_typed
from deepthink_cli.cli.values import label_words, pattern, unescaped
from deepthink_cli.data.source import FormatName, RowSource
from deepthink_cli.data.template import SEPARATOR, Chat
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Tell, once
from deepthink_cli.options import DATA, METHOD, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.tasks.sources import Source


_FOLDER = "also .gz or .zst; or a folder or pattern ('DIR/*.parquet') of Parquet files"
LABELLED_ROWS = f"JSON Lines, JSON, CSV, TSV or Parquet, {_FOLDER}"  # what a file of rows may be
TEXT_ROWS = f"JSON Lines, JSON, CSV, TSV, Parquet or one text a line (.txt), {_FOLDER}"
MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file written by deepthink tune or think.")]
TaskName = Annotated[str | None, Flag(DATA, "Built-in task (deepthink tasks lists them), or a task file.", "NAME|FILE")]
TaskNames = Annotated[
    list[str] | None,
    Flag(
        DATA,
        "Task, group (classic, mmlu, mmlu/stem, bbh) or task file; give it several times for several.",
        "NAME|GROUP|FILE",
    ),
]
ProtocolName = Annotated[
    str, Flag(DATA, "Rows of a task that are evaluated: official (the authors' code) or paper (the appendix).", "NAME")
]
DataDir = Annotated[Path | None, Flag(DATA, "Read tasks from DIR/FOLDER/SPLIT.jsonl instead of from the hub.", "DIR")]
LabelField = Annotated[str | None, Flag(DATA, "Name of the label field. Default: the last field.", "NAME")]
Labels = Annotated[
    str | None,
    Flag(
        DATA,
        "Label words in order, or @FILE with one a line; 0=negative,1=positive reads the rows' values as words.",
        "A,B,...|VALUE=A,...|@FILE",
    ),
]
LabelSeparator = Annotated[
    str | None, Flag(DATA, "Text between the labels of a row that has several, as in ';'. A list needs none.", "TEXT")
]


class RowArguments(Options):
    """Options of files of rows; an option without a file of its kind is refused."""

    format: Annotated[
        FormatName | None, Flag(DATA, "Format of rows whose file has no suffix that says it. Default: jsonl.")
    ] = None
    map: Annotated[
        str | None,
        Flag(DATA, "Columns that are read as other fields, as in Text=text,Class=label.", "COLUMN=FIELD,..."),
    ] = None
    no_header: Annotated[bool, Flag(DATA, "CSV and TSV have no header: columns are column1, column2, ...")] = False
    no_quotes: Annotated[bool, Flag(DATA, "Quotation marks in CSV and TSV are text: they enclose no cells.")] = False

    def source(self, path: str | None, labels: str | None, tell: Tell) -> RowSource | None:
        """The rows that an argument names, or None; raises InputError for options without an argument, and as `of`."""
        if path is None:
            for name in ("format", "map", "no_header", "no_quotes"):
                if value := getattr(self, name):
                    raise InputError.of(name, value, "no rows are read from a file; name one, or omit it")
            return None
        return self.of(path, labels, tell)

    def of(self, path: str, labels: str | None, tell: Tell) -> RowSource:
        """The rows of a file, with the words that --labels gives to values of their labels.

        `tell` is told, once, of values that are read otherwise than they are written.

        Raises InputError for options that have no meaning for these rows.
        """
        source = RowSource(
            path,
            self.format,
            renamed=columns_in(self.map),
            header=not self.no_header,
            quotes=not self.no_quotes,
            words=tuple(label_words(labels)[0].items()),
            tell=once(tell),
        )
        for name in ("no_header", "no_quotes"):
            if getattr(self, name) and source.row_format not in ("csv", "tsv"):
                reason = f"is of CSV and TSV, and {source.name} is read as {source.row_format}; omit it, or name the "
                raise InputError.of(name, None, f"{reason}format with {option('format')}")
        return source


def values_of_memory(context: typer.Context, rows: str | None, labels: str | None) -> str | None:
    """The values and words of --labels in a command whose label words come from a memory.

    Raises InputError for other labels, and without rows. Labels from the environment or a config file are meant for
    other commands, and ignored.
    """
    words, listed = label_words(labels)
    if listed is not None and is_typed(context, "labels") and (rows is None or not words):
        reason = "no rows are read from a file; name one, or omit it"
        if rows is not None:
            reason = "the label words are those of the memory; give values and words, as in 0=negative,1=positive"
        raise InputError.of("labels", labels, reason)
    return labels if words else None


class PromptArguments(Options):
    """Options of the prompt, for rows without a task."""

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
    labels: Labels = None
    separator: Annotated[str | None, Flag(DATA, r"Text after every demonstration. Default: \n\n", "TEXT")] = None

    def decoded(self) -> tuple[str | None, str | None, list[str] | None, str]:
        """The typed template, name of the label field, label words and separator.

        Raises InputError as `pattern` and `label_words` do, and for a single label word.
        """
        separator = SEPARATOR if self.separator is None else unescaped(self.separator)
        template, (_, labels) = pattern(self.template), label_words(self.labels)
        if labels is not None and len(labels) < 2:
            raise InputError.of("labels", self.labels, "one label only; name at least two")
        return template, self.label_field, labels, separator


class ChatArguments(Options):
    """Whether demonstrations and queries are turns of a conversation."""

    chat: Annotated[bool, Flag(DATA, "Write prompts as turns of a conversation, by the tokenizer's chat template.")] = (
        False
    )
    system: Annotated[str | None, Flag(DATA, "System message of the conversation.", "TEXT")] = None

    @property
    def value(self) -> Chat | None:
        """The conversation, or None."""
        return Chat(self.system) if self.chat else None


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


IterationChoice = Annotated[str, Flag(METHOD, "Kept iterations to use: numbers as in 1,5, last, or all.", "T,...")]
Calibrate = Annotated[
    str | None,
    Flag(
        METHOD,
        f"Correct a bias toward some labels: {', '.join((*choices(), STORED))}; of several, the first gives the label. "
        "Default: what the memory stores.",
        "NAME,...",
    ),
]
EnsembleFiles = Annotated[
    list[Path] | None,
    Flag(
        METHOD,
        "Another memory of the same model and labels: average the log-probabilities. Repeatable.",
        "FILE",
        variable=False,
    ),
]
