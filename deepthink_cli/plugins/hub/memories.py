"""Publish a memory on the hub, with its PEFT form and a card; fetch a memory, and verify it before it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import Header, read_header
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Tell, Warn, silent
from deepthink_cli.export import EXPORTERS, Export
from deepthink_cli.io.atomic import check_output, replacing
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.plugins.hub.card import MEMORY, card_of, figures_of
from deepthink_cli.plugins.hub.client import Repository

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

CARD = "README.md"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of an adapter of PEFT
FILES = (MEMORY, CARD, CONFIG, WEIGHTS)  # the only names that are ever written to a repository


@dataclass(frozen=True)
class Publication:
    """What `publish` writes to a repository: a card, and other files by name."""

    repository: Repository
    header: Header
    card: str
    files: Mapping[str, Path]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes."""
        sizes = {CARD: len(self.card.encode()), **{name: path.stat().st_size for name, path in self.files.items()}}
        return {name: sizes[name] for name in FILES if name in sizes}


@contextmanager
def prepared(
    memory: str | Path, repository: Repository, results: Path | None, licence: str | None, tell: Tell = silent
) -> Iterator[Publication]:
    """Everything that would be published of a verified memory; nothing is sent.

    Raises InputError for a file that is not a complete memory, and for `results` of another memory.
    """
    from deepthink_cli.artifact.files import read_memories

    header = read_header(memory)
    figures = "" if results is None else figures_of(results, header)
    last = read_memories(header)[-1]  # all of them are verified
    with temporary_folder() as folder:
        files = {MEMORY: Path(memory), **_adapter(last, header, folder / "adapter", tell)}
        card = card_of(header, repository.name, len(files) > 1, licence, figures)
        yield Publication(repository, header, card, files)


def publish(publication: Publication, private: bool = False) -> str:
    """Create the repository if it does not exist, and write the files in one commit; returns the commit's address.

    An adapter of an earlier memory is deleted. Raises InputError for a repository that holds something else, and
    DeepThinkError if the hub refuses or cannot be reached.
    """
    repository = publication.repository
    repository.create(private)
    present = repository.files()
    if MEMORY not in present and any(name in present for name in FILES):
        named = next(name for name in FILES if name in present)
        raise InputError(f"{repository}: has a {named} and no {MEMORY}: it holds something else; name a new repository")
    stale = [name for name in (CONFIG, WEIGHTS) if name in present and name not in publication.files]
    message = f"Memory {publication.header.metadata.sha256[:12]}, by deepthink push"
    return repository.commit({CARD: publication.card.encode(), **publication.files}, stale, message)


def fetch(repository: Repository, output: str | Path) -> Header:
    """Download a memory, verify it, and write it to `output`; returns its header.

    Only the memory is downloaded, whatever else the repository has. The size and the SHA-256 that the hub records, and
    the memory's own digest are checked before anything is written. Raises DeepThinkError for a repository without a
    memory, and for anything that does not match.
    """
    check_output(output)
    files = repository.files()
    if MEMORY not in files:
        raise DeepThinkError(f"{repository}: has no {MEMORY}; name a repository made by deepthink push")
    with replacing(output) as temporary:
        folder = temporary.parent / "hub"
        repository.download(files[MEMORY], folder)
        from deepthink_cli.artifact.files import read_memories

        try:
            read_memories(read_header(folder / MEMORY))
        except InputError as error:
            reason = str(error).removeprefix(f"{folder / MEMORY}: ").partition(";")[0]
            raise repository.damaged(f"{MEMORY}: {reason}") from error
        os.replace(folder / MEMORY, temporary)
    return read_header(output)


def _adapter(memory: Memory, header: Header, folder: Path, tell: Tell) -> dict[str, Path]:
    """The files of the memory's PEFT form; none, with a warning, if PEFT cannot hold it."""
    try:
        if "peft" not in EXPORTERS:
            raise InputError("the exporter peft is not installed")
        EXPORTERS["peft"](Export(memory, header, folder))
    except InputError as error:
        tell(Warn(f"no adapter for PEFT is published: {error}"))
        return {}
    return {name: folder / name for name in (CONFIG, WEIGHTS)}
