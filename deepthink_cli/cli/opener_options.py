"""The options of files that are not memories, of `predict` and `eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.artifact.container import OPENERS
from deepthink_cli.options import Options, joined

if TYPE_CHECKING:
    OpenerOptions = Options
else:
    OpenerOptions = joined("OpenerOptions", {each.file: each.options for each in OPENERS.values()})
