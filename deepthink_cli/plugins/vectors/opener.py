"""The opener of files of vectors, which is named without importing torch."""

from __future__ import annotations

from deepthink_cli.artifact.container import Opener
from deepthink_cli.plugins.vectors.options import AddedOptions

VECTORS = Opener(
    "deepthink_cli.plugins.vectors.opening:open_file",
    "deepthink_cli.plugins.vectors.file:describe",
    "iterative vectors",
    "vectors that are added to one reading of demonstrations, and to the query",
    "https://proceedings.mlr.press/v267/liu25j.html",
    AddedOptions,
)
