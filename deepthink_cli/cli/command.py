"""The classes of the program and its commands: help pages, and errors that name sources of values."""

from __future__ import annotations

import os
import shlex
from contextvars import ContextVar
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from deepthink_cli.cli.about import PLUGINS, about_of
from deepthink_cli.cli.sources import naming_sources

ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())  # the words of the running command line


def command_line() -> str:
    """The running command line, quoted for a shell."""
    return shlex.join(["deepthink", *ARGUMENTS.get()])


# A user's purposes, and the command for each; README.md shows the same table.
WHICH = {
    "a first look; a real model to try": "demo; download",
    "labels for my own rows": "tune, then predict",
    "a memory with my own settings; its label bias corrected": "think; calibrate",
    "how good one memory is": "eval",
    "accuracy over T on tasks, over seeds": "run",
    "many such runs, as one YAML file": "study",
}
_WHOLE = "deepthink.help_all"  # set in a context whose help shows every option


class Command(TyperCommand):
    """A command whose --help shows its first options, and --help-all every option under the heading of its kind.

    Its errors name the source of a wrong value.
    """

    help_all: Any = None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `--offline` is applied to the hub's library."""
        if ctx.params.get("offline"):
            os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is first imported, which is later
        with naming_sources(ctx):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and the options for its help; --help-all is not listed if --help shows all."""
        params, help_option = super().get_params(ctx), self.get_help_option(ctx)
        if help_option is None:
            return params
        if self.help_all is None:
            show_help: Any = help_option.callback

            def show_whole(ctx: Any, option: Any, value: bool) -> None:
                ctx.meta[_WHOLE] = value
                show_help(ctx, option, value)

            self.help_all = copy(help_option)
            self.help_all.name, self.help_all.opts = "help_all", ["--help-all"]
            self.help_all.help = "Show this message with every option and exit."
            self.help_all.hidden, self.help_all.callback = not _first(ctx), show_whole
        return [*params, self.help_all]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options; only --help-all says where an option has no meaning."""
        whole, first = ctx.meta.get(_WHOLE), _first(ctx)
        conditions = getattr(ctx.command.callback, "conditions", {}) if whole else {}
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for each in self.get_params(ctx):
            argument, panel = each.param_type_name == "argument", each.rich_help_panel
            if (argument or whole or not first or panel is None or each.name in first) and (
                record := each.get_help_record(ctx)
            ):
                heading = "Arguments" if argument else panel if whole and panel else "Options"
                text, bracket, default = record[1].partition("  [")
                shown = f"{text}{conditions.get(each.name, '')}{bracket}{default}"  # the condition before the default
                sections.setdefault(heading, []).append((record[0], shown))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, and the number of options that the page does not show."""
        super().format_epilog(ctx, formatter)
        if (first := _first(ctx)) and not ctx.meta.get(_WHOLE):
            hidden = [each for each in self.params if each.param_type_name == "option" and each.name not in first]
            formatter.write_paragraph()
            formatter.write_text(f"{len(hidden)} more options: {ctx.command_path} --help-all")


class ProgramGroup(TyperGroup):
    """The program: its help shows first the purposes of commands, then its options and the commands in groups."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the purpose of the program, and the purposes of commands."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Which command"):
            formatter.write_dl(list(WHICH.items()), col_max=max(map(len, WHICH)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group; those of plugins without a group come last."""
        groups = sorted(dict.fromkeys(map(_panel, self.commands.values())), key=PLUGINS.__eq__)
        width = max(map(len, self.commands))
        for group in groups:
            shown = [each for each in self.commands.items() if _panel(each[1]) == group]
            with formatter.section(group):
                limit = formatter.width - 6 - width
                formatter.write_dl([(f"{name:{width}}", each.get_short_help_str(limit)) for name, each in shown])


def _panel(command: Any) -> str:
    return str(command.rich_help_panel)


def _first(ctx: Any) -> frozenset[str]:
    """The first options in the help of a context's command; empty if it shows all."""
    return about_of(ctx.command.callback).first


class Program(typer.Typer):
    """An application whose commands name the sources of option values in their errors."""

    def command(self, *arguments: Any, **options: Any) -> Any:
        """Register a command, as `typer.Typer.command`."""
        return super().command(*arguments, cls=Command, **options)
