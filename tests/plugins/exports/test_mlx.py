"""A memory is a prompt cache of mlx-lm, which scores after it as we do; what mlx-lm computes otherwise is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, readings_of, shared
from helpers.families import write_model
from safetensors import safe_open
from transformers import AutoConfig

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    load_model,
    save_memory,
    score,
    tokenize_queries,
)
from deepthink_cli.errors import InputError
from deepthink_cli.export import EXPORTERS
from deepthink_cli.method import Positions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.exports.command import export_memory
from deepthink_cli.plugins.exports.mlx import check_config, check_model, unread_rotation, write_prompt_cache
from deepthink_cli.provenance import ModelIdentity

QUERIES = [Query("a quiet joy", ("positive", "negative", "positive and negative")), Query("so so", ("good", "bad"))]
DIGEST = "0" * 64
LLAMA = ModelIdentity("org/model", None, "LlamaForCausalLM", DIGEST, DIGEST, DIGEST, "float32")


def exported(engine: Engine, folder: Path, positions: Positions = "continued", **options: Any) -> Memory:
    """A memory of three readings, which is exported to `folder/cache.safetensors`."""
    reviews = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    method = Method(3, Gate(0.5), positions)
    memory = list(readings_of(engine, reviews, method))[-1]
    save_memory(memory, folder / "mem")
    output, model = folder / "cache.safetensors", ModelOptions.checked(**options)
    export_memory(EXPORTERS["mlx"], folder / "mem", output, model=model)
    return memory


def through_mlx(folder: Path, cache: Path, prefix: tuple[int, ...], answer: tuple[int, ...]) -> float:
    """The log-probability of an answer after a query, in nats, as mlx-lm computes it after a prompt cache."""
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed")
    utils = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    from mlx_lm.models.cache import load_prompt_cache

    model, _ = utils.load_model(folder)
    logits_SV = torch.tensor(model(mx.array([[*prefix, *answer]]), cache=load_prompt_cache(str(cache)))[0].tolist())
    log_probabilities = logits_SV[len(prefix) - 1 : -1].log_softmax(-1)
    return float(log_probabilities[range(len(answer)), list(answer)].sum())


@pytest.mark.parametrize("positions", ["continued", "restarted"])
def test_scores_through_mlx_are_ours(positions: Positions, llama: Engine, models: Models, tmp_path: Path) -> None:
    memory = exported(llama, tmp_path, positions)
    queries = tokenize_queries(llama.tokenizer, memory.provenance.demonstrations, QUERIES)
    for query, ours in zip(queries, score(llama, memory, queries), strict=True):
        theirs = [
            through_mlx(models("llama"), tmp_path / "cache.safetensors", query.prefix, answer)
            for answer in query.answers
        ]
        assert theirs == pytest.approx(ours.sums, abs=1e-3)


def test_the_file_is_the_one_that_mlx_lm_would_save(llama: Engine, tmp_path: Path) -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed")
    caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed")
    memory = exported(llama, tmp_path)
    saved = [caches.KVCache() for _ in memory.keys]
    for cache, keys, values in zip(saved, memory.keys, memory.values, strict=True):
        cache.state = (mx.array(keys[None].tolist()), mx.array(values[None].tolist()), memory.length)
    metadata = {"model": llama.identity.id, "tokenizer_config": '{"add_bos_token":false}'}
    caches.save_prompt_cache(str(tmp_path / "theirs.safetensors"), saved, metadata)
    files = [tmp_path / "cache.safetensors", tmp_path / "theirs.safetensors"]
    ours, theirs = (mx.load(str(file), return_metadata=True) for file in files)
    assert ours[1] == theirs[1]
    assert ours[0].keys() == theirs[0].keys()
    for name, array in theirs[0].items():
        assert (ours[0][name].dtype, ours[0][name].shape) == (array.dtype, array.shape)
        assert mx.array_equal(ours[0][name], array)


def test_the_tokenizer_that_the_file_describes_writes_no_bos(llama: Engine, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("mlx_lm.tokenizer_utils", reason="mlx-lm is not installed")
    exported(llama, tmp_path)
    with safe_open(tmp_path / "cache.safetensors", "pt") as file:
        config = json.loads(file.metadata()["0.tokenizer_config"])
    plain, described = (tokenizers.load(shared("tokenizers/llama2"), each) for each in ({}, config))
    assert plain.encode("so so") == [plain.bos_token_id, *described.encode("so so")]


def test_a_layer_is_keys_values_and_the_number_of_tokens(llama: Engine, tmp_path: Path) -> None:
    memory = exported(llama, tmp_path)
    with safe_open(tmp_path / "cache.safetensors", "pt") as file:
        for layer, (keys, values) in enumerate(zip(memory.keys, memory.values, strict=True)):
            assert torch.equal(file.get_tensor(f"{layer}.0"), keys[None])
            assert torch.equal(file.get_tensor(f"{layer}.1"), values[None])
            assert file.get_tensor(f"{layer}.2").item() == memory.length
        assert len(file.keys()) == 3 * len(memory.keys)
        assert file.metadata()["0.model"] == llama.identity.id


def test_keys_and_values_are_written_in_the_dtype_that_is_asked_for(llama: Engine, tmp_path: Path) -> None:
    memory = exported(llama, tmp_path, dtype="bfloat16")
    with safe_open(tmp_path / "cache.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("0.0"), memory.keys[0][None].to(torch.bfloat16))


def test_values_that_the_dtype_cannot_hold_are_refused(tmp_path: Path) -> None:
    large = Memory((torch.full((1, 2, 4), 1e6),), (torch.ones(1, 2, 4),))
    with pytest.raises(InputError, match="dtype float16: the memory exceeds it; use float32"):
        write_prompt_cache(large, torch.float16, "org/model", tmp_path / "cache.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "GPT2LMHeadModel"}, "mem: made by a model of GPT2LMHeadModel, whose cache in mlx-lm"),
        ({"id": "pocket"}, "mem: made by pocket, which mlx-lm does not load"),
        ({"gguf": "model.gguf"}, r"mem: made by the GGUF file model\.gguf, which mlx-lm does not load"),
        ({"quantize": "4bit"}, "mem: made in 4bit, in which mlx-lm does not load models"),
    ],
)
def test_a_model_that_mlx_lm_does_not_run_as_we_do_is_refused(changes: dict[str, Any], message: str) -> None:
    check_model(LLAMA, "mem")
    with pytest.raises(InputError, match=message):
        check_model(replace(LLAMA, **changes), "mem")


def test_attention_windows_are_refused_by_name(tmp_path: Path) -> None:
    engine = load_model(str(write_model(tmp_path / "model", "mistral")))
    with pytest.raises(InputError, match="model has attention windows of 256 tokens, which mlx-lm ignores"):
        exported(engine, tmp_path)
    assert not (tmp_path / "cache.safetensors").exists()


def test_rotary_factors_that_depend_on_the_length_are_refused() -> None:
    factors = [1.0] * 4
    rotation = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "rope_theta": 1e4}
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "original_max_position_embeddings": 64}
    config = AutoConfig.for_model("phi3", **sizes, max_position_embeddings=512, rope_parameters=rotation)
    with pytest.raises(InputError, match="mem: model has LongRoPE"):
        check_config(config, "mem: model")


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({"rope_theta": 1e5}, ""),
        ({"rope_theta": 1e5, "rope_parameters": {"rope_theta": 1e5}}, ""),
        ({"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}}, '"rope_theta": 100000.0'),
        ({"rope_theta": 1e5, "rope_parameters": {"partial_rotary_factor": 0.5}}, '"partial_rotary_factor": 0.5'),
        (
            {"rope_parameters": {"rope_theta": 1e5, "rope_type": "linear", "factor": 4}},
            '"rope_theta": 100000.0, "rope_scaling": {"rope_theta": 100000.0, "rope_type": "linear", "factor": 4}',
        ),
    ],
)
def test_what_mlx_lm_does_not_read_of_a_configuration_is_spelled_out(stored: dict[str, Any], missing: str) -> None:
    assert unread_rotation(stored) == missing
