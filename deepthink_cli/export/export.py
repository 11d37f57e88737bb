"""Write a memory for another program: the workflow of `deepthink export`."""

from __future__ import annotations

from pathlib import Path

from deepthink_cli.artifact.files import load_memory
from deepthink_cli.artifact.format import Header, kept_iteration, read_header
from deepthink_cli.artifact.opening import find_its_model, load_both, open_memory
from deepthink_cli.engine.base import Reading
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.export.llama_cpp import Agreement, Weights, agreement, check_tokens, read_state, write_state
from deepthink_cli.export.peft import CONFIG, FILES, write_peft
from deepthink_cli.io.atomic import check_folder
from deepthink_cli.memory import Memory
from deepthink_cli.method import CT_KV
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.outputs import Paths, check_apart


def check_adapter_apart(directory: Path, read: Paths) -> None:
    """Raise InputError unless an adapter can be written to `directory` without overwriting what is read or runs."""
    exists = check_folder(directory, FILES).is_dir()
    check_apart(directory / CONFIG if exists else directory, read)


def export_peft(path: Path, directory: Path, iteration: str = "last", tell: Tell = silent) -> Memory:
    """Write one iteration of a memory file as a prefix adapter of PEFT; raises as `write_peft` does."""
    memory = load_memory(path, _iteration(read_header(path), iteration))
    write_peft(memory, directory, str(path))
    assert memory.provenance is not None
    model = memory.provenance.model
    if model.gguf is not None:
        tell(
            Warn(f"{model.id} is a GGUF file: load it with gguf_file=, dequantized, and give the adapter to that model")
        )
    if model.quantize is not None:
        tell(Warn(f"{path} was made in {model.quantize}: load the model in the same way, or scores differ"))
    return memory


def export_llama_cpp(
    path: Path,
    state: Path,
    output: Path,
    iteration: str = "last",
    weights: Weights = "f32",
    options: ModelOptions | None = None,
    tell: Tell = silent,
) -> tuple[Memory, Agreement]:
    """Write a state saved by llama.cpp with one iteration of a memory in place of its own keys and values.

    The state's own keys and values are compared with one reading of the demonstrations: the memory of T = 1 if the
    file keeps it, otherwise the memory's model reads them again. Raises as the functions of `exporting.llama_cpp`.
    """
    header = read_header(path)
    memory = load_memory(path, _iteration(header, iteration))
    saved = read_state(state)
    check_tokens(saved, header.metadata.demonstrations.token_ids)
    compared = agreement(saved, _one_reading(header, options, tell), weights)
    write_state(memory, saved, compared.paired, output)
    return memory, compared


def _iteration(header: Header, choice: str) -> int:
    """The number of the chosen iteration; raises InputError if the file does not keep it."""
    if choice == "all":
        raise InputError("--iteration all: an export holds one iteration; give its number, or last")
    return header.metadata.kept[-1] if choice == "last" else kept_iteration(header, choice)


def _one_reading(header: Header, options: ModelOptions | None, tell: Tell) -> Memory:
    """The memory of one reading, which is T = 1 unless it was trained."""
    metadata = header.metadata
    trained = metadata.technique is not None and metadata.technique.name == CT_KV
    if 1 in metadata.kept and not trained:
        return load_memory(header.path, 1)
    reason = "was trained" if trained else "does not keep T = 1 (think with --keep 1,... to)"
    tell(Note(f"{header.path} {reason}: reading the demonstrations once to compare them with the state"))
    opened = open_memory(header.path)
    engine, _ = load_both(opened, find_its_model(opened, options, tell), tell)
    (first,) = engine.read([Reading(tuple(metadata.demonstrations.token_ids))])
    return first
