"""`deepthink push` and `deepthink pull`: publish a memory on the hub; fetch one, and verify it before it is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_json
from deepthink_cli.cli.console import report as print_report
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.text import json_line, size
from deepthink_cli.options import DATA, OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.plugins.hub.memories import Publication

Repo = Annotated[str, typer.Argument(metavar="REPO", help="A model repository of the hub, as OWNER/NAME.")]
# No variable of the environment: DEEPTHINK_REVISION is the model's.
RepoRevision = Annotated[str | None, Flag(DATA, "Branch of the repository. Default: main.", "REV", variable=False)]
Private = Annotated[bool, Flag(OUTPUT, "Create the repository as a private one.", variable=False)]
Yes = Annotated[bool, Flag(OUTPUT, "Publish the demonstrations without asking.", variable=False)]
DryRun = Annotated[bool, Flag(OUTPUT, "Print what would be published; send nothing.", variable=False)]
Results = Annotated[
    Path | None, Flag(DATA, "Results for the card: the output of deepthink eval --json.", "FILE", variable=False)
]
Licence = Annotated[
    str | None, Flag(DATA, "Licence of the model for the card, as in apache-2.0.", "NAME", variable=False)
]
Output = Annotated[
    Path | None,
    Flag(OUTPUT, "Output file. Default: the repository's name with .safetensors.", "FILE", short="-o", variable=False),
]


@about("push mem.safetensors me/sst2-memory --results eval.json --dry-run")
@grouped
def push(
    memory: MemoryFile,
    repo: Repo,
    results: Results = None,
    licence: Licence = None,
    revision: RepoRevision = None,
    private: Private = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    common: CommonArguments,
) -> None:
    """Publish a memory on the hub, with its PEFT form and a card.

    The card has its demonstrations.
    """
    from deepthink_cli.plugins.hub.client import Repository
    from deepthink_cli.plugins.hub.memories import prepared, publish

    repository = Repository(repo, revision)
    with Show(common) as tell, prepared(memory, repository, results, licence, tell) as publication:
        sizes = publication.sizes
        described = {
            "repo": repository.name,
            "revision": revision,
            "private": private,
            "memory": publication.header.metadata.sha256,
            "files": sizes,
            "demonstrations": publication.header.metadata.shots,
            "card": publication.card,
        }
        if dry_run:
            if common.as_json:
                write_json(described)
            else:
                files = [f"{name:<26} {size(count)}" for name, count in sizes.items()]
                where = f"{repository}{', private' if private else ''} (not published: this is a dry run)"
                print_report(where, "", *files, "", *publication.card.splitlines())
            return
        if not yes:
            _ask(publication)
        commit = publish(publication, private)
        if common.as_json:
            write_json({**described, "url": repository.url, "commit": commit})
    note(f"published {', '.join(sizes)} at {repository.url}", common.quiet)


def _ask(publication: Publication) -> None:
    """Ask whether the memory's texts may be published; raises InputError without a terminal, DeepThinkError at a no."""
    metadata = publication.header.metadata
    held = f"{metadata.shots} demonstrations"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"{publication.header.path}: contains {held}, which would be published with it; look at them with "
            "--dry-run, and give --yes"
        )
    for text, label in zip(metadata.demonstrations.texts, metadata.demonstrations.labels, strict=True):
        note(json_line({"text": text, "label": label}).rstrip())
    if Path(metadata.model.id).is_absolute():
        note(f"the memory names its model by a path of this machine: {metadata.model.id}")
    if not typer.confirm(f"Publish these {held} at {publication.repository}?", err=True):
        raise DeepThinkError("nothing was published")


@about("pull me/sst2-memory -o mem.safetensors")
@grouped
def pull(repo: Repo, output: Output = None, revision: RepoRevision = None, *, common: CommonArguments) -> None:
    """Fetch a memory that was published with push.

    Nothing is written unless it is complete and unchanged.
    """
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.plugins.hub.client import Repository
    from deepthink_cli.plugins.hub.memories import fetch

    repository = Repository(repo, revision)
    path = output or Path(f"{repository.name.rpartition('/')[2]}.safetensors")
    check_apart(path, read_by(config=common.config))
    with Show(common):
        header = fetch(repository, path)
    if common.as_json:
        metadata = header.metadata
        write_json(
            {
                "repo": repo,
                "file": header.path,
                "bytes": header.size,
                "sha256": metadata.sha256,
                "model": metadata.model.id,
                "demonstrations": metadata.shots,
            }
        )
    note(f"wrote {path} ({size(header.size)}): made by {header.metadata.model.id}, verified", common.quiet)
    note(f"next: deepthink inspect {path}, or predict {path} INPUTS", common.quiet)
