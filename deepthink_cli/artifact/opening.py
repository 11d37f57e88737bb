"""Open a memory and the model that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.container import OPENERS, opener_of
from deepthink_cli.artifact.format import Artifact, kept_iterations, provenance_of, read_artifact, read_header
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.model.chat import check_template
from deepthink_cli.model.options import POCKET, TOY, ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import end_of_demonstrations
from deepthink_cli.options import own_options
from deepthink_cli.provenance import Provenance, check_model
from deepthink_cli.registry import loaded

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class OpenedMemory:
    """The verified iterations of one memory, before the model is loaded.

    `name` is the file, or the name in messages of a memory without a file; `kept` are all its iterations.
    """

    name: str
    provenance: Provenance
    kept: tuple[int, ...]
    iterations: tuple[int, ...]
    sha256: str | None
    source: Artifact | tuple[Memory, ...]

    def memories(self) -> list[Memory]:
        """The memory of each iteration; raises InputError for NaN or infinity."""
        from deepthink_cli.artifact.files import memories_of

        return memories_of(self.source) if isinstance(self.source, Artifact) else list(self.source)

    def read_by(self, engine: Engine) -> list[Memory]:
        """The memories in the engine's form; the engine reads the demonstrations of a file that holds no memories."""
        return self.memories()

    @property
    def corrected_in(self) -> str | None:
        """The file in which `deepthink calibrate` can store a correction, or None."""
        return self.name

    @property
    def plain_with(self) -> Mapping[str, Any]:
        """The options for plain in-context learning with this file; empty if that needs another memory."""
        return {}

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes, or of the tensors of memories without a file."""
        return self.source.header.size if isinstance(self.source, Artifact) else sum(m.nbytes for m in self.source)


def open_memory(path: str | Path, iteration: int | str = "last") -> OpenedMemory:
    """Read a memory file and check every byte of it; `iteration` is a number, several as in `1,5`, `last` or `all`.

    Raises InputError for a file that is not a complete, unmodified memory, and for an iteration that was not kept.
    """
    header = read_header(path)
    artifact = read_artifact(header, kept_iterations(header, iteration))
    metadata = header.metadata
    return OpenedMemory(
        str(path), provenance_of(header), tuple(metadata.kept), artifact.iterations, metadata.sha256, artifact
    )


def open_for_scoring(
    path: str | Path, iteration: int | str = "last", given: Mapping[str, Any] | None = None
) -> OpenedMemory:
    """Open a memory as `open_memory` does, or another file by its opener, with the options `given` for its kind.

    Raises InputError as `open_memory` and the opener do, and for an option of another kind of file.
    """
    opener, given = opener_of(path), given or {}
    if opener is None:
        for name, value in given.items():
            takers = [each.holds for each in OPENERS.values() if each.options and name in each.options.model_fields]
            raise InputError.of(name, value, f"{path} holds a memory, and no {' or '.join(takers)}; omit it")
        return open_memory(path, iteration)
    options = own_options(opener.options, given, opener.file, {each.file: each.options for each in OPENERS.values()})
    found: OpenedMemory = loaded(opener.open)(str(path), str(iteration), options)
    return found


def opened(
    memory: str | Path | OpenedMemory | Memory | Sequence[Memory], iteration: int | str = "last"
) -> OpenedMemory:
    """Open a file as `open_memory` does; opened memories, and memories without a file, are used as they are."""
    if isinstance(memory, OpenedMemory):
        return memory
    if isinstance(memory, str | Path):
        return open_memory(memory, iteration)
    from deepthink_cli.memory import Memory

    memories = (memory,) if isinstance(memory, Memory) else tuple(memory)
    if not memories:
        raise InputError("no memories; give one or more that think() or load_memory() made")
    if memories[0].provenance is None:
        raise InputError("this memory has no provenance; use one from think() or load_memory()")
    iterations = tuple(each.iteration for each in memories)
    return OpenedMemory("this memory", memories[0].provenance, iterations, iterations, None, memories)


def model_options(memory: OpenedMemory, options: ModelOptions | None = None) -> ModelOptions:
    """The options for loading a memory's model; unset options are taken from the memory."""
    made_by, options = memory.provenance.model, options or ModelOptions.checked()
    model = options.model if "model" in options.model_fields_set else made_by.id
    return options.model_copy(
        update={
            "model": model,
            "gguf": options.gguf or (made_by.gguf if model == made_by.id else None),
            "revision": options.revision or (made_by.revision if model == made_by.id else None),
            "dtype": made_by.dtype if options.dtype == "auto" else options.dtype,
            "quantize": options.quantize or made_by.quantize,
        }
    )


def find_its_model(memory: OpenedMemory, options: ModelOptions | None, tell: Tell) -> ModelSpec:
    """Find the memory's model, without its weights; raises InputError if it is another model."""
    named = options is not None and "model" in options.model_fields_set
    spec = find_model(model_options(memory, options), tell, None if named else memory.name)
    check_model(memory.provenance, spec.identify(), memory.name)
    if spec.id == POCKET:
        tell(Note(f"{memory.name}: {TOY}"))
    demonstrations = memory.provenance.demonstrations
    if demonstrations.chat:
        check_template(spec.tokenizer, demonstrations.chat, memory.name)
    else:
        spec.check_ids(demonstrations.token_ids, memory.name)
        end_of_demonstrations(spec.tokenizer, demonstrations, memory.name)
    return spec


def load_both(memory: OpenedMemory, spec: ModelSpec, tell: Tell) -> tuple[Engine, list[Memory]]:
    """Load the model's weights and the memories, and check that they fit; warns of a different compute dtype."""
    engine = load(spec, tell)
    memories = memory.read_by(engine)
    check_memories(memory, memories, engine, tell)
    return engine, memories


def with_first_reading(engine: Engine, memories: Sequence[Memory]) -> list[Memory]:
    """The memories with T = 1 (plain in-context learning), which is read again if it was not kept."""
    from deepthink_cli.thinking import think

    if any(memory.iteration == 1 for memory in memories):
        return list(memories)
    provenance = memories[0].origin
    first = next(think(engine, provenance.demonstrations, provenance.method))
    return [replace(first, provenance=provenance), *memories]


def check_memories(memory: OpenedMemory, memories: Sequence[Memory], engine: Engine, tell: Tell) -> None:
    """Raise InputError unless the memories fit the engine's model; warns of a different compute dtype."""
    check_model(memory.provenance, engine.identity, memory.name)
    for each in memories:
        engine.check_memory(each, memory.name)
    warn_of_dtype(memory, engine.identity.dtype, tell)


def warn_of_dtype(memory: OpenedMemory, used_in: str, tell: Tell) -> None:
    """Warn that a memory was made in another compute dtype than `used_in`."""
    made_in = memory.provenance.model.dtype
    if made_in != used_in:
        text = f"{memory.name} was made in {made_in} and is used in {used_in}: scores differ from those in {made_in}"
        tell(Warn(text))
