"""The runs of a study as requests: what `deepthink run` would be asked for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepthink_cli.options import RunOptions, SweepOptions
from deepthink_cli.runs.request import RunRequest
from deepthink_cli.study.boxes import Box
from deepthink_cli.study.crossing import Crossing
from deepthink_cli.study.format import Study

_SHARED = tuple(SweepOptions.model_fields)


def requests_of(crossing: Crossing) -> list[RunRequest]:
    """The request of every run of a study, those of a model together."""
    return [_request(crossing.opened.study, box) for box in crossing.runs]


def _request(study: Study, box: Box) -> RunRequest:
    shared = {name: box[name] if name in box else getattr(study, name) for name in _SHARED}
    demos_by = tuple(name for name in box["demos_by"] if name is not None)
    options = RunOptions.checked(
        **{**shared, "demos_by": demos_by},
        seeds=seeds_text(box["seeds"]),
        positions=box["positions"][0],
        shots=box["shots"][0],
        order_seed=box["orders"][0],
        sampling=box["sampling"][0],
        limit=study.limit,
    )
    return RunRequest(
        tasks=tuple(box["tasks"]),
        model=box["models"][0],
        options=options,
        protocol=box["protocols"][0],
        data_dir=None if study.data_dir is None else Path(study.data_dir),
        chat=study.conversation,
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in the form of `run --seeds`: a number of seeds if they count from 0, or a list."""
    if tuple(seeds) == tuple(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")
