"""The files and folders that a command reads, derived from its options; none of them may be overwritten."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def read_by(
    *rows: str | Path | None,
    model: str | None = None,
    adapter: str | None = None,
    template: str | None = None,
    labels: Sequence[str] | None = None,
    task: str | Sequence[str] | None = None,
    data_dir: Path | None = None,
    config: Path | None = None,
) -> list[str | Path]:
    """The files and folders that these options read, and the package's own folder; `rows` may be `-`.

    Raises InputError for a wrong task file, for an unknown task if rows come from `data_dir`, and as `labels_file`.
    """
    from deepthink_cli.cli.values import labels_file
    from deepthink_cli.tasks.catalogue import find_tasks
    from deepthink_cli.tasks.sources import files_of

    tasks = [task] if isinstance(task, str) else task or ()
    files = [*rows, template if template is not None and "{" not in template else None, config]
    own = [name for name in tasks if name.endswith((".yaml", ".yml"))]
    files += [labels_file(labels), *own, *(file for item in find_tasks(own) for file in files_of(item))]
    folders: list[str | Path] = [PACKAGE]
    folders += [os.path.expanduser(name) for name in (model, adapter) if name is not None]
    if data_dir is not None:
        folders += dict.fromkeys(data_dir / item.folder for item in find_tasks(tasks))
    return [file for file in files if file is not None] + folders
