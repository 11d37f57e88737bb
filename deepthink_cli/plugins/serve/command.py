"""`deepthink serve`: answer requests for labels from a process that stays."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from deepthink_cli.calibration.registry import calibrations
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.data_options import Calibrate, IterationChoice, MemoryFile
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.process import raising_ctrl_c
from deepthink_cli.cli.scoring_options import ScoringOptions
from deepthink_cli.errors import DeepThinkError, Problems, installing
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.serve.options import TOKEN, ServeOptions, address_of
from deepthink_cli.scoring.scoring import Scoring


@about(
    "serve mem.safetensors --port 8000",
    first="at calibrate host port token_file max_waiting device quiet",
    variables=[TOKEN],
)
@grouped
def serve(
    context: typer.Context,
    memory: MemoryFile,
    at: IterationChoice = "last",
    calibrate: Calibrate = None,
    *,
    listen: Given[ServeOptions],
    scoring: Given[ScoringOptions],
    model: Given[ModelOptions],
    common: Annotated[CommonArguments, Without("json")],
) -> None:
    """Load a memory and its model, and label rows sent over HTTP.

    Labels are those of predict. POST /predict takes a row or a list of rows. One-row requests that arrive together are
    scored together. Ctrl-C or SIGTERM ends it when the requests that have arrived are answered.
    """
    from deepthink_cli.prediction.scorer import Scorer

    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise DeepThinkError(f"{' and '.join(missing)}: not installed; {installing('serve')}")

    model, problems, names, token = for_memory(context, model), Problems(), tuple[str, ...](), None
    model_options = problems.tried(model.checked)
    names = problems.tried(calibrations, calibrate, stored=True)
    steps = problems.tried(Scoring.of, **scoring.changed)
    with problems.collected():
        options = listen.checked()
        token = options.token()
    problems.raise_any()
    with options.listen() as listener, Show(common) as tell:
        from deepthink_cli.plugins.serve.app import Server
        from deepthink_cli.plugins.serve.serve import serve as answer
        from deepthink_cli.plugins.serve.served import ServedMemory

        labeller = ServedMemory(Scorer.open(memory, iteration=at, scoring=steps, calibrate=names))
        address = address_of(listener)

        def load() -> None:
            labeller.load(model_options, tell)
            note(f"serving {memory} at {address}; Ctrl-C ends it", common.quiet)

        with raising_ctrl_c():
            answer(Server(labeller, options, token, tell), listener, load)
