"""The commands in their groups, and help pages: the options that come first; --help-all shows every option."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

from deepthink_cli.cli.about import about_of

# A user's purposes, and the command for each; README.md shows the same table.
WHICH = {
    "a first look; a real model to try": "demo; download",
    "labels for my own rows": "think, then predict",
    "how good one memory is": "eval",
    "a memory with its label bias corrected": "calibrate",
    "technique, T, eta and calibration for my own rows": "tune",
    "accuracy over T on tasks, over seeds": "run",
    "many such runs, as one YAML file": "study",
}
MAX_OPTIONS = 12  # a command with more options names the first ones
_WHOLE = "deepthink.help_all"  # set in a context whose help shows every option


class HelpCommand(TyperCommand):
    """A command whose --help shows its first options, and --help-all every option."""

    help_all: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and the options for its help."""
        return _with_help_all(self, super().get_params(ctx), ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page, with the number of options that it does not show."""
        page = copy(self)
        first = frozenset[str]() if ctx.meta.get(_WHOLE) else _first(ctx)
        if first:
            page.params = [each for each in self.params if each.name in first or each.param_type_name == "argument"]
            more = f"{len(self.params) - len(page.params)} more options: {ctx.command_path} --help-all"
            page.epilog = f"{self.epilog}\n\n{more}" if self.epilog else more
        super(HelpCommand, page).format_help(ctx, formatter)


class HelpGroup(TyperGroup):
    """A group of commands, whose help shows everything."""

    help_all: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the group, and the options for its help."""
        return _with_help_all(self, super().get_params(ctx), ctx)


class ProgramGroup(HelpGroup):
    """The program: its help shows first the purposes of commands, then its options and the commands in groups."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        page, width = copy(self), max(map(len, WHICH))
        lines = "\n".join(f"{wanted:<{width}}  {command}" for wanted, command in WHICH.items())
        page.help = f"{self.help}\n\n{lines}"
        super(ProgramGroup, page).format_help(ctx, formatter)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the purposes of commands, without Rich, which would keep no line breaks."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(str(self.help).partition("\n\n")[0])
        with formatter.section("Which command"):
            formatter.write_dl(list(WHICH.items()), col_max=max(map(len, WHICH)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group, without Rich."""
        groups = dict.fromkeys(map(_panel, self.commands.values()))
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


def _with_help_all(command: HelpCommand | HelpGroup, params: list[Any], ctx: Any) -> list[Any]:
    """The parameters with --help-all at the end; it is not listed where --help shows all."""
    help_option = command.get_help_option(ctx)
    if help_option is None:
        return params
    if command.help_all is None:
        show_help = help_option.callback
        command.help_all = copy(help_option)
        command.help_all.name, command.help_all.opts = "help_all", ["--help-all"]
        command.help_all.help = "Show this message with every option and exit."
        command.help_all.hidden = not _first(ctx)
        command.help_all.callback = lambda ctx, option, value: _show_whole(show_help, ctx, option, value)
    return [*params, command.help_all]


def _show_whole(show_help: Any, ctx: Any, option: Any, value: bool) -> None:
    ctx.meta[_WHOLE] = value
    show_help(ctx, option, value)
