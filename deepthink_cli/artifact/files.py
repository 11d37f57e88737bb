"""Save and load memories; the same inputs give the same bytes (docs/artifact.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from deepthink_cli.artifact.container import KEY, MAX_HEADER
from deepthink_cli.artifact.format import (
    Artifact,
    Header,
    content_digest,
    metadata_json,
    one_iteration,
    provenance_of,
    read_artifact,
    read_header,
    tensor_name,
)
from deepthink_cli.artifact.metadata import (
    FORMAT_VERSION,
    Metadata,
    StoredDemonstrations,
    added_fields,
    rule_fields,
    versions,
)
from deepthink_cli.corrections import Calibrated, Thresholds
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.text import canonical_json
from deepthink_cli.memory import Memory
from deepthink_cli.provenance import Quantized

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8"}  # as the header names them


def save_memory(memory: Memory | Sequence[Memory], path: str | Path) -> Header:
    """Write one memory, or several iterations of one run, as an artifact; return its header.

    The write is atomic: the file is written to a temporary folder next to its target, read back, synced to disk
    and then moved over the target. Raises InputError if the target cannot be written or the memories come from
    different runs, and DeepThinkError for values that are not finite or a failed write.
    """
    memories = sorted([memory] if isinstance(memory, Memory) else memory, key=lambda each: each.iteration)
    if not memories or memories[-1].provenance is None:
        raise InputError("nothing to save: give a memory that think() made")
    for each in memories:
        if place := each.not_finite():
            raise DeepThinkError(
                f"{place} of iteration {each.iteration} hold NaN or infinite values; nothing was written; use "
                f"{option('dtype')} float32"
            )
    if any(each.changing for each in memories):
        raise InputError("this memory was read with vectors, which its file would not hold; keep the file of vectors")
    if form := memories[-1].provenance.quantized:
        raise InputError(f"this memory is {form.dtype}; copy its file, or save the float32 memory it was made from")
    return write_file(_metadata(memories), tensors_of(memories), path)


def save_calibrated(
    header: Header, calibrated: Calibrated | None, path: str | Path, thresholds: Thresholds | None = None
) -> Header:
    """Write a memory file again with other corrections or thresholds, or without them; return the new file's header.

    Other metadata and the tensors stay as they are. The write is atomic, as in `save_memory`. Raises InputError for a
    damaged file, and DeepThinkError for a failed write.
    """
    artifact = read_artifact(header, header.metadata.kept)
    tensors = {name: _stored(artifact, name) for name in header.tensors}
    return write_file(replace(header.metadata, calibrated=calibrated, thresholds=thresholds), tensors, path)


def tensors_of(memories: Sequence[Memory]) -> dict[str, torch.Tensor]:
    """The tensors of a file with these memories, by name."""
    return {
        tensor_name(each.iteration, layer, part): tensor.cpu().contiguous()
        for each in memories
        for part, layers in (("keys", each.keys), ("values", each.values))
        for layer, tensor in enumerate(layers)
    }


def write_file(unsigned: Metadata, tensors: dict[str, torch.Tensor], path: str | Path) -> Header:
    """Write metadata, with their digest, and tensors; the old file is replaced when the new one can be read."""
    described = {name: (_DTYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}
    signed = content_digest(unsigned, described, lambda name: tensors[name].view(torch.uint8).numpy().tobytes())
    text = metadata_json(replace(unsigned, sha256=signed))
    if len(canonical_json(text).encode()) + 200 * len(tensors) > MAX_HEADER:
        raise DeepThinkError(
            f"the memory's metadata would pass {MAX_HEADER} bytes; keep fewer iterations ({option('keep')})"
        )
    with replacing(path) as temporary:
        write_tensors(tensors, temporary, KEY, text)
        header = read_header(temporary)
    return replace(header, path=str(path))


def write_tensors(tensors: dict[str, torch.Tensor], path: Path, key: str, metadata: str) -> None:
    """Write a safetensors file whose metadata have one key; raises OSError."""
    try:
        safetensors.torch.save_file(tensors, path, metadata={key: metadata})
    except SafetensorError as error:  # its message contains the number of the system's error
        number = re.search(r"\(os error (\d+)\)", str(error))
        raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))) from error


def load_memory(path: str | Path, iteration: int | None = None) -> Memory:
    """Read the memory of one iteration (default: the last kept one), on the CPU.

    Raises InputError for a file that is not a complete, unmodified memory, and for an iteration that was not kept.
    """
    header = read_header(path)
    return read_memories(header, [one_iteration(header, "last" if iteration is None else str(iteration))])[0]


def read_memories(header: Header, iterations: Sequence[int] | None = None) -> list[Memory]:
    """Read and verify several iterations (default: all kept ones) of an artifact; raises as `load_memory`."""
    return memories_of(read_artifact(header, header.metadata.kept if iterations is None else iterations))


def memories_of(artifact: Artifact) -> list[Memory]:
    """The memories of a verified artifact, created from the verified bytes; raises InputError for NaN or infinity."""
    header, memories = artifact.header, []
    for iteration in artifact.iterations:
        keys, values = (
            tuple(_tensor(artifact, tensor_name(iteration, layer, part)) for layer in range(header.layers))
            for part in ("keys", "values")
        )
        drift = tuple(header.metadata.drift[str(t)] for t in range(2, iteration + 1))
        memories.append(Memory(keys, values, iteration, drift, provenance_of(header)))
        if place := memories[-1].not_finite():
            raise InputError(
                f"{header.path}: damaged: {place} of iteration {iteration} hold NaN or infinite values; run deepthink "
                "think again"
            )
    return memories


def _tensor(artifact: Artifact, name: str) -> torch.Tensor:
    """The float32 keys or values with this name; raises InputError for codes that do not stand for numbers."""
    form, length = artifact.header.metadata.quantized, len(artifact.header.metadata.demonstrations.token_ids)
    if form is None:
        return _stored(artifact, name)
    codes = Codes(*(_stored(artifact, f"{name}{suffix}") for suffix in ("", ".low", ".scale")))
    try:
        check_codes(codes, length, form, name)
    except InputError as error:
        raise InputError(f"{artifact.header.path}: damaged: {error}; quantize again") from error
    return dequantized(codes, name.rpartition(".")[2], length, form)


AXES = {"keys": 1, "values": 2}  # axes of (heads, L, size) along which groups lie


@dataclass(frozen=True)
class Codes:
    """A quantized tensor (heads, L, size): number = low + scale * code.

    `codes` is uint8 (heads, L, size). At 4 bits it is (heads, ceil(L / 2), size): tokens 2i and 2i + 1 are the low and
    the high half of a byte, and the last high half is 0 if L is odd. `low` and `scale` are bfloat16, with the range of
    float32 in half the bytes: (heads, groups, size) for keys, (heads, L, groups) for values.
    """

    codes: Tensor
    low: Tensor
    scale: Tensor


def dequantized(stored: Codes, part: str, length: int, form: Quantized) -> Tensor:
    """The float32 tensor (heads, L, size) of codes, L = `length`; computed in float64, then rounded."""
    codes = stored.codes
    if form.bits == 4:  # both halves of every byte: (heads, 2 * ceil(L / 2), size)
        codes = torch.stack((codes & 15, codes >> 4), dim=2).flatten(1, 2)[:, :length]
    low, scale = (spread(each, codes, AXES[part], form).double() for each in (stored.low, stored.scale))
    return (low + scale * codes).float()


def check_codes(stored: Codes, length: int, form: Quantized, name: str) -> None:
    """Raise InputError for scales that are not finite and positive, and for codes of tokens after the last one."""
    if not (stored.scale.isfinite().all() and (stored.scale > 0).all()):
        raise InputError(f"{name}.scale has values that are not finite and positive")
    if not stored.low.isfinite().all():
        raise InputError(f"{name}.low has values that are not finite")
    if form.bits == 4 and length % 2 and (stored.codes[:, -1] >> 4).any():
        raise InputError(f"{name} has codes for more than {length} tokens")


def spread(ranges: Tensor, like: Tensor, axis: int, form: Quantized) -> Tensor:
    """Repeat every group's value for each of its numbers: (heads, L, size)."""
    return ranges.index_select(axis, torch.arange(like.shape[axis]) // form.group)


def _stored(artifact: Artifact, name: str) -> torch.Tensor:
    """A tensor in the form of the file."""
    entry = artifact.header.tensors[name]
    dtype = next(dtype for dtype, called in _DTYPES.items() if called == entry.dtype)
    return torch.frombuffer(artifact.tensors[name], dtype=dtype).view(entry.shape)


def _metadata(memories: Sequence[Memory]) -> Metadata:
    last = memories[-1]
    provenance = last.origin
    for each in memories[:-1]:
        if each.provenance != provenance:
            raise InputError("these memories come from different runs; save each in its own file")
    kept = [each.iteration for each in memories]
    if len(set(kept)) < len(kept):
        raise InputError(f"iterations {kept}: one is duplicated; give each once")
    if (calibrated := provenance.calibrated) is not None:
        provenance = replace(provenance, calibrated=calibrated.of({1, *kept}))
    if (thresholds := provenance.thresholds) is not None:
        provenance = replace(provenance, thresholds=thresholds.of({1, *kept}))
    demonstrations = provenance.demonstrations
    return Metadata(
        format_version=FORMAT_VERSION,
        **added_fields(provenance),
        model=provenance.model,
        demonstrations=StoredDemonstrations(
            token_ids=list(demonstrations.token_ids),
            texts=[text if isinstance(text, str) else dict(text) for text in (e.text for e in demonstrations.examples)],
            labels=[example.label for example in demonstrations.examples],
            sha256=demonstrations.sha256,
        ),
        template=demonstrations.template,
        labels=list(demonstrations.labels),
        iterations=provenance.method.iterations,
        **rule_fields(provenance.method.update),
        positions=provenance.method.positions,
        kept=kept,
        dtypes={"memory": "float32", "model": provenance.model.dtype},
        task=provenance.task,
        seed=provenance.seed,
        shots=len(demonstrations.examples),
        versions=dict(versions()),
        drift={str(t): drift for t, drift in enumerate(last.drift, start=2)},
        chat=demonstrations.chat,
    )
