"""The file of vectors (docs/artifact.md#vectors): one tensor, metadata with its origin, and the memory made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError, with_config

from deepthink_cli.artifact.container import Container, Described, digest, read_container
from deepthink_cli.artifact.metadata import StoredDemonstrations, origin_lines, prompt_lines, versions_line
from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.data.examples import Example
from deepthink_cli.data.template import Template
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.io.records import STRICT, Count, Digest, Natural, place, reason
from deepthink_cli.io.text import canonical_json, size
from deepthink_cli.method import Method
from deepthink_cli.plugins.vectors.options import AddedOptions, Factor
from deepthink_cli.provenance import ModelIdentity, Provenance, RecordedTechnique, TokenizedDemonstrations

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory

KEY = "deepthink-vectors"  # of the metadata
NAME = "vectors"  # of the tensor
ITERATIVE_VECTORS = "iterative-vectors"


@with_config(STRICT)
@dataclass(frozen=True)
class VectorsMetadata:
    """The metadata of vectors, before they are written as canonical JSON.

    `demonstrations` are the demonstrations of the prompts to which the vectors are added, with factor `alpha`; `places`
    are the tokens after which their labels begin. The vectors were extracted in `episodes` of `shots` demonstrations of
    each label and a query, drawn with `seed` from `rows` rows of `source`, whose digest is `rows_sha256`; `task` is set
    if the source is a task.
    """

    format_version: Literal[1]
    model: ModelIdentity
    demonstrations: StoredDemonstrations
    places: list[Natural]
    template: Template
    labels: list[str]
    alpha: Factor
    extraction_alpha: Factor
    episodes: Count
    shots: Count
    seed: Natural
    source: str
    task: str | None
    rows: Count
    rows_sha256: Digest
    versions: dict[str, str]
    sha256: str = ""

    @property
    def provenance(self) -> Provenance:
        """The provenance of the memory of one reading that is made with the vectors."""
        stored = self.demonstrations
        examples = tuple(map(Example, stored.texts, stored.labels))
        demonstrations = TokenizedDemonstrations(
            examples, self.template, tuple(self.labels), token_ids=tuple(stored.token_ids)
        )
        values = {name: float(getattr(self, name)) for name in ("alpha", "extraction_alpha", "episodes", "shots")}
        technique = RecordedTechnique(ITERATIVE_VECTORS, values)
        return Provenance(self.model, demonstrations, Method(1), self.task, self.seed, technique=technique)


_METADATA = TypeAdapter(VectorsMetadata)


@dataclass(frozen=True)
class VectorsFile:
    """The header of a file of vectors, as it was read and checked."""

    container: Container
    metadata: VectorsMetadata

    @property
    def path(self) -> str:
        """The file."""
        return self.container.path

    @property
    def shape(self) -> tuple[int, ...]:
        """Layers, labels and one for the query, and width."""
        return self.container.tensors[NAME].shape

    @cached_property
    def body(self) -> bytearray:
        """The bytes of the tensor; raises InputError unless they match the digest."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.container.start)
                body = bytearray(file.read())
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error
        if _digest(self.metadata, self.shape, body) != self.metadata.sha256:
            raise InputError(f"{self.path}: damaged: its bytes do not match its digest; {_AGAIN}")
        return body

    @property
    def tensor(self) -> Tensor:
        """The vectors (layers, C + 1, W) in float32; raises as `body`, and InputError for NaN or infinity."""
        import torch

        tensor = torch.frombuffer(self.body, dtype=torch.float32).view(self.shape)
        if not tensor.isfinite().all():
            raise InputError(f"{self.path}: damaged: the vectors hold NaN or infinite values; {_AGAIN}")
        return tensor

    def with_alpha(self, alpha: float) -> VectorsFile:
        """The file as it would be with this factor of the vectors; its bytes are verified."""
        changed = replace(self.metadata, alpha=alpha)
        return replace(self, metadata=replace(changed, sha256=_digest(changed, self.shape, self.body)))

    def summary(self) -> dict[str, Any]:
        """The metadata and sizes as one JSON-ready object, without token ids."""
        fields = _METADATA.dump_python(self.metadata, mode="json")
        fields["demonstrations"]["tokens"] = len(fields["demonstrations"].pop("token_ids"))
        return {"file": self.path, "bytes": self.container.size, "shape": list(self.shape), **fields}


_AGAIN = "run deepthink vectors again, or copy the file again"


def read_vectors(path: str | Path) -> VectorsFile:
    """Read and check the header of a file of vectors, without its tensor and without torch.

    Raises InputError if the file is missing, holds something else, or is not as `deepthink vectors` writes it.
    """
    container = read_container(path)
    if container.key != KEY:
        raise InputError(f"{path}: holds a memory, not vectors; name a file written by deepthink vectors")
    try:
        metadata = _METADATA.validate_python(json.loads(container.metadata))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: damaged metadata: {place(first)}: {reason(first)}; {_AGAIN}") from error
    except (ValueError, RecursionError, InputError) as error:
        raise InputError(f"{path}: damaged metadata: {error}; {_AGAIN}") from error
    _check_layout(container, len(metadata.labels))
    container.check_canonical(_text(metadata), "vectors")
    return VectorsFile(container, metadata)


def describe(path: str, verify: bool) -> Described:
    """What `inspect` shows of a file of vectors; raises InputError as `read_vectors`, and with `verify` as its body."""
    file = read_vectors(path)
    if verify:
        _ = file.body  # raises for another digest
    metadata, (layers, rows, width) = file.metadata, file.shape
    facts = {
        "vectors": f"{path} ({size(file.container.size)}, format {metadata.format_version})",
        **origin_lines(metadata.provenance, "vectors added to one reading of the demonstrations and to the query"),
        "rows": f"{metadata.rows} of {metadata.source}",
        "stored": f"{layers} layers x {rows} (each label, and the query) x width {width}, float32",
        **prompt_lines(metadata.labels, metadata.template, None),
        **versions_line(metadata.versions),
    }
    return Described(file.summary(), facts, metadata.demonstrations, metadata.sha256)


def save_vectors(unsigned: VectorsMetadata, tensor: Tensor, path: str | Path) -> VectorsFile:
    """Write vectors (layers, C + 1, W) in float32 to a file, atomically; returns its header."""
    import torch

    from deepthink_cli.artifact.files import write_tensors
    from deepthink_cli.io.atomic import replacing

    stored = tensor.contiguous()
    body = stored.view(torch.uint8).numpy().tobytes()
    signed = _digest(unsigned, tuple(stored.shape), body)
    with replacing(path) as temporary:
        write_tensors({NAME: stored}, temporary, KEY, _text(replace(unsigned, sha256=signed)))
        written = read_vectors(temporary)
    return replace(written, container=replace(written.container, path=str(path)))


def _digest(metadata: VectorsMetadata, shape: tuple[int, ...], body: bytes | bytearray) -> str:
    return digest(_text(replace(metadata, sha256="")), {NAME: ("F32", shape)}, lambda _: body)


def _text(metadata: VectorsMetadata) -> str:
    return canonical_json(_METADATA.dump_python(metadata, mode="json"))


def _check_layout(container: Container, labels: int) -> None:
    """Raise InputError unless the one tensor has a vector for each label and one more, and fills the file."""
    entry = container.tensors.get(NAME)
    fits = entry is not None and len(container.tensors) == 1 and entry.dtype == "F32" and len(entry.shape) == 3
    if entry is None or not fits or entry.shape[1] != labels + 1 or min(entry.shape) < 1:
        raise InputError(
            f"{container.path}: damaged: its tensors are not one called {NAME}, F32 (layers, {labels + 1}, width); "
            f"{_AGAIN}"
        )
    end = 4 * math.prod(entry.shape)
    if (entry.begin, entry.end) != (0, end) or container.start + end != container.size:
        raise InputError(
            f"{container.path}: damaged: {container.size} bytes, {container.start + end} expected; {_AGAIN}"
        )


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
