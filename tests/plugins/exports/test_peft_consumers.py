"""Programs that load adapters of PEFT use an exported memory as it is, once they add no BOS token to queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, shared
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.plugins.exports.peft import write_peft

peft = pytest.importorskip("peft", reason="peft is not installed")

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


def test_a_pipeline_continues_from_the_adapter(llama: Engine, memory: Memory, models: Models, adapter: Path) -> None:
    network: Any = AutoModelForCausalLM.from_pretrained(models("llama"), dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(network, str(adapter))
    generate: Any = pipeline("text-generation", model=model, tokenizer=llama.tokenizer)
    options = {"max_new_tokens": 6, "do_sample": False, "return_full_text": False}
    (text,) = generate(PROMPTS[0], add_special_tokens=False, **options)
    ids = llama.tokenizer(PROMPTS[0], add_special_tokens=False)["input_ids"]
    continued = network.generate(
        torch.tensor([[0] * memory.length + ids]),
        past_key_values=memory.as_cache(),
        attention_mask=torch.ones(1, memory.length + len(ids), dtype=torch.long),
        max_new_tokens=6,
        do_sample=False,
    )[0, memory.length + len(ids) :]
    assert text["generated_text"] == llama.tokenizer.decode(continued, skip_special_tokens=True)


def test_a_llama_tokenizer_adds_a_bos_to_the_query_until_it_is_turned_off() -> None:
    folder = shared("tokenizers/llama2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer(PROMPTS[0])["input_ids"][0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in tokenizer(PROMPTS[0], add_special_tokens=False)["input_ids"]
    silent = AutoTokenizer.from_pretrained(folder, add_bos_token=False)
    assert silent.bos_token_id not in silent(PROMPTS[0])["input_ids"]
