"""Prepare the runs of a study: every check that does not need weights, with each model opened once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import DeepThinkError, InputError, Problems
from deepthink_cli.events import Event, Note, Tell, Warn, silent
from deepthink_cli.experiments.jobs import SharedRows
from deepthink_cli.experiments.prepared import PreparedRun
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.experiments.run import prepare_run
from deepthink_cli.experiments.study.axes import shown
from deepthink_cli.experiments.study.crossing import Crossing, requests_of
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec


def prepare_study(crossing: Crossing, out: Path, tell: Tell = silent) -> list[PreparedRun]:
    """The prepared runs of a study into one folder, those of a model together.

    Raises InputError, with all mistakes of all runs, for models and data that cannot be read, and for two sets of rows
    with the same keys.
    """
    tell, problems, runs, shared = once(tell), Problems(), list[PreparedRun](), SharedRows()
    specs: dict[ModelOptions, ModelSpec | None] = {}
    for request in requests_of(crossing):
        if request.model not in specs:
            specs[request.model] = None
            with problems.collected():
                specs[request.model] = _find(crossing, request.model, tell)
        spec = specs[request.model]
        if spec is not None:
            with problems.collected():
                runs.append(prepared_with(request, spec, out, tell, shared))
    shared.clear()
    problems.raise_any()
    _check_keys(crossing, runs)
    return runs


def prepared_with(request: RunRequest, spec: ModelSpec, out: Path, tell: Tell, shared: SharedRows) -> PreparedRun:
    """The prepared run of a request whose model has been opened; rows that it shares with others are kept."""
    return replace(prepare_run(request.plan(), spec, out, tell, shared), request=request)


def once(tell: Tell) -> Tell:
    """Passes on every event, but each note and warning only the first time."""
    passed: set[Event] = set()

    def tell_once(event: Event) -> None:
        if isinstance(event, Note | Warn):
            if event in passed:
                return
            passed.add(event)
        tell(event)

    return tell_once


def _find(crossing: Crossing, model: ModelOptions, tell: Tell) -> ModelSpec:
    """Open a model; raises InputError with the place of the model in the study, also if it cannot be downloaded."""
    try:
        return find_model(model, tell)
    except DeepThinkError as error:
        number = crossing.opened.study.models.index(model)
        where = crossing.opened.where("models", number)
        raise InputError(*(f"{where}: models: {text}" for text in error.messages)) from error


def _check_keys(crossing: Crossing, runs: Sequence[PreparedRun]) -> None:
    """Raise InputError if two models of the study are the same, so that their rows would have the same keys."""
    first: dict[str, PreparedRun] = {}
    for run in runs:
        for _, settings in run.settings():
            for setting in settings:
                other = first.setdefault(setting.key, run)
                if other.spec.options != run.spec.options:  # runs of one model may share rows of a trained memory
                    names = [shown(each.spec.options) for each in (other, run)]
                    raise InputError(
                        f"{crossing.opened.where('models')}: models: {names[0]} and {names[1]} have the same rows (key "
                        f"{setting.key} of task {setting.task}); omit one"
                    )
