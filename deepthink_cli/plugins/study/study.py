"""Study files, by name or path, and which study a folder's rows belong to; errors name file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticKnownError

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.experiments.experiment import AXES, Experiment, Word
from deepthink_cli.experiments.folder import open_run_folder, with_shards
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.documents import Document, check_allows_no_code, read_document
from deepthink_cli.io.records import place
from deepthink_cli.io.text import nearest
from deepthink_cli.model.files import kind_of
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.report.registry import FORMS, FigureOptions
from deepthink_cli.tasks.files import SUFFIXES, refusal

WITH_DEFAULTS = ("shots", "orders", "sampling")  # axes in which None stands for the task's own value
MAX_SEEDS = 1_000_000


def _installed(figure: Any) -> Any:
    """Refuses a form that is not installed, by its name."""
    kind = figure.get("kind") if isinstance(figure, dict) else None
    if isinstance(kind, str) and kind not in FORMS:
        raise ValueError(f"kind {kind!r} is not a form of figures that is installed; use {', '.join(FORMS)}")
    return figure


if TYPE_CHECKING:
    Figure = FigureOptions
else:
    _OPTIONS = tuple(form.options for form in FORMS.values())
    _CHOICE = [Field(discriminator="kind")] if len(_OPTIONS) > 1 else []
    Figure = Annotated[Union[_OPTIONS], *_CHOICE, BeforeValidator(_installed)]  # noqa: UP007


class Study(Experiment):
    """An experiment in a file.

    `exclude` holds combinations to leave out, `scales` fields that replace those of the study, and `figure` how it is
    drawn.
    """

    model_config = ConfigDict(strict=True)

    name: str = Field(min_length=1)
    title: str = ""
    source: str = ""
    note: str = ""
    tasks: tuple[Word, ...] = Field(min_length=1)
    exclude: tuple[dict[str, Any], ...] = ()
    scales: dict[str, dict[str, Any]] = Field(default_factory=dict)
    figure: Figure | None = None

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, values: Any) -> Any:
        """A single value of an axis is a list of one; the number of seeds counts them from 0."""
        if not isinstance(values, Mapping):
            return values
        return {name: _listed(name, value) for name, value in values.items()}

    @field_validator(*AXES, mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """An axis without values would cross to nothing."""
        if values == ():
            raise PydanticKnownError("too_short", {"field_type": "Tuple", "min_length": 1, "actual_length": 0})
        return values

    @field_validator("at", mode="before")
    @classmethod
    def _numbers(cls, at: Any) -> Any:
        numbers = at if isinstance(at, tuple) else (at,)
        is_listed = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
        return ",".join(map(str, numbers)) if numbers and is_listed else at


def _listed(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if name == "seeds" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SEEDS:
        return tuple(range(value))
    is_list = name in (*AXES, "exclude") and (value is not None or name in WITH_DEFAULTS)
    return (value,) if is_list else value


FOLDER = Path(__file__).parent / "studies"


STUDIES: Registry[Path] = Registry("studies", {}, instance_of(Path))  # folders of further studies


def packaged() -> dict[str, Path]:
    """The file of every study of the package and of its plugins, by its name, as in `paper/table1`."""
    found = {}
    for start, folder in (("", FOLDER), *((f"{name}/", folder) for name, folder in STUDIES.items())):
        for file in sorted(folder.rglob("*.yaml")):
            found[start + file.relative_to(folder).with_suffix("").as_posix()] = file
    return found


def study_path(name: str) -> Path:
    """The path of a study file, or of the packaged study of this name; raises InputError for an unknown one."""
    if name.endswith(SUFFIXES):
        if not Path(name).is_file():
            raise InputError(f"{name}: no such study file; deepthink study list shows those of the package")
        return Path(name)
    known = packaged()
    if name not in known:
        near = nearest(name, known)
        hint = "deepthink study list shows them; a file ends in .yaml" if near is None else f"did you mean {near}?"
        raise InputError(f"{name}: no such study; {hint}")
    return known[name]


SCALES = "scales"
_NOT_OF_A_SCALE = ("name", SCALES)

Where = Callable[..., str]
Options = Mapping[str, tuple[str, Any]]  # by field, the option as it was typed and its value


Fields = Mapping[str, tuple[Any, Where]]  # the value of each field as it is written, and where: in a file, or an option


@dataclass(frozen=True)
class OpenedStudy:
    """A valid study, with the place of each of its fields for messages; `name` has the place of the others."""

    path: Path
    study: Study
    fields: Fields

    def where(self, *keys: Any) -> str:
        """`study.yaml:7`, or the option: where a field of the study is written; the start of the file for none."""
        _, where = self.fields.get(keys[0] if keys else "", self.fields["name"])
        return where(*keys)

    def written(self, field: str) -> Any:
        """The value of a field as it is written, before validation; None for one that is omitted."""
        return self.fields[field][0] if field in self.fields else None

    def is_replaced(self, axis: str) -> bool:
        """Whether an axis has other values than those that the author of the exclusions saw."""
        seen = [self.fields[name][1] for name in ("name", "exclude") if name in self.fields]
        return axis in self.fields and self.fields[axis][1] not in seen


def open_study(name: str, scale: str | None = None, options: Options | None = None) -> OpenedStudy:
    """Read a study file or a packaged study.

    `options` are values of the command line. Raises InputError with `file:line` and the reason for every mistake, also
    in the scales that are not chosen.
    """
    path = study_path(name)
    document = read_document(path)
    if not isinstance(document.values, dict):
        raise InputError(f"{document.where()}: must be a mapping of a study's fields; see docs/experiments.md")
    check_allows_no_code(document.values, document.where)
    base = _fields(document, {"name": path.stem, **document.values}, path.parent)
    scales = _scales(document, path.parent)
    problems = Problems()
    written = problems.tried(_opened, path, base)
    problems.each(lambda fields: _opened(path, base | fields), scales.values())
    problems.raise_any()
    if scale is not None and scale not in scales:
        known = f"the study has {', '.join(scales)}" if scales else "the study has no scales"
        raise InputError.of("scale", scale, f"{document.where(SCALES)} does not name it; {known}")
    typed = {name: (value, lambda *_, words=words: words) for name, (words, value) in (options or {}).items()}
    return _opened(path, base | scales.get(scale or "", {}) | typed) if scale or typed else written


def _scales(document: Document, folder: Path) -> dict[str, dict[str, tuple[Any, Where]]]:
    """The scales of a study file by name; raises InputError for those that are not mappings of fields."""
    written = document.values.get(SCALES) or {}
    if not isinstance(written, dict):
        raise InputError(f"{document.where(SCALES)}: {SCALES}: must be a mapping, as in {{small: {{seeds: 1}}}}")
    problems, scales = Problems(), {}
    for name, fields in written.items():
        with problems.collected():
            where = document.where(SCALES, name)
            if not isinstance(fields, dict):
                raise InputError(f"{where}: {SCALES}.{name}: must be a mapping of the fields that it replaces")
            for field in _NOT_OF_A_SCALE:
                if field in fields:
                    raise InputError(
                        f"{document.where(SCALES, name, field)}: {field}: cannot be set in a scale; omit it"
                    )
            scales[str(name)] = _fields(document, fields, folder, SCALES, name)
    problems.raise_any()
    return scales


def _fields(
    document: Document, fields: Mapping[str, Any], folder: Path, *place: object
) -> dict[str, tuple[Any, Where]]:
    """The fields that a document has at a place."""
    where = partial(document.where, *place)
    return {name: (value, where) for name, value in _located(fields, folder).items()}


def _opened(path: Path, fields: Fields) -> OpenedStudy:
    try:
        return OpenedStudy(path, Study.model_validate({name: value for name, (value, _) in fields.items()}), fields)
    except ValidationError as error:
        draft = OpenedStudy(path, Study.model_construct(), fields)
        mistakes = error.errors()
        inner = {mistake["loc"][:-1] for mistake in mistakes}  # pydantic counts only valid values of a list
        known = [each for each in mistakes if each["type"] != "too_short" or each["loc"] not in inner]
        problems = Problems()
        for mistake in known:
            field = place(mistake)
            where = f"{draft.where(*mistake['loc'])}: {field}" if field else draft.where()
            names = ModelOptions.model_fields if len(mistake["loc"]) > 1 else Study.model_fields
            problems.add(f"{where}: {refusal(mistake, names, 'docs/experiments.md')}")
        raise InputError(*problems.found) from error


def _located(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields with their relative paths made relative to the current directory instead of to the file's folder."""
    located = dict(fields)
    for name, change in (("tasks", _task), ("models", _model), ("data_dir", _path), ("demos", _path)):
        if name in located:
            located[name] = _each(located[name], lambda value, change=change: change(value, folder))  # type: ignore[misc]
    if "exclude" in located:
        excluded = located["exclude"]
        located["exclude"] = _each(excluded, lambda each: _located(each, folder) if isinstance(each, dict) else each)
    return located


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    return [change(item) for item in value] if isinstance(value, list) else change(value)


def _task(value: Any, folder: Path) -> Any:
    return _path(value, folder) if isinstance(value, str) and value.endswith(SUFFIXES) else value


def _model(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {**value, "model": _model(value["model"], folder)} if "model" in value else value
    return _path(value, folder) if isinstance(value, str) and is_path(value) else value


def is_path(model: str) -> bool:
    """Whether a model is a file or directory, not the id of one: it begins with `.`, or ends as a model's file does."""
    return model.startswith(("./", "../", "/", "~")) or kind_of(model) is not None


def _path(value: Any, folder: Path) -> Any:
    return str(folder / Path(value).expanduser()) if isinstance(value, str) and value else value


ORIGIN = "study.json"


class Origin(BaseModel):
    """A study of the package by its name, or another one by the path of its file, and the scale, if one was run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    study: str
    scale: str | None = None

    @classmethod
    def of(cls, name: str, scale: str | None) -> Origin:
        """The origin for a study as it is named on the command line, whatever the current directory is later."""
        return cls(study=str(Path(name).absolute()) if name.endswith(SUFFIXES) else name, scale=scale)

    def write(self, folder: Path) -> None:
        """Write `study.json` into a folder unless it says so already; raises as `open_run_folder` does."""
        if _origin_in(folder) == self:
            return
        with open_run_folder(folder), writing(folder / ORIGIN, "output") as file:
            file.write(json.dumps(self.model_dump()) + "\n")


def origin_of(runs: Sequence[Path]) -> Origin | None:
    """The study that all these folders, or their shards, belong to; None if they name none, or several.

    Raises InputError for a `study.json` that this program did not write.
    """
    found = {_origin_in(folder) for folder in with_shards(runs)}
    return found.pop() if len(found) == 1 else None


def _origin_in(folder: Path) -> Origin | None:
    path = folder / ORIGIN
    try:
        return Origin.model_validate_json(path.read_bytes()) if path.is_file() else None
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: is not what deepthink study run writes; remove it") from error
