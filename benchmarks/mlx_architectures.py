"""Score the architectures of `export --to mlx` through mlx-lm after a prompt cache, and compare with our scores.

    python benchmarks/mlx_architectures.py [CLASS ...]

Needs mlx-lm and MLX (on Linux `pip install mlx mlx-cpu mlx-lm`). Each architecture is small and random, without
attention windows; memories of one and of three readings, with both kinds of positions. Prints a line for each, and
exits with 1 if one differs by more than 1e-3 nats or does not load.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES
from transformers.utils import logging

from deepthink_cli import Engine, Gate, Method, load_model, score, think, tokenize_demonstrations, tokenize_queries
from deepthink_cli.method import Positions
from deepthink_cli.plugins.exports.mlx import ARCHITECTURES, unread_rotation, write_prompt_cache
from small_models import QUERIES, random_network, reviews, small_config, tokenizer_of_reviews

TOLERANCE = 1e-3  # of scores in nats, in float32


def main(words: Sequence[str] | None = None) -> int:
    """Compare the chosen architectures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="as in LlamaForCausalLM; all if none is given")
    types = {name: model_type for model_type, name in CLASSES.items() if model_type in CONFIG_MAPPING}
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    wrong = 0
    for architecture in parser.parse_args(words).classes or ARCHITECTURES:
        try:
            most = largest_difference(types[architecture])
        except Exception as error:
            print(f"{architecture}: failed: {type(error).__name__}: {' '.join(str(error).split())}"[:200], flush=True)
            wrong += 1
        else:
            print(f"{architecture}: within {most:.1e}", flush=True)
            wrong += most > TOLERANCE
    return int(bool(wrong))


def largest_difference(model_type: str) -> float:
    """The largest difference of a candidate's log-probability through mlx-lm from ours, in nats."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        engine = small_engine(folder, model_type)
        return max(difference(engine, folder, *case) for case in product((1, 3), get_args(Positions)))


def small_engine(folder: Path, model_type: str) -> Engine:
    """A small random model without windows, saved with the fields that mlx-lm reads, as most models on the hub are."""
    tokenizer = tokenizer_of_reviews()
    config = small_config(model_type, len(tokenizer))
    for field, value in (("sliding_window", None), ("use_sliding_window", False)):
        if hasattr(config, field):
            setattr(config, field, value)
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * len(config.layer_types)
    config.architectures = [CLASSES[model_type]]
    random_network(config).save_pretrained(folder)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    stored = json.loads((folder / "config.json").read_text())
    stored |= json.loads(f"{{{unread_rotation(stored)}}}")
    if "num_local_experts" in stored:
        stored = {"num_experts": stored["num_local_experts"], **stored}
    stored = {"head_dim": stored["hidden_size"] // stored["num_attention_heads"], **stored}
    (folder / "config.json").write_text(json.dumps(stored))
    return load_model(str(folder))


def difference(engine: Engine, folder: Path, iterations: int, positions: Positions) -> float:
    """The largest difference of one memory's scores."""
    import mlx.core as mx
    from mlx_lm.models.cache import load_prompt_cache
    from mlx_lm.utils import load_model as load_in_mlx

    demonstrations = tokenize_demonstrations(engine.tokenizer, reviews(4))
    *_, memory = think(engine, demonstrations, Method(iterations, Gate(0.5), positions))
    cache = folder / "cache.safetensors"
    write_prompt_cache(memory, torch.float32, str(folder), cache)
    model: Any = load_in_mlx(folder)[0]
    queries = tokenize_queries(engine.tokenizer, demonstrations.template, QUERIES)
    differences = []
    for query, ours in zip(queries, score(engine, memory, queries), strict=True):
        for answer, mine in zip(query.answers, ours.sums, strict=True):
            ids = mx.array([[*query.prefix, *answer]])
            logits_SV = torch.tensor(model(ids, cache=load_prompt_cache(str(cache)))[0].tolist())
            log_probabilities_AV = logits_SV[len(query.prefix) - 1 : -1].log_softmax(-1)
            differences.append(abs(mine - float(log_probabilities_AV[range(len(answer)), list(answer)].sum())))
    return max(differences)


if __name__ == "__main__":
    sys.exit(main())
