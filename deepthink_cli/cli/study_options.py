"""Options of the commands of studies: the study, one of its scales, and values in place of its fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.data_options import DataDir, TaskNames
from deepthink_cli.cli.grouped import Given, option_of
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.sources import came_from, is_typed
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import DATA, MODEL, OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.crossing import Crossing
    from deepthink_cli.experiments.study import OpenedStudy

StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Study file, or the name of a study of the package, as in example (deepthink study list).",
    ),
]
Scale = Annotated[
    str | None,
    Flag(
        DATA,
        "Replace the study's fields by those of this scale.",
        "NAME",
        variable=False,
    ),
]
StudyOutput = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Folder of the study's rows; an interrupted study is continued. Default: runs/NAME of the study.",
        "FOLDER",
        short="-o",
        variable=False,
    ),
]
# The model options that say where and how to compute; which model is a matter of the study.
UNNAMED = ("model", "revision")


class StudyArguments(Options):
    """One of the study's scales, and values in place of the study's; None keeps the study's value."""

    scale: Scale = None
    model: Annotated[
        str | None,
        Flag(
            MODEL,
            "Models in place of those of the study: hub ids, local directories or GGUF files.",
            "MODEL,...",
            short="-m",
            variable=False,
        ),
    ] = None
    task: TaskNames = None
    seeds: option_of(Experiment, "seeds") = None  # type: ignore[valid-type]
    iterations: option_of(Experiment, "iterations") = None  # type: ignore[valid-type]
    limit: option_of(Experiment, "limit") = None  # type: ignore[valid-type]
    data_dir: DataDir = None

    def opened(self, context: typer.Context, name: str) -> OpenedStudy:
        """The study with these values; raises InputError as `open_study`, and for each wrong value.

        Environment variables and config files do not change what a study measures: of them, only the data directory
        is used.
        """
        from deepthink_cli.experiments.study import open_study

        typed = {each for each in type(self).model_fields if is_typed(context, each)} | {"data_dir"}
        given = {name: value for name, value in self.model_dump().items() if name in typed and value is not None}
        given.pop("scale", None)
        checked = {name: given[name] for name in ("seeds", "iterations", "limit") if name in given}
        options = Experiment.checked(**checked)
        values: dict[str, Any] = {
            "models": [each.strip() for each in str(given.get("model")).split(",")],
            "tasks": given.get("task"),
            "seeds": list(options.seeds),
            "iterations": options.iterations,
            "limit": options.limit,
            "data_dir": str(self.data_dir),
        }
        fields_of = {"model": "models", "task": "tasks"}
        replaced = {
            fields_of.get(name, name): (flag(name, _text(value)), values[fields_of.get(name, name)])
            for name, value in given.items()
        }
        return open_study(name, self.scale, replaced)

    def crossed(self, context: typer.Context, name: str, model: Given[ModelOptions]) -> tuple[OpenedStudy, Crossing]:
        """The study with these values and options of every model, crossed; raises InputError as `cross_study`."""
        from deepthink_cli.experiments.crossing import cross_study

        opened = self.opened(context, name)
        models = tuple(_computed(context, model, each) for each in opened.study.models)
        opened = replace(opened, study=opened.study.model_copy(update={"models": models}))
        return opened, cross_study(opened)


def _computed(context: typer.Context, arguments: Given[ModelOptions], model: ModelOptions) -> ModelOptions:
    """A model of the study with the options of the command line; options from elsewhere fill the study's gaps."""
    checked = arguments.checked()
    names = list(arguments.values)
    sources = {name: came_from(context, name) for name in names}
    typed = {name: getattr(checked, name) for name, source in sources.items() if source == "COMMANDLINE"}
    defaults = {name: getattr(checked, name) for name, source in sources.items() if source not in ("DEFAULT", None)}
    return ModelOptions.checked(**{**defaults, **model.model_dump(exclude_unset=True), **typed})


def folder_of(output: Path | None, opened: OpenedStudy) -> Path:
    """The folder of a study's rows: the named one, or runs/NAME."""
    return output or Path("runs") / opened.study.name


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
