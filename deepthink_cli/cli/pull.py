"""`deepthink pull`: fetch a memory from the hub, and verify it before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import note, write_json
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.hub_options import Output, Repo, RepoRevision
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.show import Show
from deepthink_cli.io.text import size

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header


@grouped
def pull(repo: Repo, output: Output = None, revision: RepoRevision = None, *, common: CommonArguments) -> None:
    """Fetch a memory that was published with push; nothing is written unless it is complete and unchanged."""
    from deepthink_cli.integrations.hub import fetch
    from deepthink_cli.integrations.hub_client import Repository
    from deepthink_cli.outputs import check_apart

    repository = Repository(repo, revision)
    path = output or Path(f"{repository.name.rpartition('/')[2]}.safetensors")
    check_apart(path, read_by(config=common.config))
    with Show(common) as tell:
        header = fetch(repository, path, tell)
    if common.json:
        write_json(_described(repo, header))
    note(f"wrote {path} ({size(header.size)}): made by {header.metadata.model.id}, verified", common.quiet)
    note(f"next: deepthink inspect {path}    or: deepthink predict {path} INPUTS", common.quiet)


def _described(repo: str, header: Header) -> dict[str, object]:
    """What was fetched, as JSON values."""
    metadata = header.metadata
    return {
        "repo": repo,
        "file": header.path,
        "bytes": header.size,
        "sha256": metadata.sha256,
        "model": metadata.model.id,
        "demonstrations": metadata.shots,
    }
