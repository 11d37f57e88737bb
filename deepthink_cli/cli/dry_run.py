"""`--dry-run` of `predict` and `eval`: the cost of labelling a file, from a timed sample of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.cli.console import duration, report, write_json
from deepthink_cli.errors import InputError, option
from deepthink_cli.options import OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.data.source import RowSource
    from deepthink_cli.scoring.probe import Probed

DryRun = Annotated[
    bool,
    Flag(
        OUTPUT,
        "Write nothing: check everything, time at most 64 rows, and print what all rows would take.",
        variable=False,
    ),
]


def check_dry_run(others: dict[str, Any], inputs: RowSource | None = None) -> None:
    """Raise InputError for options whose work a sample in this process cannot measure.

    Also raises InputError for inputs that can be read only once.
    """
    for name, value in others.items():
        if value:
            raise InputError.of("dry_run", None, f"not with {option(name)}; omit one of the two")
    if inputs is not None and inputs.read_once:
        raise InputError.of("dry_run", None, f"{inputs.name} can be read only once; give a file")


def show_estimate(probed: Probed, json: bool) -> None:
    """Print the cost of all rows."""
    if json:
        write_json(probed.as_json())
        return
    rates, seconds = "no row can be timed", probed.timed_seconds
    if probed.probed:
        rates = f"{probed.probed / seconds:,.1f} rows/s, {probed.timed_tokens / seconds:,.0f} tokens/s"
    report(
        f"rows     {probed.rows:,}, {len(probed.skipped):,} of them skipped",
        f"tokens   {'' if probed.exact else 'about '}{probed.tokens:,}, all candidates included",
        f"time     about {duration(probed.seconds)}, of which loading takes {probed.loading:.1f} s",
        f"probe    {probed.probed} rows in {seconds:.2f} s: {rates}",
        "output   not written: this is a dry run",
    )
