"""Unsupported architectures are refused by name, from their configuration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import Models
from transformers import AutoConfig

from deepthink_cli import load_model
from deepthink_cli.errors import InputError
from deepthink_cli.model.limits import limits_of

ENCODERS = ["bert", "bert-generation", "big_bird", "electra", "megatron-bert", "roberta", "camembert", "roformer"]
SEQUENCES = ["bart", "bigbird_pegasus", "blenderbot", "marian", "mbart", "pegasus", "plbart", "prophetnet", "whisper"]


def refused(family: str, match: str, **fields: Any) -> None:
    with pytest.raises(InputError, match=match):
        limits_of(AutoConfig.for_model(family, **fields))


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("decoder", [False, True])
def test_an_encoder_is_refused(family: str, decoder: bool) -> None:
    refused(family, f"{family} .* is an encoder", is_decoder=decoder)


@pytest.mark.parametrize("family", SEQUENCES)
@pytest.mark.parametrize("fields", [{}, {"is_encoder_decoder": False, "is_decoder": True}], ids=["whole", "decoder"])
def test_an_encoder_decoder_and_its_decoder_alone_are_refused(family: str, fields: dict[str, Any]) -> None:
    refused(
        family, f"{family} is not a causal language model: .* is an encoder-decoder or the decoder of one", **fields
    )


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("xlm", "takes no keys and values of earlier tokens"),
        ("xlnet", "takes no keys and values of earlier tokens"),
        ("openai-gpt", "takes no keys and values of earlier tokens"),
        ("cpmant", "prompt tokens of its own"),
        ("trocr", "decoder of an encoder-decoder"),
    ],
)
def test_what_cannot_go_on_from_a_memory_is_refused_with_its_reason(family: str, reason: str) -> None:
    refused(family, f"{family}.* {reason}")


def test_a_network_found_to_take_no_positions_is_not_given_any(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        return original(self, input_ids, **given)

    engine = load_model(str(models("gpt2")))
    original = type(engine.model.network.base_model).forward
    monkeypatch.setattr(type(engine.model.network.base_model), "forward", forward)
    assert load_model(str(models("gpt2"))).limits.relative
