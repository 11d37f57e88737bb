"""A memory and the model that made it, brought together for `predict` and `eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

from deepthink_cli.artifact.format import Artifact, Header, kept_iteration, read_artifact, read_header
from deepthink_cli.cli.console import note
from deepthink_cli.options import ModelOptions

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.spec import ModelSpec


def chosen_iterations(header: Header, choice: str) -> Sequence[int]:
    """The kept iterations that `--iteration` names."""
    kept = header.metadata.kept
    if choice == "all":
        return kept
    if choice == "last":
        return kept[-1:]
    return [kept_iteration(header, choice)]


def memory_options(header: Header, typed: ModelOptions, model: str | None) -> ModelOptions:
    """The typed model options, with what was left open taken from the memory."""
    made_by = header.metadata.model
    same_model = model is None or model == made_by.id
    return typed.model_copy(
        update={
            "model": model or made_by.id,
            "revision": typed.revision or (made_by.revision if same_model else None),
            "dtype": made_by.dtype if typed.dtype == "auto" else typed.dtype,
            "quantize": typed.quantize or made_by.quantize,
        }
    )


def open_memory(path: Path, choice: str) -> Artifact:
    """Read a memory file and check every byte of it; what `--iteration` names is kept."""
    header = read_header(path)
    return read_artifact(header, chosen_iterations(header, choice))


def load_both(artifact: Artifact, spec: ModelSpec, quiet: bool, verbose: bool) -> tuple[Engine, list[Memory]]:
    """The model with its weights and the memories, which fit it; numbers of another kind than the memory's are told."""
    from deepthink_cli.artifact.files import check_fit, memories_of

    header = artifact.header
    memories = memories_of(artifact)
    model = load(spec, quiet)
    check_fit(header.metadata.provenance(), model.identity, header.path)
    for memory in memories:
        model.check_memory(memory, header.path)
    made_in, used_in = header.metadata.dtypes["model"], model.identity.dtype
    if made_in != used_in:
        note(
            f"warning: {header.path} was made in {made_in} and is used in {used_in}: scores differ from those in {made_in}"
        )
    say_loaded(model, quiet, verbose)
    return model, memories


def load(spec: ModelSpec, quiet: bool) -> Engine:
    """Load a model's weights; a note says so where they are a pickle."""
    from deepthink_cli.engine.choice import load_model

    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # `say_loaded` prints what this warns of
        engine = load_model(spec)
    if spec.pickled:
        note(
            f"{spec.id}: its weights are a pickle, read with torch's safe loader; safetensors are safer and faster",
            quiet,
        )
    return engine


def say_loaded(engine: Engine, quiet: bool, verbose: bool, always: bool = False) -> None:
    """Print what was loaded if `verbose`; its engine if `verbose`, padded or `always`; a failure in any case."""
    if verbose:
        note(f"loaded {engine.identity.id}, {engine.identity.dtype} on {engine.device}")
    if engine.warning:
        note(f"warning: {engine.warning}")
    elif verbose or always or engine.notice:
        note(engine.description, quiet and not verbose)


def find_model(options: ModelOptions, quiet: bool) -> ModelSpec:
    """Find a model, without its weights; a download is announced before it begins."""
    from deepthink_cli.model.spec import needs_download, open_model

    if needs_download(options):
        note(f"downloading {options.model} from the hub", quiet)
    return open_model(options)


def open_its_model(header: Header, options: ModelOptions, quiet: bool) -> ModelSpec:
    """Find the memory's model, without its weights; raises InputError where it is another model."""
    from deepthink_cli.artifact.files import check_fit

    spec = find_model(options, quiet)
    check_fit(header.metadata.provenance(), spec.identity, header.path)
    return spec
