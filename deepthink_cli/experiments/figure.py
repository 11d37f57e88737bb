"""What a study file says of its figure, and the forms of figures by their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from deepthink_cli.registry import Registry


class FigureOptions(BaseModel):
    """What a figure shows; `kind` is the name of its form."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str


@dataclass(frozen=True)
class FigureForm:
    """A form of a study's figure, which a study file names as `kind`.

    `options` are the fields of the figure in the file; their `kind` is a `Literal` of the form's name. `draw` makes a
    figure of matplotlib of them and the jobs (`report/job_results.py`), in the style that is set, and raises InputError
    if there is nothing to draw yet. A form that is a table has `latex` instead, which makes the text of a .tex file of
    them, the jobs, the name and the title of the study. Both are functions, or where they are found
    (`module:function`).
    """

    options: type[FigureOptions]
    draw: Callable[[Any, Any], Any] | str | None
    summary: str
    source: str
    latex: Callable[[Any, Any, str, str], str] | str | None = None


def _checked(name: str, value: Any) -> FigureForm:
    if not isinstance(value, FigureForm):
        raise TypeError(f"a {type(value).__name__}, not a FigureForm")
    if get_args(value.options.model_fields["kind"].annotation) != (name,):
        raise ValueError(f"its options have another kind than {name!r}")
    return value


FORMS: Registry[FigureForm] = Registry("forms", {}, _checked)
