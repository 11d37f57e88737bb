"""GGUF files as a kind of model file: names, headers, and one parse of a file for all that transformers reads of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import check_installed
from deepthink_cli.model.files import ModelFile

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
# The parts of a header are its numbers, texts and lengths; the package needs 700 bytes for each part. Files of small
# models with large vocabularies have some 200 bytes for each part.
_PARTS, _BYTES_OF_PART = 2**19, 64


class Gguf(ModelFile):
    """A whole model in the format of llama.cpp, whose weights transformers dequantizes."""

    source = "https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"
    form = "GGUF file"
    converted = "dequantized"

    def check(self, name: str, named: Problem, quantize: str | None) -> None:
        """Raise InputError for a part of a file, for quantization, and without the packages of the extra `gguf`."""
        if part := _PART.search(name):
            reason = (
                f"part {int(part[1])} of {int(part[2])} of a split GGUF file; join the parts with llama-gguf-split "
            )
            raise InputError(named.because(f"{reason}--merge, and name the result"))
        if quantize is not None:
            reason = f"the weights of a GGUF file are dequantized; omit {option('quantize')}"
            raise InputError.of("quantize", quantize, reason)
        check_installed(named, "gguf", "gguf", "accelerate")

    @contextmanager
    def reading(self, weights: bool = False) -> Iterator[None]:
        """Until the block ends, a file is parsed once (`read_once`), and transformers shows no progress of its own."""
        library: Any = sys.modules.get("transformers.modeling_gguf_pytorch_utils")
        shown = library and library.tqdm
        try:
            if library:
                library.tqdm = partial(shown, disable=True)  # which no setting hides
            with read_once():
                yield
        finally:
            if library:
                library.tqdm = shown
            if weights:
                _last.clear()

    def header(self, file: Path, named: Problem) -> Any:
        """The header of the file; raises InputError as `read_header`."""
        return read_header(file, named)

    def arguments(self, file: Path, config: PretrainedConfig | None = None) -> dict[str, Any]:
        """The whole path: transformers looks for a name in the working directory first."""
        if config is None:
            return {"gguf_file": str(file)}
        from transformers import GgufConfig

        # Without a configuration, the file is read once more, which takes seconds; quantized, kernels of the hub are
        # tried.
        return {"gguf_file": str(file), "config": config, "quantization_config": GgufConfig(dequantize=True)}


GGUF = Gguf()


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


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key, and the types of tensors by name; an array of texts is represented by its length."""

    metadata: dict[str, Any]
    tensors: dict[str, Any]

    @property
    def architecture(self) -> str:
        """The name of the architecture, with which the keys of its metadata begin."""
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str) -> Any:
        """The value of a key of the architecture, such as `attention.head_count`; None without the key."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def counts(self) -> Mapping[str, Any]:
        """The number of layers."""
        return {"block_count": self.value("block_count")}

    def warning(self, name: str, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> str | None:
        """A warning of settings and tensors of the file `name` that transformers does not apply; None without any."""
        text = config.get_text_config(decoder=True)
        ignored = [*_settings(self, text), *_tokenizer(self, tokenizer), *_tensors(self, config)]
        if not ignored:
            return None
        said = f"transformers ignores {'; '.join(ignored)}: scores may differ from the published model's"
        return f"{option('model')} {name}: {said}"


def read_header(file: Path, named: Problem) -> GgufHeader:
    """Read the header of a GGUF file, and check that every tensor lies within the file and can be dequantized.

    Raises InputError, which begins with `named`, for another file or a damaged one, and for a file that is not a whole
    causal language model with its tokenizer.
    """
    import gguf

    try:
        with open(file, "rb") as stream:
            if stream.read(4) != b"GGUF":
                raise InputError(named.because("not a GGUF file; download it again, or name another file"))
        with read_once():
            reader = gguf.GGUFReader(str(file))
        metadata = {key: _value(field) for key, field in reader.fields.items()}
    except OSError as error:
        raise InputError(named.because(f"cannot be read: {error.strerror or error}; give a readable file")) from error
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:
        raise InputError(named.because("truncated or damaged; download it again")) from error
    header = GgufHeader(metadata, {tensor.name: tensor.tensor_type for tensor in reader.tensors})
    _refuse_other_kinds(header, named)
    _check_types(header, named)
    return header


def _value(field: Any) -> Any:
    """A value of the metadata; for an array of texts, its length."""
    from gguf import GGUFValueType

    texts = field.types[0] == GGUFValueType.ARRAY and field.types[-1] == GGUFValueType.STRING
    return len(field.data) if texts else field.contents()


def _check_types(header: GgufHeader, named: Problem) -> None:
    """Raise InputError unless the `gguf` package can dequantize every tensor's type."""
    import numpy
    from gguf import GGML_QUANT_SIZES, dequantize

    for kind in sorted(set(header.tensors.values())):
        block = numpy.zeros((1, GGML_QUANT_SIZES[kind][1]), dtype=numpy.uint8)
        try:
            dequantize(block, kind)
        except NotImplementedError as error:
            raise InputError(
                named.because(
                    f"has tensors of type {kind.name}, which the gguf package cannot dequantize; upgrade gguf, or "
                    "use a file of another type"
                )
            ) from error


# Names for texts split as GPT-2 does, which transformers assumes for every unknown name.
_GPT2_SPLITS = {"gpt-2", "jais", "mpt", "olmo", "phi-2"}
_SHOWN = 3  # tensors that a message names


def _refuse_other_kinds(header: GgufHeader, named: Problem) -> None:
    """Raise InputError for a file that is not a whole causal language model with its tokenizer."""
    metadata, kind = header.metadata, header.metadata.get("general.type", "model")
    if kind != "model":
        raise InputError(named.because(f"a GGUF file of type {kind}, not a model; name the model's file"))
    if not header.architecture:
        raise InputError(named.because("names no architecture; use a file that a converter wrote"))
    if header.value("pooling_type") or header.value("attention.causal") is False:
        raise InputError(
            named.because(
                f"an embedding model ({header.architecture}), not a causal language model; choose one that is"
            )
        )
    if not metadata.get("tokenizer.ggml.tokens"):
        raise InputError(named.because("no tokenizer in this GGUF file; use a file that contains its tokenizer"))


def _settings(header: GgufHeader, text: Any) -> Iterator[str]:
    """The attention window, and the scaling of rotary positions."""
    window, used = header.value("attention.sliding_window"), getattr(text, "sliding_window", None)
    slides = "sliding_attention" in (getattr(text, "layer_types", None) or ["sliding_attention"])
    if isinstance(window, int) and window and not (slides and window == used):
        yield f"attention.sliding_window {window} ({used if slides and used else 'no window'} is used)"
    rotary = getattr(text, "rope_parameters", None) or {}
    full, kind = rotary.get("full_attention", rotary), header.value("rope.scaling.type")
    factor = header.value("rope.scale_linear") or header.value("rope.scaling.factor")
    if kind not in (None, "none", full.get("rope_type")) or (factor or 1) not in (1, full.get("factor")):
        yield f"rope.scaling {kind}" + (f" with factor {factor:g}" if factor else "")


def _tokenizer(header: GgufHeader, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    stated = {key.removeprefix("tokenizer.ggml."): value for key, value in header.metadata.items()}
    kind, split = stated.get("model"), stated.get("pre")
    if kind == "gpt2" and split not in {None, *_GPT2_SPLITS, *GGUF_PRE_TOKENIZER_SPLITS}:
        yield f"tokenizer.ggml.pre {split} (texts are split as for GPT-2)"
    ids = tokenizer("a").input_ids
    begins = bool(ids) and ids[0] == tokenizer.bos_token_id
    if kind != "gemma4" and stated.get("add_bos_token", begins) != begins:
        yield f"tokenizer.ggml.add_bos_token {stated['add_bos_token']}"
    spaced = str(tokenizer.convert_ids_to_tokens(tokenizer("a", add_special_tokens=False).input_ids[:1])).count("▁") > 0
    if kind == "llama" and stated.get("add_space_prefix", spaced) != spaced:
        yield f"tokenizer.ggml.add_space_prefix {stated['add_space_prefix']}"


def _tensors(header: GgufHeader, config: PretrainedConfig) -> Iterator[str]:
    """Tensors of the file that are not loaded into any parameter of the network."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    kind: Any = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)
    known = {"output.weight", *get_gguf_hf_weights_map(network, kind(config=config.to_dict()))}
    unknown = [name for name in header.tensors if not known & {name, name.removesuffix(".weight")}]
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        yield f"tensors {', '.join(unknown[:_SHOWN])}{more}"
