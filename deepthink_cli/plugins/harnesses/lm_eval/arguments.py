"""The arguments of the model, as in `--model_args pretrained=gpt2,iterations=5`, checked like the program's options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from deepthink_cli.errors import InputError, Problem, Problems
from deepthink_cli.meaning import refusals
from deepthink_cli.method import Method, MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import Options

if TYPE_CHECKING:
    from deepthink_cli.model.spec import ModelSpec

_ALIASES = {"pretrained": "model", "gguf_file": "gguf"}  # the names in the harness's own model
_METHOD = [name for name in MethodOptions.model_fields if name != "keep"]
_DEFAULT_DEVICE = "cuda:0"  # the harness's default, also on machines without such a device


class HarnessOptions(Options):
    """The options of finding contexts, and of the tokenisation of the harness's own model."""

    demonstrations: Literal["per-doc", "fixed"] = "per-doc"
    max_length: int | None = Field(None, ge=2)
    add_bos_token: bool | None = None
    enable_thinking: bool | None = None

    def tokenizer_of(self, spec: ModelSpec) -> Any:
        """The tokenizer of a model, as the harness's own model loads it: with `add_bos_token` if that is set."""
        if self.add_bos_token is None or spec.file is not None:
            return spec.tokenizer
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(spec.source, revision=spec.revision, add_bos_token=self.add_bos_token)


@dataclass(frozen=True)
class Arguments:
    """The checked arguments of the model."""

    model: ModelOptions
    method: Method
    harness: HarnessOptions

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        """Check all arguments; raises InputError with one message for each mistake."""
        renamed = {_ALIASES.get(name, name): value for name, value in values.items() if value is not None}
        problems = Problems()
        of_method = {name: renamed[name] for name in _METHOD if name in renamed}
        known = {*ModelOptions.model_fields, *_METHOD, *HarnessOptions.model_fields}
        for name in [name for name in renamed if name not in known]:
            names = sorted({*known, *_ALIASES} - {"model", "gguf"})
            close = difflib.get_close_matches(name, names, n=1)
            advice = f"did you mean {close[0]}?" if close else f"use {', '.join(names)}"
            problems.add(Problem(f"--model_args {name}: no such argument; {advice}"))
        model = problems.tried(_named, ModelOptions, renamed)
        method = problems.tried(_named, MethodOptions, of_method)
        harness = problems.tried(_named, HarnessOptions, renamed)
        problems.add(*map(_as_argument, refusals("harness", of_method, of_method)))
        problems.raise_any()
        return cls(model, method.method, harness)


def device_of(device: str | None) -> str:
    """The device of a run: the harness asks for its default device even on machines without it."""
    import torch

    if device is None or (device == _DEFAULT_DEVICE and not torch.cuda.is_available()):
        return "auto"
    return device


def _named(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The options; errors name the argument instead of an option of the command line."""
    given = {name: value for name, value in values.items() if name in kind.model_fields}
    for name, value in given.items():  # the harness may have read a text as a number
        if isinstance(value, int | float) and kind.model_fields[name].annotation in (str, str | None, Path | None):
            given[name] = str(value)
    try:
        return kind.checked(**given)
    except InputError as error:
        raise InputError(*map(_as_argument, error.problems)) from error


def _as_argument(problem: Problem) -> Problem:
    """A problem of an option, written as a problem of an argument: `--model_args eta=7: ...`."""
    shown = {value: key for key, value in _ALIASES.items()}.get(problem.field or "", problem.field)
    return Problem(problem.reason, place=f"--model_args {shown}={problem.value}")
