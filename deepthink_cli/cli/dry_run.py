"""`--dry-run` of `predict` and `eval`: what labelling a file would take, from a timed sample of its rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.cli.console import duration, report, write_json
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.text import json_line, size
from deepthink_cli.options import OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.data.source import RowSource
    from deepthink_cli.model.options import ModelOptions
    from deepthink_cli.prediction.rows import OutputRows
    from deepthink_cli.scoring.probe import Answers, Probed

DryRun = Annotated[
    bool,
    Flag(
        OUTPUT,
        "Write nothing: check everything, time at most 64 rows, and print what all rows would take.",
        variable=False,
    ),
]


def check_dry_run(others: dict[str, Any], inputs: RowSource | None = None) -> None:
    """Raise InputError if one of these options is given: their work is not that of a sample in this process.

    Also for inputs that can be read only once.
    """
    for name, value in others.items():
        if value:
            raise InputError.of("dry_run", None, f"not with {option(name)}; omit one of the two")
    if inputs is not None and inputs.read_once:
        raise InputError.of("dry_run", None, f"{inputs.name} can be read only once; give a file")


def show_estimate(estimate: dict[str, Any], json: bool) -> None:
    """Print an estimate of all rows."""
    if json:
        write_json(estimate)
        return
    timed = f"{estimate['probed']} rows in {estimate['probed_seconds']:.2f} s"
    rates = "no row can be timed"
    if estimate["rows_per_second"] is not None:
        rates = f"{estimate['rows_per_second']:,.1f} rows/s, {estimate['tokens_per_second']:,.0f} tokens/s"
    moved = "an unknown number of" if estimate["difference"] is None else f"at most {estimate['difference']:.1e}"
    needed, written = estimate["memory_bytes"], estimate["bytes"]
    space = "unknown, as Parquet" if written is None else f"about {size(written)}" if written else "none"
    exact = "" if estimate["tokens_exact"] else "about "
    report(
        f"rows     {estimate['rows']:,}, {estimate['skipped']:,} of them skipped",
        f"tokens   {exact}{estimate['tokens']:,}, all candidates included",
        f"time     about {duration(estimate['seconds'])}, of which loading takes {estimate['loading']:.1f} s",
        f"probe    {timed}: {rates}",
        f"batches  move scores by {moved} nats; none with {option('batch_invariant')}",
        f"memory   {'unknown' if needed is None else 'about ' + size(needed)} for the weights and the memory",
        f"output   {space} (not written: this is a dry run)",
    )


def estimated(
    memory: OpenedMemory,
    options: ModelOptions | None,
    probed: Probed,
    answers: Answers,
    form: OutputRows | None,
    output: str | Path,
) -> dict[str, Any]:
    """The estimate of all rows as JSON values; `form` is that of the rows to be written, None if there are none.

    `output` is a file, or the suffix of the format on stdout.
    """
    from deepthink_cli.artifact.opening import find_its_model
    from deepthink_cli.events import silent
    from deepthink_cli.experiments.planning import size_of

    spec = find_its_model(memory, options, silent)
    weights, timed = size_of(spec), probed.timed_seconds
    stored = spec.memory_bytes(probed.memory_tokens)
    return {
        "rows": probed.rows,
        "skipped": len(probed.skipped),
        "tokens": probed.tokens,
        "tokens_exact": probed.exact,
        "seconds": round(probed.seconds, 3),
        "loading": round(probed.loading, 3),
        "probed": len(probed.places),
        "probed_seconds": round(timed, 3),
        "rows_per_second": round(len(probed.places) / timed, 3) if probed.places else None,
        "tokens_per_second": round(probed.timed_tokens / timed, 3) if probed.places else None,
        "difference": probed.difference,
        "memory_bytes": None if weights is None else round(weights.loaded_bytes) + stored,
        "bytes": 0 if form is None else _bytes(probed, answers, form, Path(output)),
    }


def _bytes(probed: Probed, answers: Answers, form: OutputRows, output: Path) -> int | None:
    """Bytes of all output rows before compression: each as those of the sample; None for Parquet."""
    from deepthink_cli.prediction.rows import Numbered

    if output.suffix.lower() == ".parquet":
        return None
    rows = [{**row, "index": probed.places[row["index"]]} for row in Numbered(form)(answers)]
    skipped = [form.row(place, row) for place, row in probed.skipped]
    head = _length([], form, output)
    scored = (_length(rows, form, output) - head) * probed.scored / max(1, len(probed.places))
    return round(scored) + _length(skipped, form, output)


def _length(rows: list[dict[str, Any]], form: OutputRows, output: Path) -> int:
    from deepthink_cli.io.tables import separated

    if not form.table:
        return sum(len(json_line(row).encode(errors="backslashreplace")) for row in rows)
    text = io.StringIO()
    separated(text, form.columns, "\t" if ".tsv" in output.suffixes or output.name == ".tsv" else ",")(rows)
    return len(text.getvalue().encode())
