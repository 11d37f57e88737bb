"""Unsupported architectures are refused by name, from their configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.families import build_tokenizer, random_network
from transformers import AutoConfig

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.probe import check_plain_pass
from deepthink_cli.errors import InputError
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

ENCODERS = ["bert", "bert-generation", "electra", "ernie", "megatron-bert", "rembert", "roc_bert", "roformer"]
PADDED = ["roberta", "roberta-prelayernorm", "camembert", "xlm-roberta", "xlm-roberta-xl", "data2vec-text", "xmod"]
SEQUENCES = ["bart", "bigbird_pegasus", "blenderbot", "marian", "mbart", "pegasus", "plbart", "prophetnet", "whisper"]
BERT: dict[str, Any] = {
    "hidden_size": 32,
    "embedding_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 320,
    "is_decoder": True,
}


def refused(family: str, match: str, **fields: Any) -> None:
    with pytest.raises(InputError, match=match):
        limits_of(AutoConfig.for_model(family, **fields))


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_is_refused_unless_it_is_set_to_be_a_decoder(family: str, llama: Engine) -> None:
    refused(family, f"{family} .* is an encoder.*set is_decoder to true")
    network = random_network(family, **BERT, output_embedding_size=32)
    check_plain_pass(replace(llama.model, network=network), (5, 6, 7, 8, 9, 3, 4), (5, 6, 7, 60))
    assert limits_of(network.config)


@pytest.mark.parametrize("family", PADDED)
@pytest.mark.parametrize("decoder", [False, True])
def test_positions_that_start_behind_the_padding_token_are_refused(family: str, decoder: bool) -> None:
    refused(family, f"{family} .* counts positions from its padding token", is_decoder=decoder)


def test_blocks_drawn_at_random_are_refused() -> None:
    refused("big_bird", "attention_type to original_full", is_decoder=True)
    assert limits_of(AutoConfig.for_model("big_bird", is_decoder=True, attention_type="original_full"))


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


@pytest.fixture
def roformer(tmp_path: Path) -> Path:
    """A decoder whose layers do not accept positions."""
    network = random_network("roformer", **BERT)
    network.save_pretrained(tmp_path / "roformer")
    build_tokenizer().save_pretrained(tmp_path / "roformer")
    return tmp_path / "roformer"


def test_restarted_is_refused_where_a_model_takes_no_positions(
    roformer: Path, demos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = open_model(ModelOptions(model=str(roformer))).limits
    assert limits.largest("continued", 2) == 1536 // 2
    words = ["think", str(demos), "-m", str(roformer), "-T", "2", "-o", str(demos.parent / "mem.safetensors"), "-q"]
    assert run(words) == 0
    assert run([*words, "--positions", "restarted"]) == 2
    assert "has no positions to restart" in capsys.readouterr().err


def test_a_network_found_to_take_no_positions_is_not_given_any(
    models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        return original(self, input_ids, **given)

    engine = load_model(str(models("gpt2")))
    original = type(engine.model.network.base_model).forward
    monkeypatch.setattr(
        "deepthink_cli.model.limits.takes_positions", lambda _: True
    )  # as for code that comes with a model
    monkeypatch.setattr(type(engine.model.network.base_model), "forward", forward)
    assert load_model(str(models("gpt2"))).limits.relative
