"""The digests of a memory file as docs/artifact.md has them, sharing no code with the package."""

from __future__ import annotations

import hashlib
import json
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
