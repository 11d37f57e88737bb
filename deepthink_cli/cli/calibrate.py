"""`deepthink calibrate`: store a correction of the scores with a memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.calibration.registry import (
    CALIBRATIONS,
    HEAD,
    MOST_UNLABELLED,
    NONE,
    THRESHOLDS,
    CorrectionOptions,
    of_labelled,
)
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_json
from deepthink_cli.cli.data_options import TEXT_ROWS, Labels, MemoryFile, RowArguments, values_of_memory
from deepthink_cli.cli.grouped import Given, Help, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.scoring_options import ScoringOptions
from deepthink_cli.cli.sources import is_typed
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.errors import Problems
from deepthink_cli.io.text import size
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import METHOD, OUTPUT, Flag
from deepthink_cli.scoring.scoring import Scoring, as_options
from deepthink_cli.selection.options import Limit, TaskOptions

_LABELLED = of_labelled(CALIBRATIONS.own)
Rows = Annotated[
    str | None,
    typer.Argument(
        metavar="ROWS",
        help=f"Rows like those to be labelled: {TEXT_ROWS}. True labels are only read for "
        f"{', '.join(each.name for each in _LABELLED)} and {THRESHOLDS}.",
    ),
]
Output = Annotated[
    Path | None, Flag(OUTPUT, "Output file. Default: MEMORY is replaced.", "FILE", short="-o", variable=False)
]
Unlabelled = Annotated[
    str | None,
    Flag(
        METHOD,
        f"More rows in the format of ROWS, whose labels are not read; {HEAD} learns from {MOST_UNLABELLED:,} of them, "
        "too.",
        "FILE",
        variable=False,
    ),
]
_OF_STATES = " and ".join(each.name for each in _LABELLED if each.of_states)
HELP = (
    f"The correction: {', '.join(CALIBRATIONS)}; {NONE} removes it. {_OF_STATES} are of ROWS or of the demonstrations; "
    f"{THRESHOLDS} are for rows with several labels, and {HEAD} stores them, too. Default: batch with ROWS "
    f"({THRESHOLDS} for several labels), contextual without, {HEAD} with {flag('unlabelled')}."
)


@about("calibrate mem.safetensors labelled.csv --calibrate head", first="output calibrate unlabelled limit json")
@grouped
def calibrate(
    context: typer.Context,
    memory: MemoryFile,
    rows: Rows = None,
    output: Output = None,
    *,
    correction: Annotated[Given[CorrectionOptions], Help(calibrate=HELP)],
    unlabelled: Unlabelled = None,
    limit: Limit = None,
    labels: Labels = None,
    reading: RowArguments,
    scoring: Given[ScoringOptions],
    model: Given[ModelOptions],
    common: CommonArguments,
) -> None:
    """Store a correction of a memory's scores.

    It is stored in the memory's file, and predict, eval and others then use it. A bias toward some labels is estimated
    from texts without content or from rows; head learns from labelled rows what hidden states tell.
    """
    from deepthink_cli.artifact.format import summary
    from deepthink_cli.calibrate_memory import calibrate as calibrated
    from deepthink_cli.calibration.bounded import described
    from deepthink_cli.outputs import check_apart

    model, problems, output = for_memory(context, model), Problems(), memory if output is None else output
    problems.tried(check_given, context, "calibrate")
    options = problems.tried(model.checked)
    chosen = problems.tried(lambda: if_typed(context, correction).checked().calibrate)
    steps = problems.tried(Scoring.of, **scoring.changed)
    task = problems.tried(TaskOptions.checked, limit=limit)
    words = problems.tried(lambda: values_of_memory(context, rows, labels))
    source = more = None
    if rows is not None or unlabelled is None:
        source = problems.tried(lambda: reading.source(rows, words, Show(common)))
    if unlabelled is not None:
        more = problems.tried(lambda: reading.of(unlabelled, None, Show(common)))
    others = () if output == memory else (memory,)
    read = problems.tried(read_by, *others, rows, unlabelled, model=model.model, config=common.config)
    problems.tried(check_apart, output, read or [])
    problems.raise_any()
    with Show(common, bar=not common.as_json) as tell:
        header = calibrated(
            memory,
            source,
            output,
            calibrate=chosen,
            unlabelled=more,
            scoring=steps,
            limit=task.limit,
            options=options,
            tell=tell,
        )
    if common.as_json:
        write_json(summary(header))
    stored = header.metadata.thresholds or header.metadata.calibrated
    note(f"wrote {output} ({size(header.size)}): {stored or 'no correction'}", common.quiet)
    if header.metadata.calibrated is not None and (judged := header.metadata.calibrated.held_out) is not None:
        note(f"sure labels ({flag('max_error')} of predict, 95 % confidence): {described(judged)}", common.quiet)
    if stored is not None:
        end = as_options(steps.recorded)
        evaluated = f"eval {output} LABELLED{end}" + ("" if rows is None else " (other rows than these)")
        note(f"next: deepthink predict {output} INPUTS{end}, or {evaluated}", common.quiet)


def if_typed(context: typer.Context, correction: Given[CorrectionOptions]) -> Given[CorrectionOptions]:
    """The correction to store, if the command line names it: elsewhere, `calibrate` is meant for predict and eval."""
    return correction if is_typed(context, "calibrate") else correction.but(calibrate=None)
