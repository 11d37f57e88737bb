"""Labelled rows as a pool, as commands that choose, tune or extract from them read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.cli.data_options import PromptArguments
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from deepthink_cli.events import Tell
    from deepthink_cli.selection.pool import PoolRows
    from deepthink_cli.tasks.sources import Source


def pool_rows(
    pool: RowSource | None, name: str | None, protocol: str, source: Source, prompt: PromptArguments, tell: Tell
) -> PoolRows:
    """The labelled rows of the file, or the training rows of the task; raises InputError if there is neither."""
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.rows import announce, pool_of_task
    from deepthink_cli.tasks.splits import evaluation_set

    if name is not None:
        task = find_task(name)
        announce(source, [task], tell)
        return pool_of_task(task, evaluation_set(task, protocol, source), pool)
    if pool is None:
        raise InputError("POOL: no rows; give a file of labelled rows, or --task NAME")
    return pool_of_rows(pool, prompt, tell)


def pool_of_rows(pool: RowSource, prompt: PromptArguments, tell: Tell) -> PoolRows:
    """The labelled rows of a file; warns of probably wrong fields."""
    from deepthink_cli.data.examples import DemonstrationSet, example_of
    from deepthink_cli.data.field_warnings import field_warnings
    from deepthink_cli.events import Warn
    from deepthink_cli.selection.pool import pool_of_file

    rows = pool_of_file(pool, *prompt.decoded())
    solved = DemonstrationSet(tuple(map(example_of, rows.queries)), rows.template, rows.labels)
    for message in field_warnings(solved, prompt.labels is not None, pool.has_header):
        tell(Warn(message))
    return rows
