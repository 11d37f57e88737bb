"""The models that are measured, and the inputs of given lengths that they score.

Shapes with random weights need no download; the weights are large enough that scores depend on the memory, so that
a wrong mask or position changes them. The real model, and any folder with weights, is loaded as it is and scores real
text.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.initialization import no_init_weights

from deepthink_cli import load_model
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.opening import choose_engine
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.options import POCKET
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import ModelIdentity
from real_model import REAL, real_model

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "pythia-160m": (
        "gpt_neox",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "max_position_embeddings": 2048,
            "rotary_pct": 0.25,
        },
    ),
    "smollm-135m": (
        "llama",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": True,
        },
    ),
    "llama-3.2-1b": (
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 8192,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
    "llama-2-7b": ("llama", {"max_position_embeddings": 4096}),
}
ON_A_GPU = ("llama-3.2-1b", "llama-2-7b")  # a processor takes days
NAMES = (*(shape for shape in SHAPES if shape not in ON_A_GPU), REAL)
SEED = 0
CANDIDATES = 4
QUERY_TOKENS = (16, 48)
Words = int | Sequence[int]  # the upper bound of random token ids, or the ids of a text to take runs from


def weights_of(shape: str) -> str | None:
    """The name or folder that `load_model` takes for a shape with weights; None for other shapes."""
    if shape == POCKET or shape in SHAPES:
        return POCKET if shape == POCKET else None
    folder = real_model() if shape == REAL else Path(shape)
    return str(folder) if any(folder.glob("*.safetensors")) else None


def config_of(shape: str) -> PretrainedConfig:
    """The configuration of a named shape, or of a directory with a `config.json`."""
    if shape in SHAPES:
        family, fields = SHAPES[shape]
        named: PretrainedConfig = AutoConfig.for_model(family, **fields)
        return named
    folder = Path(weights_of(shape) or shape)
    if not (folder / "config.json").is_file():
        raise SystemExit(f"--shapes {shape}: neither one of {', '.join(NAMES)} nor a directory with a config.json")
    found: PretrainedConfig = AutoConfig.from_pretrained(folder)
    return found


def random_network(
    config: PretrainedConfig, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> PreTrainedModel:
    """A network with seeded random weights, in evaluation mode; allocates nothing beyond its weights."""
    with no_init_weights(), torch.device(device):
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    network.tie_weights()
    text: Any = config.get_text_config(decoder=True)
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=text.hidden_size**-0.5)
            else:
                parameter.fill_(float(name.endswith("weight")))
    network.requires_grad_(False)
    network.train(False)
    return network


def build_engine(shape: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> BatchedEngine:
    """The engine of a shape: with its weights and tokenizer, or with random weights and a stand-in tokenizer."""
    numbers = str(dtype).removeprefix("torch.")
    if source := weights_of(shape):
        engine = load_model(source, dtype=numbers, device=device)
    else:
        config = config_of(shape)
        network = random_network(config, dtype, device)
        identity = ModelIdentity(shape, None, type(network).__name__, "", "", "", numbers)
        engine = choose_engine(LanguageModel(network, stand_in_tokenizer(), identity, limits_of(config)))
    assert isinstance(engine, BatchedEngine)
    return engine


def stand_in_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of one word, for code that asks for one and never uses it."""
    words = Tokenizer(models.WordLevel({"<s>": 0}, unk_token="<s>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="<s>", pad_token="<s>")


def random_memory(engine: Engine, length: int) -> Memory:
    """A memory of `length` tokens with random numbers: no reading made it."""
    (one,) = engine.read([Reading((0,))])
    generator = torch.Generator().manual_seed(SEED)

    def drawn(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape[0], length, like.shape[2], generator=generator)

    return Memory(tuple(map(drawn, one.keys)), tuple(map(drawn, one.values)))


def memory_ids(words: Words, length: int) -> list[int]:
    """Ids of L demonstration tokens; a shorter memory has the first ids of a longer one."""
    return [*_run(random.Random(SEED), words, length)]


def workload(words: Words, inputs: int, candidate_tokens: int) -> list[TokenizedQuery]:
    """Inputs of drawn lengths: queries of 16 to 48 tokens with four distinct candidates of `candidate_tokens` each."""
    draw = random.Random(SEED + 1)
    queries = []
    for _ in range(inputs):
        prefix = _run(draw, words, draw.randint(*QUERY_TOKENS))
        answers: dict[tuple[int, ...], None] = {}  # a set that keeps its order
        while len(answers) < CANDIDATES:
            answers[_run(draw, words, candidate_tokens)] = None
        queries.append(TokenizedQuery(prefix, tuple(answers)))
    return queries


def _run(draw: random.Random, words: Words, length: int) -> tuple[int, ...]:
    """Random ids, or a run of a text's ids from a random place on; a text that ends is repeated."""
    if isinstance(words, int):
        return tuple(draw.randrange(words) for _ in range(length))
    start = draw.randrange(len(words))
    return tuple(islice(cycle(words), start, start + length))
