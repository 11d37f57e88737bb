"""`deepthink push`: publish a memory on the hub, with its PEFT form and a card."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.console import note, write_json
from deepthink_cli.cli.console import report as print_report
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.hub_options import DryRun, Licence, Private, Repo, RepoRevision, Results, Yes
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.cli.show import Show
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.text import json_line, size

if TYPE_CHECKING:
    from deepthink_cli.integrations.hub import Publication


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
    """Publish a memory on the hub: the memory, its PEFT form, and a card with its demonstrations."""
    from deepthink_cli.integrations.hub import prepared, publish
    from deepthink_cli.integrations.hub_client import Repository

    repository = Repository(repo, revision)
    with Show(common) as tell, prepared(memory, repository, results, licence, tell) as publication:
        if dry_run:
            _show(publication, private, common.json)
            return
        if not yes:
            _ask(publication)
        commit = publish(publication, private)
        if common.json:
            write_json({**_described(publication, private), "url": repository.url, "commit": commit})
    note(f"published {', '.join(publication.files)} at {repository.url}", common.quiet)


def _described(publication: Publication, private: bool) -> dict[str, Any]:
    """What is published, as JSON values."""
    return {
        "repo": publication.repository.name,
        "revision": publication.repository.revision,
        "private": private,
        "memory": publication.header.metadata.sha256,
        "files": publication.sizes,
        "demonstrations": publication.header.metadata.shots,
        "card": publication.card,
    }


def _show(publication: Publication, private: bool, json: bool) -> None:
    if json:
        write_json(_described(publication, private))
        return
    files = [f"{name:<26} {size(count)}" for name, count in publication.sizes.items()]
    where = f"{publication.repository}{', private' if private else ''} (not published: this is a dry run)"
    print_report(where, "", *files, "", *publication.card.splitlines())


def _ask(publication: Publication) -> None:
    """Ask whether the memory's texts may be published; raises InputError without a terminal, DeepThinkError at a no."""
    from deepthink_cli.integrations.model_card import local_paths

    metadata = publication.header.metadata
    held = f"{metadata.shots} demonstrations"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"{publication.header.path}: contains {held}, which would be published with it; look at them with "
            "--dry-run, and give --yes"
        )
    for text, label in zip(metadata.demonstrations.texts, metadata.demonstrations.labels, strict=True):
        note(json_line({"text": text, "label": label}).rstrip())
    for path in local_paths(metadata):
        note(f"the memory names its model by a path of this machine: {path}")
    if not typer.confirm(f"Publish these {held} at {publication.repository}?", err=True):
        raise DeepThinkError("nothing was published")


Annotated  # noqa: B018
