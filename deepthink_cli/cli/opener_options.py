"""The options of files that are not memories, of `predict` and `eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.artifact.registry import OPENERS
from deepthink_cli.cli.data_options import RowArguments
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import Options, QueryOptions, joined
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions

_GROUPS = (ModelOptions, QueryOptions, LabelOptions, ErrorOptions, RowArguments, CommonArguments)
_OTHERS = (
    "memory inputs labelled output output_format flush show_prompt resume dry_run at calibrate ensemble task score ray "
    "workers html fail_under protocol limit data_dir run_code unsafe labels"
)
TAKEN = frozenset([*_OTHERS.split(), *(name for group in _GROUPS for name in group.option_names().values())])
if TYPE_CHECKING:
    OpenerOptions = Options
else:
    OpenerOptions = joined("OpenerOptions", {each.file: each.options for each in OPENERS.values()}, TAKEN)
