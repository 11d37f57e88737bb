"""The program: its commands, and the conversion of every error to one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from functools import cache
from importlib import import_module
from importlib.metadata import version
from logging import ERROR, getLogger
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, Exit, TyperException

from deepthink_cli.cli.command import Program
from deepthink_cli.cli.console import note
from deepthink_cli.cli.help import GROUPS, OTHERS, ProgramGroup
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.output_options import ARGUMENTS
from deepthink_cli.cli.process import INTERRUPTED, end_at_signals, finish, open_closed_streams
from deepthink_cli.cli.sources import commands_of, unread_variables, usage_message
from deepthink_cli.cli.terminal import guard_terminals
from deepthink_cli.errors import (
    DeepThinkError,
    ExitCode,
    naming_options_everywhere,
    out_of_memory,
    panicked,
    ran_out_of_memory,
)
from deepthink_cli.io.prefetch import OURS, still_working
from deepthink_cli.io.processes import SAFE_PATH
from deepthink_cli.io.text import printable
from deepthink_cli.registry import Registry

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Commands(ProgramGroup):
    """The commands of this package, then those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return [*super().list_commands(ctx), *(name for name in COMMANDS.added if name in COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, if there is one."""
        return super().get_command(ctx, cmd_name) or COMMANDS.get(cmd_name)


def _command(name: str, value: Any) -> Any:
    """The command of an entry point, which is a function or an application of typer."""
    holder = Program()
    holder.callback()(lambda: None)
    if isinstance(value, typer.Typer):
        holder.add_typer(value, name=name)
    else:
        holder.command(name)(value)
    command = typer.main.get_group(holder).commands[name]
    command.rich_help_panel = OTHERS  # type: ignore[attr-defined]
    return command


# The module and function of every command, and its example.
_PLACES = {name: place for commands in GROUPS.values() for name, place in commands.items()}
# Reserves the names of the commands of this package, which are registered below.
COMMANDS: Registry[Any] = Registry("commands", dict.fromkeys(_PLACES), _command)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
MESSAGE = 1_000  # maximum length of a message; a value in it may be as long as a file
# Its words are those of another program.
_CONTEXT_SETTINGS = {"harness": {"ignore_unknown_options": True, "allow_interspersed_args": False}}


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"deepthink {version('deepthink-cli')}\n")
        raise typer.Exit()


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    pass


@cache
def program(command: str | None = None) -> Any:
    """The program with one of its commands, or with all of them."""
    app = Program(
        name="deepthink",
        cls=Commands,
        help="Deep-Thinking: a frozen language model reads a few solved examples several times, "
        "stores its memory of them in a file, and labels any number of inputs with it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings=CONTEXT,
    )
    app.callback()(_root)
    for name in _PLACES if command is None else [command]:
        where, example = _PLACES[name]
        module, _, attribute = where.partition(":")
        found = getattr(import_module(f"deepthink_cli.cli.{module}"), attribute)
        epilog = f"Example: deepthink {example}"
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, epilog=epilog, context_settings=CONTEXT)
        else:
            words = _CONTEXT_SETTINGS.get(name)
            app.command(name, epilog=epilog, context_settings=words, no_args_is_help=words is not None)(found)
    return typer.main.get_command(app)


def main() -> None:
    """Run the program on the arguments of this process and exit with its exit code."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    guard_terminals()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")  # errors are raised, and printed once
    getLogger("bitsandbytes").setLevel(ERROR)  # it would warn for every layer and pass
    os.environ.update(SAFE_PATH)
    try:
        end_at_signals()
        code = run(sys.argv[1:])
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
    except KeyboardInterrupt:  # it came before a command, or after
        code = _interrupted()
    finally:
        finish()
    if code == ExitCode.INTERRUPTED or still_working(OURS):
        # A normal exit takes a second and can crash threads in native code.
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; errors are written to stderr, one line each."""
    with naming_options_everywhere(flag):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    ARGUMENTS.set(tuple(arguments))
    for line in unread_variables(program):
        note(f"warning: {line}")
    try:
        called = arguments[0] if arguments and arguments[0] in _PLACES else None
        code = program(called)(arguments, prog_name="deepthink", standalone_mode=False, obj=program)
        if code == ExitCode.INTERRUPTED:  # typer returns this code instead of raising KeyboardInterrupt
            return _interrupted()
        sys.stdout.flush()
        return int(code or ExitCode.DONE)
    except DeepThinkError as error:
        return _fail(error.exit_code, *error.messages)
    except Exit as stop:
        return stop.exit_code
    except TyperException as error:
        message = usage_message(error)
        return _fail(ExitCode.USAGE, message) if message else int(ExitCode.USAGE)
    except (KeyboardInterrupt, Abort):
        return _interrupted()
    except (BrokenPipeError, SystemExit):
        # Standard output was closed (typer raises SystemExit for it).
        _discard_output()
        return int(ExitCode.ERROR)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            where = error.filename or "standard output"
            return _fail(ExitCode.ERROR, f"{where}: cannot be written: {os.strerror(error.errno)}")
        if ran_out_of_memory(error):
            parameters = [each for command in commands_of(program(called)) for each in command.params]
            return _fail(ExitCode.ERROR, out_of_memory(error, {each.name for each in parameters}))
        return _bug(error, debug="--debug" in arguments or bool(os.environ.get("DEEPTHINK_DEBUG")))
    except BaseException as error:
        if not panicked(error):
            raise
        reason = f"a library failed ({' '.join(str(error).split())})"
        return _fail(ExitCode.ERROR, f"{reason}; the model's tokenizer.json may be damaged: get it from another source")


def _discard_output() -> None:
    """Redirect standard output to the null device: what Python still writes at its exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted() -> int:
    note(INTERRUPTED)
    return int(ExitCode.INTERRUPTED)


def _fail(code: ExitCode, *messages: str) -> int:
    for message in messages:
        note(printable(f"deepthink: {message}", MESSAGE))
    return int(code)


def _bug(error: Exception, debug: bool) -> int:
    if debug:
        for line in traceback.format_exc().splitlines():
            note(line)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    hint = (
        "please report it with the output of: deepthink doctor" if debug else "run again with --debug for the traceback"
    )
    return _fail(ExitCode.BUG, f"a bug in deepthink: {type(error).__name__}: {error} ({where}); {hint}")
