"""Open a file of vectors, of which a model makes a memory with one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.vectors.file import VectorsFile, read_vectors
from deepthink_cli.plugins.vectors.options import AddedOptions

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class OpenedVectors(OpenedMemory):
    """Verified vectors, before the model is loaded; `predict` and `evaluate` use them as they use a memory."""

    file: VectorsFile = field(kw_only=True)

    def memories(self) -> list[Memory]:
        """Raises InputError: only a model makes a memory of vectors."""
        raise InputError(f"{self.name}: holds iterative vectors, not a memory; only predict and evaluate use them")

    def read_by(self, engine: Engine) -> list[Memory]:
        """The demonstrations, read once with alpha times the vectors of their labels where these begin.

        The vector of the query is added where the candidates of a query begin. Raises InputError if the vectors do not
        fit the model, or the engine adds none.
        """
        metadata, labels = self.file.metadata, self.file.metadata.labels
        from deepthink_cli.plugins.vectors.passes import adding, read_adding  # imports torch

        vectors = metadata.alpha * self.file.tensor
        of_demonstrations = vectors[:, [labels.index(label) for label in metadata.demonstrations.labels]]
        try:
            ids = metadata.demonstrations.token_ids
            present, _ = read_adding(engine, ids, metadata.places, list(of_demonstrations))
        except InputError as error:
            raise InputError(*(f"{self.name}: {message}" for message in error.messages)) from error
        return [replace(present, provenance=self.provenance, changing=partial(adding, added=tuple(vectors[:, -1])))]

    @property
    def corrected_in(self) -> None:
        """None: a correction is stored with a memory."""

    @property
    def plain_with(self) -> Mapping[str, float]:
        """A factor of 0: nothing is added."""
        return {"alpha": 0}

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return self.file.container.size


def open_vectors(path: str | Path, iteration: int | str = "last", options: AddedOptions | None = None) -> OpenedVectors:
    """Read a file of vectors and check every byte of it; the factor is the file's own, unless the options have one.

    The only iteration is 1. Raises InputError for another one, and for a file that does not hold complete, unmodified
    vectors.
    """
    if str(iteration) not in ("1", "last", "all"):
        raise InputError.of("iteration", iteration, f"{path} holds vectors, which are used in one reading; omit it")
    file = read_vectors(path)
    alpha = None if options is None else options.alpha
    file = file.with_alpha(file.metadata.alpha if alpha is None else alpha)
    return OpenedVectors(str(path), file.metadata.provenance, (1,), (1,), file.metadata.sha256, (), file=file)
