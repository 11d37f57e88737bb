"""The commands in their groups, and help pages: the options that come first; --help-all shows every option."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

# The commands of the program, in the order in which they are met: the module and function of each, which is imported
# when the command is called, and its example. Those of other packages come after them.
GROUPS = {
    "The two stages": {
        "demo": ("demo:demo", "demo"),
        "think": ("think:think", "think demos.jsonl -m gpt2 -T 5 --eta 0.01 -o mem.safetensors"),
        "calibrate": ("calibrate:calibrate", "calibrate mem.safetensors rows.csv --calibrate batch"),
        "inspect": ("inspect:inspect", "inspect mem.safetensors --verify"),
        "predict": ("predict:predict", "predict mem.safetensors inputs.csv.gz -o labels.csv --on-error skip"),
        "serve": ("serve:serve", "serve mem.safetensors --port 8000"),
        "serve-config": ("serve_config:serve_config", "serve-config tickets.safetensors reviews.safetensors"),
        "eval": ("evaluate:evaluate", "eval mem.safetensors rows.csv --fail-under 0.8 --html eval.html"),
        "generate": (
            "generate:generate",
            "generate mem.safetensors questions.jsonl --max-new-tokens 100 -o answers.jsonl",
        ),
        "chat": ("chat:chat", "chat mem.safetensors --temperature 0.7"),
    },
    "Choosing demonstrations and settings": {
        "select": ("select:select", "select pool.jsonl -m gpt2 --demos-by herding --shots 16 -o demos.jsonl"),
        "tune": ("tune:tune", "tune rows.jsonl -m gpt2 -T 15 -o mem.safetensors"),
        "vectors": ("vectors:vectors", "vectors rows.jsonl -m gpt2 --episodes 200 -o vectors.safetensors"),
    },
    "Experiments": {
        "tasks": ("tasks:tasks", "tasks new tickets --from tickets.csv"),
        "run": ("run:run", "run --task classic -m gpt2 -T 15 --seeds 10 -o runs/gpt2"),
        "report": ("report:report", "report runs/classic --where eta=0.1 --html report.html"),
        "plot": ("plot:plot", "plot runs/classic -o curve.pdf"),
        "study": ("study_run:studies", "study run example --scale small"),
        "harness": (
            "harness:harness",
            "harness --model_args pretrained=gpt2,iterations=5 --tasks mmlu --num_fewshot 5",
        ),
    },
    "Memories elsewhere": {
        "export": ("export:export", "export mem.safetensors --to peft -o adapter"),
        "push": ("hub:push", "push mem.safetensors me/sst2-memory --results eval.json --dry-run"),
        "pull": ("hub:pull", "pull me/sst2-memory -o mem.safetensors"),
        "quantize": ("quantize:quantize", "quantize mem.safetensors --to int8 -o mem8.safetensors --eval rows.csv"),
        "compose": ("compose:compose", "compose bugs.safetensors accounts.safetensors -o tickets.safetensors"),
        "diff": ("diff:diff", "diff mem.safetensors --at 1,5"),
    },
    "This machine": {
        "download": ("download:download", "download -o smollm2"),
        "doctor": ("doctor:doctor", "doctor --json"),
        "list": ("list:list_registries", "list updates techniques"),
    },
}
OTHERS = "From other packages"
# What a user wants, and the command for it; README.md shows the same table.
WHICH = {
    "labels for my own rows": "think, then predict",
    "technique, T, eta and calibration for my own rows": "tune",
    "how good one memory is": "eval",
    "a memory with its label bias corrected": "calibrate",
    "accuracy over T on tasks, over seeds": "run",
    "many such runs, as one YAML file": "study",
    "tasks of lm-evaluation-harness": "harness",
    "a first look; a real model to try": "demo; download",
}
# Of every command with more than MAX_OPTIONS options, those that its --help shows: what most calls need.
MAX_OPTIONS = 12
FIRST = {
    "demo": "model device offline quiet",
    "think": "output model iterations eta keep chat calibrate template label_field task shots seed",
    "calibrate": "output calibrate score limit format json",
    "predict": "output resume dry_run at calibrate task format top threshold columns on_error",
    "serve": "at calibrate host port socket token_file max_waiting device quiet",
    "eval": "task protocol limit data_dir at calibrate output html fail_under dry_run json",
    "generate": "output at task temperature top_p max_new_tokens stop seed columns on_error",
    "chat": "at temperature top_p max_new_tokens stop seed device",
    "select": "listing demos_by shots seed queries output pool_scores model template labels task",
    "tune": "output model iterations eta calibrate budget chat folds shots template label_field labels",
    "vectors": "output model episodes shots extraction_alpha alpha seed template label_field labels task",
    "run": "task output model iterations at eta seeds technique calibrate limit data_dir dry_run",
    "study plan": "output no_probe scale model task seeds iterations limit json",
    "study run": "output scale model task seeds iterations limit data_dir samples workers",
    "study report": "runs scale at published all_tasks where output_format output html json",
    "export": "to output at state weights json",
    "quantize": "to output evaluated task protocol limit data_dir json",
    "diff": "at task protocol limit data_dir json",
    "tasks": "rows label_field format no_header no_quotes output force data_dir yaml json",
    "doctor": "model dtype device offline json",
}
_WHOLE = "deepthink.help_all"  # set in a context whose help shows every option


class HelpCommand(TyperCommand):
    """A command whose --help shows the options of `FIRST`, and --help-all every option."""

    help_all: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and the options for its help."""
        return _with_help_all(self, super().get_params(ctx), ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page, which says how many options it does not show."""
        page = copy(self)
        first = None if ctx.meta.get(_WHOLE) else _first(ctx)
        if first is not None:
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
    """The commands of the program in the groups and the order of `GROUPS`."""

    def __init__(self, **attributes: Any) -> None:
        width = max(map(len, WHICH))
        lines = (f"  {wanted:<{width}}  {command}" for wanted, command in WHICH.items())
        super().__init__(**{**attributes, "epilog": "\n".join(["Which command:", *lines])})
        group_of = {name: group for group, names in GROUPS.items() for name in names}
        for name, command in self.commands.items():
            command.rich_help_panel = group_of.get(name, OTHERS)  # type: ignore[attr-defined]
        order = [*group_of, *self.commands]
        self.commands = dict(sorted(self.commands.items(), key=lambda item: order.index(item[0])))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write which command serves what, as is done without Rich."""
        with formatter.section("Which command"):
            formatter.write_dl(list(WHICH.items()), col_max=max(map(len, WHICH)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group, as is done without Rich."""
        groups = dict.fromkeys(each.rich_help_panel for each in self.commands.values())  # type: ignore[attr-defined]
        width = max(map(len, self.commands))
        for group in groups:
            shown = [each for each in self.commands.items() if each[1].rich_help_panel == group]  # type: ignore[attr-defined]
            with formatter.section(group):
                limit = formatter.width - 6 - width
                formatter.write_dl([(f"{name:{width}}", each.get_short_help_str(limit)) for name, each in shown])


def _first(ctx: Any) -> list[str] | None:
    """The options that come first in the help of a context's command; None if it shows all."""
    names = FIRST.get(ctx.command_path.partition(" ")[2])
    return None if names is None else names.split()


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
        command.help_all.hidden = _first(ctx) is None
        command.help_all.callback = lambda ctx, option, value: _show_whole(show_help, ctx, option, value)
    return [*params, command.help_all]


def _show_whole(show_help: Any, ctx: Any, option: Any, value: bool) -> None:
    ctx.meta[_WHOLE] = value
    show_help(ctx, option, value)
