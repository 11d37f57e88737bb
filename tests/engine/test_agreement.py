"""A query after a memory scores as in one plain pass over both, or the model is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import Loaded, Models
from helpers.families import EVERY_FAMILY, FAMILIES, random_network

from deepthink_cli import DemonstrationSet, Gate, Method, load_model, think, tokenize_demonstrations
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.probe import check_plain_pass
from deepthink_cli.errors import InputError

TEXT, QUERY = (5, 6, 7, 8, 9, 3, 4), (5, 6, 7, 60)
WIDE: dict[str, Any] = {**FAMILIES["gpt_neox"], "vocab_size": 320, "embedding_size": 32, "pad_token_id": 1}


def made(llama: BatchedEngine, family: str, dtype: torch.dtype, **fields: Any) -> LanguageModel:
    """A random model of a family, without an engine."""
    network = random_network(family, **{**WIDE, **fields}).to(dtype)  # type: ignore[arg-type]
    return replace(llama.model, network=network, identity=replace(llama.identity, architecture=type(network).__name__))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_an_encoder_that_sees_what_follows_is_refused_by_name(
    family: str, dtype: torch.dtype, llama: BatchedEngine
) -> None:
    model = made(llama, family, dtype)
    with pytest.raises(InputError, match=f"{model.identity.architecture} scores a query after a memory differently"):
        check_plain_pass(model, TEXT, QUERY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_positions_that_do_not_start_at_zero_are_refused_by_name(dtype: torch.dtype, llama: BatchedEngine) -> None:
    with pytest.raises(InputError, match="RobertaForCausalLM scores a query after a memory differently"):
        check_plain_pass(made(llama, "roberta", dtype, is_decoder=True), TEXT, QUERY)


def test_a_family_that_shifts_its_positions_is_refused(models: Models) -> None:
    model = load_model(str(models("gpt2"))).model
    check_plain_pass(model, TEXT, QUERY)

    def shifted(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        own = torch.arange(kwargs["input_ids"].shape[1])[None] + 2
        return args, {"position_ids": own, **{name: given for name, given in kwargs.items() if given is not None}}

    model.network.base_model.register_forward_pre_hook(shifted, with_kwargs=True)
    with pytest.raises(InputError, match="GPT2LMHeadModel scores"):
        check_plain_pass(model, TEXT, QUERY)


def test_a_network_that_fails_with_a_past_is_refused_with_its_reason(models: Models) -> None:
    model = load_model(str(models("gpt2"))).model

    def failing(_: torch.nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        if (past := kwargs.get(model.cache_argument)) is not None and past.get_seq_length():
            raise AttributeError("no attribute 'past'")

    model.network.base_model.register_forward_pre_hook(failing, with_kwargs=True)
    with pytest.raises(InputError, match="GPT2LMHeadModel cannot continue from a memory: no attr"):
        check_plain_pass(model, TEXT, QUERY)


def test_masked_vocabulary_rows_do_not_hide_a_disagreement(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(str(models("gpt2"))).model
    masked = torch.zeros(model.known_tokens).index_fill_(0, torch.arange(0, model.known_tokens, 5), -1e9)
    model.network.lm_head.bias = torch.nn.Parameter(masked, requires_grad=False)
    check_plain_pass(model, TEXT, QUERY)
    inputs = LanguageModel.inputs
    monkeypatch.setattr(LanguageModel, "inputs", lambda self, ids, past, start: inputs(self, ids, past, start + 9))
    with pytest.raises(InputError, match="differently than after the same text"):
        check_plain_pass(model, TEXT, QUERY)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_thinking_moves_every_layer_of_every_family(family: str, loaded: Loaded, reviews: DemonstrationSet) -> None:
    engine = loaded(family)
    memory = list(think(engine, tokenize_demonstrations(engine.tokenizer, reviews), Method(3, Gate(0.1))))[-1]
    assert memory.not_finite() is None
    assert all(change > 0 for change in memory.drift[-1].values[1:])
