"""The program: its commands, and the conversion of every error to one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from importlib.metadata import version
from logging import ERROR, getLogger
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, Exit, TyperException

from deepthink_cli.cli.calibrate import calibrate
from deepthink_cli.cli.chat import chat
from deepthink_cli.cli.console import note
from deepthink_cli.cli.demo import demo
from deepthink_cli.cli.diff import diff
from deepthink_cli.cli.doctor import doctor
from deepthink_cli.cli.download import download
from deepthink_cli.cli.evaluate import evaluate
from deepthink_cli.cli.export import export
from deepthink_cli.cli.generate import generate
from deepthink_cli.cli.harness import harness
from deepthink_cli.cli.help import GROUPS, OTHERS, HelpGroup, ProgramGroup
from deepthink_cli.cli.hub import pull, push
from deepthink_cli.cli.inspect import inspect
from deepthink_cli.cli.list import list_registries
from deepthink_cli.cli.output_options import ARGUMENTS
from deepthink_cli.cli.plot import plot
from deepthink_cli.cli.predict import predict
from deepthink_cli.cli.process import INTERRUPTED, end_at_ctrl_c, open_closed_streams
from deepthink_cli.cli.quantize import quantize
from deepthink_cli.cli.report import report
from deepthink_cli.cli.run import run as run_tasks
from deepthink_cli.cli.select import select
from deepthink_cli.cli.sources import Command, flag, unread_variables, usage_message
from deepthink_cli.cli.study import list_studies, plot_study, report_study, show_study, validate_study
from deepthink_cli.cli.study_run import plan_study, run_study
from deepthink_cli.cli.tasks import tasks
from deepthink_cli.cli.think import think
from deepthink_cli.cli.tune import tune
from deepthink_cli.errors import (
    DeepThinkError,
    ExitCode,
    naming_options_everywhere,
    out_of_memory,
    panicked,
    ran_out_of_memory,
)
from deepthink_cli.io.prefetch import still_working
from deepthink_cli.io.text import printable
from deepthink_cli.registry import Registry

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Program(typer.Typer):
    """An application whose commands name the sources of option values in their errors."""

    def command(self, *arguments: Any, **options: Any) -> Any:
        """Register a command, as `typer.Typer.command`."""
        return super().command(*arguments, cls=Command, **options)


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


# Reserves the names of the commands of this package, which are registered below.
COMMANDS: Registry[Any] = Registry("commands", {name: None for names in GROUPS.values() for name in names}, _command)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
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
MESSAGE = 1_000  # maximum length of a message; a value in it may be as long as a file


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"deepthink {version('deepthink-cli')}\n")
        raise typer.Exit()


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command(epilog="Example: deepthink think demos.jsonl -m gpt2 -T 5 --eta 0.01 -o mem.safetensors")(think)
app.command(epilog="Example: deepthink tune rows.jsonl -m gpt2 -T 15 -o mem.safetensors")(tune)
app.command(epilog="Example: deepthink predict mem.safetensors inputs.csv.gz -o labels.csv --on-error skip")(predict)
app.command(epilog="Example: deepthink calibrate mem.safetensors rows.csv --calibrate batch")(calibrate)
app.command(epilog="Example: deepthink generate mem.safetensors questions.jsonl --max-new-tokens 100 -o answers.jsonl")(
    generate
)
app.command(epilog="Example: deepthink chat mem.safetensors --temperature 0.7")(chat)
app.command("eval", epilog="Example: deepthink eval mem.safetensors rows.csv --fail-under 0.8 --html eval.html")(
    evaluate
)
app.command(epilog="Example: deepthink export mem.safetensors --to peft -o adapter")(export)
app.command(epilog="Example: deepthink inspect mem.safetensors --verify")(inspect)
app.command(epilog="Example: deepthink diff mem.safetensors --iteration 1,5")(diff)
app.command(epilog="Example: deepthink quantize mem.safetensors --to int8 -o mem8.safetensors --eval rows.csv")(
    quantize
)
app.command(epilog="Example: deepthink tasks new tickets --from tickets.csv")(tasks)
app.command(epilog="Example: deepthink select pool.jsonl -m gpt2 --method herding --shots 16 -o demos.jsonl")(select)
app.command("run", epilog="Example: deepthink run --task classic -m gpt2 -T 15 --seeds 10 --out runs/gpt2")(run_tasks)
app.command(epilog="Example: deepthink report runs/classic --where eta=0.1 --html report.html")(report)
app.command(epilog="Example: deepthink plot runs/classic -o curve.pdf")(plot)
app.command(epilog="Example: deepthink push mem.safetensors me/sst2-memory --results eval.json --dry-run")(push)
app.command(epilog="Example: deepthink pull me/sst2-memory -o mem.safetensors")(pull)
app.command(
    epilog="Example: deepthink harness --model_args pretrained=gpt2,iterations=5 --tasks mmlu --num_fewshot 5",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    no_args_is_help=True,
)(harness)
app.command(epilog="Example: deepthink download -o smollm2")(download)
app.command(epilog="Example: deepthink doctor --json")(doctor)
app.command("list", epilog="Example: deepthink list updates techniques")(list_registries)
studies = Program(
    name="study",
    cls=HelpGroup,
    help="Studies: YAML files that cross models, tasks and settings into runs of one folder.",
    epilog="Example: deepthink study run example --scale small",
    no_args_is_help=True,
    context_settings=CONTEXT,
)
studies.command("list", epilog="Example: deepthink study list")(list_studies)
studies.command("show", epilog="Example: deepthink study show example > mine.yaml")(show_study)
studies.command("validate", epilog="Example: deepthink study validate mine.yaml")(validate_study)
studies.command("plan", epilog="Example: deepthink study plan paper/table1 --json")(plan_study)
studies.command("run", epilog="Example: deepthink study run example --scale small --out runs/example")(run_study)
studies.command("report", epilog="Example: deepthink study report example --from runs/example")(report_study)
studies.command("plot", epilog="Example: deepthink study plot example --from runs/example -o figure.pdf")(plot_study)
app.add_typer(studies)
app.command(epilog="Example: deepthink demo")(demo)


def main() -> None:
    """Run the program on the arguments of this process and exit with its exit code."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")  # errors are raised, and printed once
    getLogger("bitsandbytes").setLevel(ERROR)  # it would warn for every layer and pass
    end_at_ctrl_c()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    if code == ExitCode.INTERRUPTED or still_working():
        # A normal exit takes a second and can crash threads in native code.
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; errors are written to stderr, one line each."""
    with naming_options_everywhere(flag):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    ARGUMENTS.set(tuple(arguments))
    for line in unread_variables(lambda: typer.main.get_command(app)):
        note(f"warning: {line}")
    try:
        code = app(arguments, prog_name="deepthink", standalone_mode=False)
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
            return _fail(ExitCode.ERROR, out_of_memory(error))
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
