"""`deepthink list`: the names that options take, from this package and from other installed ones."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from deepthink_cli.artifact.container import OPENERS
from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import report, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.engine.registry import ENGINES
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.base import EXECUTORS
from deepthink_cli.export import EXPORTERS
from deepthink_cli.model.files import MODEL_FILES
from deepthink_cli.observers import OBSERVERS
from deepthink_cli.registry import Registry
from deepthink_cli.report.cells import PUBLISHED
from deepthink_cli.report.registry import FORMATS, FORMS
from deepthink_cli.scoring.score import SCORES
from deepthink_cli.scoring.scoring import STEPS
from deepthink_cli.selection.registry import METHODS
from deepthink_cli.tasks.judges import JUDGES
from deepthink_cli.techniques.registry import TECHNIQUES, sample
from deepthink_cli.tuning.rivals import RIVALS
from deepthink_cli.updates import RULES

# By their options: --update, --technique, --calibrate, --score, those of steps, --demos-by, --engine, --to,
# --output-format and their own; --published, `kind` of the figure of a study, and `judge` of a task file. Openers and
# weights are named by what files hold, or end with.
REGISTRIES: dict[str, Registry[Any]] = {
    "updates": RULES,
    "techniques": TECHNIQUES,
    "calibrations": CALIBRATIONS,
    "scores": SCORES,
    "steps": STEPS,
    "selections": METHODS,
    "engines": ENGINES,
    "weights": MODEL_FILES,
    "exporters": EXPORTERS,
    "executors": EXECUTORS,
    "formats": FORMATS,
    "observers": OBSERVERS,
    "published": PUBLISHED,
    "forms": FORMS,
    "judges": JUDGES,
    "openers": OPENERS,
    "rivals": RIVALS,
}
Kinds = Annotated[list[str] | None, typer.Argument(metavar="KIND", help=f"{', '.join(REGISTRIES)}. Default: all.")]


@about("list updates techniques", group="This machine")
@grouped
def list_registries(
    kinds: Kinds = None, *, common: Annotated[CommonArguments, Without("quiet", "verbose", "config")]
) -> None:
    """List what options name: update rules, techniques and others.

    With a KIND, what each of its names means; with --json, also its source, such as a paper. Tasks are listed by:
    deepthink tasks.
    """
    for kind in kinds or ():
        if kind not in REGISTRIES:
            raise InputError(f"{kind}: not a kind; use {', '.join(REGISTRIES)}")
    rows = [
        {
            "kind": kind,
            "name": sample(name).family if kind == "techniques" else name,
            "summary": REGISTRIES[kind].summary(name),
            "source": REGISTRIES[kind].source(name),
        }
        for kind in kinds or REGISTRIES
        for name, _ in REGISTRIES[kind].items()
    ]
    if common.as_json:
        write_json(rows)
    else:
        report(*(_of_kinds(rows) if not kinds else [f"{row['name']:<18} {row['summary']}" for row in rows]))


def _of_kinds(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The names of each kind, wrapped."""
    for kind in REGISTRIES:
        names = ", ".join(row["name"] for row in rows if row["kind"] == kind)
        if names:
            yield from textwrap.wrap(f"{kind:<13} {names}", 80, subsequent_indent=" " * 14, break_on_hyphens=False)
