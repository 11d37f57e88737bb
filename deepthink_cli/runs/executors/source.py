"""The digest of the package's own files, which shows whether two machines run the same code."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent.parent


@cache
def package_sha256() -> str:
    """SHA-256 of the names and bytes of the package's Python and YAML files."""
    digest = hashlib.sha256()
    files = (path for pattern in ("*.py", "*.yaml") for path in PACKAGE.rglob(pattern))
    for path in sorted(files, key=lambda path: path.relative_to(PACKAGE).as_posix()):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
