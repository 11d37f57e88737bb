"""Architectures of transformers, small and random: supported ones are right, the others are refused with the reason."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import Models
from helpers.said import Captured
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

import examination
from architectures import page
from deepthink_cli import Gate, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.io.hub import load_failure
from deepthink_cli.model.limits import limits_of
from examination import examine
from small_models import FORMS, build_tokenizer, random_network, small_config

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "models.md"
INCOMPLETE = "its cache does not contain the keys and values that its attention uses"
INDEXER = "select the tokens that they attend to by keys of an indexer, which a memory does not hold"


@pytest.mark.parametrize(
    ("model_type", "form", "verdict", "remark"),
    [
        pytest.param("dbrx", "", "packed", "", marks=pytest.mark.soak),
        pytest.param("dots1", "", "packed", "", marks=pytest.mark.soak),
        pytest.param("emu3", "", "packed", "", marks=pytest.mark.soak),
        ("granitemoehybrid", "attention layers only", "packed", ""),
        ("mistral", "", "packed", ""),
        pytest.param("axk1", "", "padded", INCOMPLETE, marks=pytest.mark.soak),
        ("deepseek_v2", "", "padded", INCOMPLETE),
        ("doge", "", "padded", "no more tokens than its window"),
        ("mpt", "", "padded", "`continued` positions only"),
        ("deepseek_v32", "", "refused", INDEXER),
        ("glm_moe_dsa", "", "refused", INDEXER),
        ("mllama", "", "refused", "layers that attend to images only"),
        ("xlnet", "", "refused", "takes no keys and values of earlier tokens"),
        ("zaya", "", "refused", "hybrid layers, which keep a state besides keys and values"),
        ("gemma3_text", "use_bidirectional_attention", "refused", "each token also attends to later tokens"),
    ],
)
def test_an_architecture_is_right_or_refused(model_type: str, form: str, verdict: str, remark: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = examine(model_type, form)
    assert row.verdict == verdict, row.reason
    assert remark in row.reason


def test_a_result_that_differs_from_the_reference_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "Gate", lambda _: Gate(0.1))
    row = examine("gpt2")
    assert row.verdict == "wrong"
    assert "memory and scores differ by" in row.reason


def test_any_error_but_a_refusal_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no engine")

    monkeypatch.setattr(examination, "load_model", broken)
    row = examine("gpt2")
    assert (row.verdict, row.reason[:27]) == ("failed", "ZeroDivisionError: no engin")
    assert re.search(r"^\| `gpt2` \| GPT2LMHeadModel \| failed \| ", page([row]), re.MULTILINE)


def test_the_page_lists_the_architectures_of_transformers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (version,) = re.findall(r"here with transformers (\S+)", text)
    if version != transformers.__version__:
        pytest.skip(f"the page is about transformers {version}, and {transformers.__version__} is installed")
    rows = re.findall(r"^\| `(.*?)`(?: \((.*)\))? \| (\S+) \| (\w+) \|", text, re.MULTILINE)
    assert [(name, form) for name, form, _, _ in rows] == sorted([*((name, "") for name in CLASSES), *FORMS])
    assert all(CLASSES[name] == kind for name, _, kind, _ in rows)
    assert {verdict for *_, verdict in rows} == {"packed", "padded", "refused"}


@pytest.mark.plugins
def test_a_model_that_cannot_run_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    tokenizer = build_tokenizer(["a b"])
    config = small_config("dbrx", len(tokenizer), attn_config={"clip_qkv": None})
    random_network(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    capsys.readouterr()
    assert run(["doctor", "-m", str(tmp_path)]) == 2
    assert re.search("DbrxForCausalLM cannot read a token: .*choose a model", capsys.readouterr().err)


def test_layers_that_keep_nothing_known_are_refused() -> None:
    config = small_config("llama", 400)
    config.layer_types = ["full_attention", "mystery"]
    with pytest.raises(InputError, match=r"llama \(llama\) has mystery layers, which keep no keys and values"):
        limits_of(config)


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
        ("mamba", ".*Deep-Thinking is undefined there"),
        ("rwkv", ".*Deep-Thinking is undefined there"),
        ("jamba", ".*Deep-Thinking is undefined there"),
        ("qwen3_next", ".*linear_attention.*Deep-Thinking is undefined there"),
        ("recurrent_gemma", ".*recurrent.*Deep-Thinking is undefined there"),
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


def test_a_missing_package_is_named() -> None:
    error = ImportError(
        "\nTower requires the timm library but it was not found. You can install it with pip:\n`pip`.\n"
    )
    assert str(load_failure("m", error)) == (
        "model m: a package is missing (Tower requires the timm library but it was not found); install it, "
        "or choose another model"
    )
    assert isinstance(load_failure("m", error), InputError)
