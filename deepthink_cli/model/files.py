"""Kinds of files that hold a whole model, by the ending of their names; safetensors and pickles lie in folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from deepthink_cli.errors import Problem
from deepthink_cli.registry import Registry, instance_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


class FileHeader(ABC):
    """What a file says of its model, before the weights are read."""

    @abstractmethod
    def counts(self) -> Mapping[str, Any]:
        """Numbers of layers, by their names in a configuration."""

    @abstractmethod
    def warning(self, name: str, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> str | None:
        """A warning of the parts of the file `name` that transformers ignores; None without such parts."""


class ModelFile(ABC):
    """A kind of file that holds a whole model with its tokenizer, as transformers reads it.

    `form` names such a file in messages, and `converted` what loading does to its weights.
    """

    form: ClassVar[str]
    converted: ClassVar[str]

    @abstractmethod
    def check(self, name: str, named: Problem, quantize: str | None) -> None:
        """Raise InputError for the name of a file, `named` in messages, that cannot be loaded, or not quantized so."""

    @abstractmethod
    def reading(self, weights: bool = False) -> AbstractContextManager[None]:
        """A block in which files are read; with `weights`, the last one of a file."""

    @abstractmethod
    def header(self, file: Path, named: Problem) -> FileHeader:
        """The header of a file; raises InputError, which begins with `named`, for a damaged file or another kind."""

    @abstractmethod
    def arguments(self, file: Path, config: PretrainedConfig | None = None) -> dict[str, Any]:
        """Arguments of `from_pretrained` for a configuration and a tokenizer; with a configuration, for a network."""


MODEL_FILES: Registry[ModelFile] = Registry(  # by the ending of their names
    "weights",
    {},
    instance_of(ModelFile),  # type: ignore[type-abstract]
)


def kind_of(name: str | None) -> ModelFile | None:
    """The kind of a file, by its name; None for a folder and for no name."""
    return MODEL_FILES.get(PurePath(name or "").suffix.removeprefix("."))
