"""A memory exported to PEFT scores and generates as it does here, on every family whose layers have equal shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Loaded, Models, readings_of
from helpers.chats import chat_tokenizer
from helpers.families import FAMILIES, OF_EACH_KIND, WINDOWED, write_model
from helpers.soak import with_soak
from transformers import AutoModelForCausalLM

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.exports.peft import write_peft

peft = pytest.importorskip("peft", reason="peft is not installed")

UNEQUAL = {"deepseek_v3", "gemma4_text"}
WINDOWS = ["gemma2", "gemma3n_text", "gpt_neo", "gpt_oss", "llama4_text", "mistral"]  # others: benchmarks
QUERIES = [Query("a quiet joy", ("positive", "negative", "positive and negative")), Query("so so", ("good", "bad"))]


def memories(engine: Engine, method: Method, **changes: Any) -> list[Memory]:
    """The memories of four reviews, twice, so that they are longer than an attention window."""
    examples = [Example(text, label) for text, label in REVIEWS * 2]
    demonstrations = replace(DemonstrationSet.of(examples, TEMPLATE), **changes)
    return list(readings_of(engine, demonstrations, method))


def adapted(folder: Path, memory: Memory, into: Path) -> Any:
    """The model of `folder` with the memory as an adapter of PEFT."""
    write_peft(memory, into)
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return peft.PeftModel.from_pretrained(network, str(into)).eval()


@torch.inference_mode()
def through_peft(model: Any, query: TokenizedQuery) -> list[float]:
    """The log-probability of each candidate, in nats."""
    sums = []
    for answer in query.answers:
        ids_1S = torch.tensor([[*query.prefix, *answer]])
        logits_SV = model(input_ids=ids_1S, attention_mask=torch.ones_like(ids_1S)).logits[0]
        log_probabilities = logits_SV[len(query.prefix) - 1 : -1].log_softmax(-1)
        sums.append(float(log_probabilities[range(len(answer)), list(answer)].sum()))
    return sums


def check_scores(engine: Engine, folder: Path, memory: Memory, into: Path) -> None:
    """Check that PEFT scores as the engine does."""
    queries = tokenize_queries(engine.tokenizer, memory.provenance.demonstrations, QUERIES)
    model = adapted(folder, memory, into)
    for query, ours in zip(queries, score(engine, memory, queries), strict=True):
        assert through_peft(model, query) == pytest.approx(ours.sums, abs=1e-4)


@pytest.mark.parametrize("family", with_soak(sorted(FAMILIES.keys() - UNEQUAL), set(OF_EACH_KIND) - UNEQUAL))
def test_scores_through_peft_are_ours(family: str, loaded: Loaded, models: Models, tmp_path: Path) -> None:
    first, *_, last = memories(loaded(family), Method(3, Gate(0.5)))
    for memory in (first, last):
        check_scores(loaded(family), models(family), memory, tmp_path / str(memory.iteration))


@pytest.mark.parametrize("family", with_soak(WINDOWS, ("gemma3n_text", "llama4_text", "mistral")))
def test_scores_through_attention_windows_are_ours(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", family, **WINDOWED[family])
    engine = load_model(str(folder), engine="padded")
    check_scores(engine, folder, memories(engine, Method(2, Gate(0.5)))[-1], tmp_path / "adapter")


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gemma3_text"])
def test_restarted_positions_are_exported_as_well(family: str, loaded: Loaded, models: Models, tmp_path: Path) -> None:
    memory = memories(loaded(family), Method(2, Gate(0.5), "restarted"))[-1]
    check_scores(loaded(family), models(family), memory, tmp_path / "adapter")


@pytest.mark.parametrize("family", sorted(UNEQUAL))
def test_layers_of_several_shapes_are_refused_by_name(family: str, tmp_path: Path) -> None:
    engine = load_model(str(write_model(tmp_path / "model", family)))
    with pytest.raises(InputError, match=rf"mem: {engine.identity.architecture} has keys and values of several shapes"):
        write_peft(memories(engine, Method(1))[0], tmp_path / "adapter", "mem")
    assert not (tmp_path / "adapter").exists()


def test_a_chat_memory_is_a_prefix_of_the_conversation(models: Models, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "llama", vocab_size=400, max_position_embeddings=2048)
    chat_tokenizer("smollm2").save_pretrained(folder)
    engine = load_model(str(folder))
    memory = memories(engine, Method(2, Gate(0.5)), chat=Chat())[-1]
    check_scores(engine, folder, memory, tmp_path / "adapter")


def test_the_adapter_names_its_model_and_is_the_same_every_time(llama: Engine, tmp_path: Path) -> None:
    memory = memories(llama, Method(1))[0]
    for name in ("a", "b"):
        write_peft(memory, tmp_path / name)
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("a", "b")]
    assert files[0] == files[1]
    config = json.loads(files[0]["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["num_virtual_tokens"]) == (llama.identity.id, memory.length)
    assert set(files[0]) == {"adapter_config.json", "adapter_model.safetensors"}


def test_an_empty_folder_is_filled_and_files_are_never_replaced(llama: Engine, tmp_path: Path) -> None:
    first, second = memories(llama, Method(2, Gate(0.5)))
    (tmp_path / "adapter").mkdir()
    write_peft(first, tmp_path / "adapter")
    before = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"holds files, as adapter_config\.json; name a new folder"):
        write_peft(second, tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]


PROMPTS = ["Review: a quiet joy\nSentiment:", "Review: so so\nSentiment:"]
ANSWERS = (" positive", " negative")


@pytest.fixture(scope="module")
def memory(llama: Engine) -> Memory:
    """A memory of two readings of four reviews."""
    reviews = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    return list(think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(2, Gate(0.5))))[-1]


@pytest.fixture(scope="module")
def adapter(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the exported memory."""
    folder = tmp_path_factory.mktemp("exported") / "adapter"
    write_peft(memory, folder)
    return folder


def ours(engine: Engine, memory: Memory) -> list[float]:
    """The log-probability of every answer after every prompt."""
    queries = [Query(text, ("positive", "negative")) for text in ("a quiet joy", "so so")]
    tokenized = tokenize_queries(engine.tokenizer, memory.provenance.demonstrations, queries)
    return [value for scores in score(engine, memory, tokenized) for value in scores.sums]


def harness(folder: Path, adapter: Path, **arguments: Any) -> list[float]:
    """What the released lm-evaluation-harness computes for the same prompts and answers."""
    pytest.importorskip("lm_eval", reason="lm_eval is not installed")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(str(folder), peft=str(adapter), dtype="float32", device="cpu", batch_size=2, **arguments)
    pairs = [(prompt, answer) for prompt in PROMPTS for answer in ANSWERS]
    requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    return [float(value) for value, _ in model.loglikelihood(requests, disable_tqdm=True)]


def test_lm_evaluation_harness_scores_as_we_do_without_a_bos(
    llama: Engine, memory: Memory, models: Models, adapter: Path
) -> None:
    expected = ours(llama, memory)
    assert harness(models("llama"), adapter, add_bos_token=False) == pytest.approx(expected, abs=1e-4)
    assert harness(models("llama"), adapter) != pytest.approx(expected, abs=1e-2)
