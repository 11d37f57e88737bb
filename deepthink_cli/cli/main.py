"""The program: its commands, and the conversion of every error to one line and an exit code."""

from __future__ import annotations

import ast
import errno
import gc
import io
import os
import sys
import traceback
from functools import cache
from importlib.metadata import version
from logging import ERROR, getLogger
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, Exit, TyperException

from deepthink_cli.cli.about import PLUGINS, about, about_of
from deepthink_cli.cli.command import ARGUMENTS, Program, ProgramGroup
from deepthink_cli.cli.console import guard_terminals, note, write_text
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.process import INTERRUPTED, end_at_signals, finish, open_closed_streams, told_of_ctrl_c
from deepthink_cli.cli.sources import commands_of, unread_variables, usage_message
from deepthink_cli.errors import DeepThinkError, ExitCode, naming_options, out_of_memory, panicked, ran_out_of_memory
from deepthink_cli.io.prefetch import OURS, still_working
from deepthink_cli.io.processes import SAFE_PATH
from deepthink_cli.io.text import printable
from deepthink_cli.registry import Registry, lazy

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _checked(name: str, value: Any) -> Any:
    """A command of another package, from which typer can make a command."""
    holder = Program()
    holder.callback()(lambda: None)
    _add(holder, name, value)
    typer.main.get_command(holder)
    return value


# The commands of the core in their groups, in the order of help, each with its place: a function, or a `typer.Typer`.
GROUPS = {
    "The two stages": {
        "think": "think:think",
        "calibrate": "calibrate:calibrate",
        "predict": "predict:predict",
        "eval": "evaluate:evaluate",
    },
    "Choosing settings": {"tune": "tune:tune"},
    "Experiments": {"run": "run:run", "report": "report:report"},
}
_GROUP = {name: group for group, commands in GROUPS.items() for name in commands}
COMMANDS: Registry[Any] = Registry(
    "commands",
    {name: lazy(f"deepthink_cli.cli.{place}") for commands in GROUPS.values() for name, place in commands.items()},
    _checked,
)
HELP = ["-h", "--help"]
NO_COMMAND = (*HELP, "--help-all", "--version")  # after these no command is run
CONTEXT = {"help_option_names": HELP, "max_content_width": 100}
MESSAGE = 1_000  # maximum length of a message; a value in it may be as long as a file


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
def program(command: str | None = None, listed: bool = False) -> Any:
    """The program with one of its commands, or with all; for a list, the commands have only their purpose."""
    app = Program(
        name="deepthink",
        cls=ProgramGroup,
        help="A frozen language model reads a few solved examples several times, and stores its memory of them in a "
        "file, which labels any number of inputs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=CONTEXT,
    )
    app.callback()(_root)
    names = list(COMMANDS) if command is None else [command]
    for name in names:
        found = _purpose(name) if listed else COMMANDS.get(name)
        if found is not None:
            _add(app, name, found)
    made: Any = typer.main.get_command(app)
    if command is None:  # typer puts groups of commands last
        made.commands = {name: made.commands[name] for name in COMMANDS if name in made.commands}
    return made


def _purpose(name: str) -> Any:
    """A stand-in, with the purpose and the group, for a command that is not imported."""
    found = COMMANDS.definition(name)
    if found is None:
        return COMMANDS.get(name)

    def command() -> None:
        pass

    command.__doc__ = (ast.get_docstring(found) or "").partition("\n")[0]
    words = (word for each in getattr(found, "decorator_list", ()) for word in getattr(each, "keywords", ()))
    group = next((ast.literal_eval(word.value) for word in words if word.arg == "group"), PLUGINS)
    return about(group=group)(command)


def _add(app: typer.Typer, name: str, found: Any) -> None:
    """Add a command, or a group of commands, to an application."""
    said = about_of(found)
    group = _GROUP.get(name, said.group)
    epilog = f"Example: deepthink {said.example}" if said.example else None
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, epilog=epilog, rich_help_panel=group, context_settings=CONTEXT)
    else:
        app.command(name, epilog=epilog, rich_help_panel=group, **said.settings)(found)


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
    gc.freeze()  # otherwise Python looks for unreachable cycles among all objects once more
    if code == ExitCode.INTERRUPTED or still_working(OURS):
        # A normal exit takes a second and can crash threads in native code.
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; errors are written to stderr, one line each."""
    with naming_options(flag):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    ARGUMENTS.set(tuple(arguments))
    for line in unread_variables(program):
        note(f"warning: {line}")
    try:
        called = arguments[0] if arguments and arguments[0] in COMMANDS else None
        listed = bool(arguments) and arguments[0] in NO_COMMAND
        code = program(called, listed)(arguments, prog_name="deepthink", standalone_mode=False, obj=program)
        if code == ExitCode.INTERRUPTED:  # typer returns this code instead of raising KeyboardInterrupt
            return _interrupted()
        sys.stdout.flush()
        return int(code or ExitCode.DONE)
    except DeepThinkError as error:
        return _fail(error.exit_code, *error.messages)
    except Exit as stop:
        return stop.exit_code
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command; its module is private
            write_text(f"{error.message}\n")
            return int(ExitCode.USAGE)
        return _fail(ExitCode.USAGE, usage_message(error))
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
    """Redirect standard output to the null device, so that Python's last writes at its exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted() -> int:
    told_of_ctrl_c()
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
