"""The parts and digests of a memory file as docs/artifact.md has them, sharing no code with the package."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Tensors = dict[str, dict[str, Any]]


def canonical(value: Any) -> str:
    """A value as JSON text that is always the same."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def demonstrations_sha256(metadata: dict[str, Any]) -> str:
    """The digest of the demonstrations that metadata describe."""
    stored = metadata["demonstrations"]
    pairs = zip(stored["texts"], stored["labels"], strict=True)
    read = {
        "examples": [{"text": text, "label": label} for text, label in pairs],
        "token_ids": stored["token_ids"],
        **{name: metadata[name] for name in ("labels", "template", "chat", "parts") if name in metadata},
    }
    return hashlib.sha256(canonical(read).encode()).hexdigest()


def signed(metadata: dict[str, Any], tensors: Tensors, body: bytes) -> dict[str, Any]:
    """Metadata with the digest of themselves, then of name, dtype, shape and bytes of each tensor by name."""
    total = hashlib.sha256(canonical({**metadata, "sha256": ""}).encode())
    for name in sorted(tensors):
        entry = tensors[name]
        total.update(canonical([name, entry["dtype"], entry["shape"]]).encode())
        total.update(body[slice(*entry["data_offsets"])])
    return {**metadata, "sha256": total.hexdigest()}


def parts(path: str | Path) -> tuple[dict[str, Any], Tensors, bytearray]:
    """The metadata of a file, its tensors as the header lists them, and their bytes."""
    data = Path(path).read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    listed = json.loads(data[8:end])
    return json.loads(listed.pop("__metadata__")["deepthink"]), listed, bytearray(data[end:])


def with_header(path: Path, header: str, body: bytes) -> Path:
    """Write a file with a header, aligned as safetensors aligns it."""
    data = header.encode("utf-8", "surrogatepass")
    data += b" " * (-len(data) % 8)
    path.write_bytes(struct.pack("<Q", len(data)) + data + body)
    return path


def write_parts(path: Path, metadata: dict[str, Any], tensors: Tensors, body: bytes) -> Path:
    """Write a file of these parts with their digest: only what it says can be wrong with it."""
    raw = {"__metadata__": {"deepthink": canonical(signed(metadata, tensors, body))}, **tensors}
    return with_header(path, json.dumps(raw, separators=(",", ":"), ensure_ascii=False), body)


def changed(values: dict[str, Any], place: Sequence[str | int], to: Any) -> dict[str, Any]:
    """A copy of values with another value in one place."""
    made = copy.deepcopy(values)
    inner: Any = made
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = to
    return made
