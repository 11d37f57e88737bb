"""The header of a GGUF file: what it says of the model, files that are refused, and what transformers ignores of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.model.files import FileHeader

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

# Names for texts split as GPT-2 does, which transformers assumes for every unknown name.
_GPT2_SPLITS = {"gpt-2", "jais", "mpt", "olmo", "phi-2"}
_SHOWN = 3  # tensors that a message names


@dataclass(frozen=True)
class GgufHeader(FileHeader):
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


def refuse_other_kinds(header: GgufHeader, named: Problem) -> None:
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


def check_types(header: GgufHeader, named: Problem) -> None:
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
