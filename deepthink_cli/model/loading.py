"""Load the weights of a model: safetensors, a safe pickle or GGUF."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.hub import load_failure, quiet_libraries
from deepthink_cli.model.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The parts of a header are its numbers, texts and lengths; the package needs 700 bytes for each part. Files of small
# models with large vocabularies have some 200 bytes for each part.
_PARTS, _BYTES_OF_PART = 2**19, 64


@contextmanager
def read_once() -> Iterator[None]:
    """Until the block ends, the `gguf` package builds each table of names once, and parses each file once.

    transformers parses the file for the configuration, the tokenizer and the weights, and builds the table for every
    module of the network; each takes seconds. The file that was parsed last is kept for the block in which the weights
    are read. A header of more values than the file holds, or than any model has, raises ValueError. Changes the package
    for the whole process: hold the lock of `quiet_libraries`.
    """
    import gguf

    kept: dict[str, Any] = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    if not isinstance(kept["GGUFReader"], type):  # within another such block
        yield
        return
    changed: dict[str, Any] = {"GGUFReader": partial(_parsed, _bounded(kept["GGUFReader"]))}
    changed["get_tensor_name_map"] = cache(kept["get_tensor_name_map"])
    try:
        for name, function in changed.items():
            setattr(gguf, name, function)
        yield
    finally:
        for name, function in kept.items():
            setattr(gguf, name, function)


_last: dict[str, Any] = {}  # the file that was parsed last, and its reader


def _parsed(reader: Any, path: str) -> Any:
    """The reader of a file; the last reader if the file is the same."""
    stat = os.stat(path)
    file = (os.path.realpath(path), stat.st_size, stat.st_mtime_ns)
    if _last.get("file") != file:
        _last.clear()
        _last.update(reader=reader(path), file=file)
    return _last["reader"]


def _bounded(reader: Any) -> Any:
    """The package's class of readers, limited to the bytes of the file and to the parts of a model's header."""
    import numpy

    class BoundedReader(reader):  # type: ignore[misc]
        parts = 0

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = mapped.view(numpy.ndarray)  # a slice of a memory map takes three times as long

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
            self.parts += 1
            if int(offset) + int(count) * numpy.dtype(dtype).itemsize > len(self.data):
                raise ValueError("the header counts more values than the file holds")
            if self.parts > max(_PARTS, len(self.data) // _BYTES_OF_PART):
                raise ValueError("the header has more parts than that of any model of its size")
            return super()._get(offset, dtype, count, *order, **named)

    return BoundedReader


def load_network(spec: ModelSpec) -> PreTrainedModel:
    """Load a model's weights, in evaluation mode, onto the device of its options.

    Raises DeepThinkError if the weights are incomplete or damaged.
    """
    from transformers import AutoModelForCausalLM

    options, arguments = spec.options, _arguments(spec)
    network: PreTrainedModel
    report: dict[str, Any]
    try:
        once = read_once() if spec.gguf else nullcontext()
        with catch_warnings(), quiet_libraries(options.offline), once:
            simplefilter("ignore")  # the format of a pickle is irrelevant to users
            network, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
                spec.source,
                revision=spec.revision,
                dtype=spec.dtype,
                local_files_only=options.offline,
                trust_remote_code=options.trust_remote_code,
                weights_only=True,  # for pickled weights, torch's safe loader
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below by name; transformers would refer to its log
                **arguments,
            )
    except Exception as error:  # the libraries raise many types, and the reason is in their message
        raise load_failure(spec.id, error) from error
    finally:
        _last.clear()
    hint = "get the whole checkpoint" if spec.gguf is None else "use the model in the format of transformers"
    if report["mismatched_keys"]:
        name, stored, needed = min(report["mismatched_keys"])
        raise DeepThinkError.of(
            "model",
            spec.id,
            f"its weights cannot be loaded: {name} has the shape {list(stored)}, the configuration says "
            f"{list(needed)}; {hint}",
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise DeepThinkError.of("model", spec.id, f"{len(missing)} weights are missing, such as {missing[0]}; {hint}")
    if "device_map" not in arguments:
        network = network.to(spec.device)  # type: ignore[arg-type]
    network.requires_grad_(False)
    network.train(False)
    return network


def _arguments(spec: ModelSpec) -> dict[str, Any]:
    """Arguments of `from_pretrained` for the file's format, devices and quantization."""
    from transformers import BitsAndBytesConfig, GgufConfig

    options, arguments = spec.options, dict[str, Any]()
    if spec.gguf is not None:
        # The whole path: transformers looks for a name in the working directory first.
        arguments["gguf_file"] = str(Path(spec.source) / spec.gguf)
        arguments["config"] = spec.config  # otherwise the file is read once more, which takes seconds
        arguments["quantization_config"] = GgufConfig(dequantize=True)  # otherwise kernels of the hub are tried
    if options.device_map is not None:
        arguments["device_map"] = options.device_map
    elif options.quantize is not None:
        arguments["device_map"] = {"": spec.device}
    if options.quantize is not None:
        arguments["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_8bit=options.quantize == "8bit",
            load_in_4bit=options.quantize == "4bit",
            bnb_4bit_compute_dtype=spec.dtype,
        )
    return arguments
