"""The float32 head: log-probabilities over a vocabulary processed in slices, masked rows included."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from conftest import Models
from torch import Tensor

from deepthink_cli import load_model
from deepthink_cli.engine import logits
from deepthink_cli.engine.logits import SLICE, Head, float32_head

VOCABULARY = 2 * SLICE + 100
ASKED = torch.arange(50).repeat(2)  # (100,)
TOKENS = torch.arange(SLICE + 1, SLICE + 101)


def head_of(bias: Tensor, **config: float) -> tuple[Head, Tensor]:
    """A random head with a bias over the vocabulary, and its logits of 50 hidden states in float64."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(16, VOCABULARY)
    linear.bias.data = bias
    head = Head(linear, SimpleNamespace(**config))
    with torch.inference_mode():
        return head, head(hidden_states()).double()


def hidden_states() -> Tensor:
    return torch.randn(50, 16, generator=torch.Generator().manual_seed(1)) * 8


@pytest.mark.parametrize("masked", [-1e9, -torch.inf])
@pytest.mark.parametrize(
    "places", [[0], [0, SLICE, 2 * SLICE], range(SLICE), range(SLICE + 101, VOCABULARY), [5, VOCABULARY - 1]]
)
@pytest.mark.parametrize("config", [{}, {"logit_scale": 0.25}, {"logits_scaling": 4.0}])
def test_masked_vocabulary_rows_change_no_other_tokens_probability(
    masked: float, places: Sequence[int], config: dict[str, float]
) -> None:
    head, logits = head_of(torch.zeros(VOCABULARY).index_fill(0, torch.tensor([*places]), masked), **config)
    with torch.inference_mode():
        found = head.log_probabilities(hidden_states(), ASKED, TOKENS)
    expected = logits.log_softmax(-1)[ASKED, TOKENS]
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_nan_or_infinite_stay_so(value: float) -> None:
    head, _ = head_of(torch.zeros(VOCABULARY).index_fill(0, torch.tensor([7]), value))
    with torch.inference_mode():
        assert not head.log_probabilities(hidden_states(), ASKED, TOKENS).isfinite().any()


@pytest.mark.parametrize("masked", [-1e9, -torch.inf])
def test_a_model_with_masked_rows_has_its_float32_head_and_its_scale_is_still_checked(
    masked: float, models: Models
) -> None:
    network = load_model(str(models("phi"))).model.network
    network.lm_head.bias[0] = masked
    assert float32_head(network, range(1, 9)) is not None
    network.config.logit_scale = 1.5  # Phi ignores it
    assert float32_head(network, range(1, 9)) is None


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_head_is_as_exact_as_float64_on_the_same_hidden_states(dtype: torch.dtype, kept: bool) -> None:
    torch.manual_seed(0)
    head = Head(torch.nn.Linear(64, VOCABULARY).to(dtype), SimpleNamespace())
    hidden = (torch.randn(50, 64) * 8).to(dtype)
    if kept:
        head.keep_float32(2**40)
    with torch.inference_mode():
        found = head.log_probabilities(hidden, ASKED, TOKENS)
        weight, bias = head.embedding.weight.double(), head.embedding.bias.double()
        expected = (hidden.double() @ weight.T + bias).log_softmax(-1)[ASKED, TOKENS]
        rounded = head.embedding(hidden).double().log_softmax(-1)[ASKED, TOKENS]
    assert (found - expected).abs().max() < 2e-5
    assert (rounded - expected).abs().max() > 1e-3  # what the model's own logits lose


def summed_by_hand(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What GPUs compute of half-precision factors: their products, summed in float32."""
    assert hidden.dtype == weight.dtype == torch.bfloat16
    product = hidden.float() @ weight.float().T
    return product if bias is None else product + bias


@pytest.mark.parametrize("family", ["llama", "phi", "gemma2"])
def test_factors_stay_in_half_precision_where_the_device_sums_their_products_in_float32(
    family: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load_model(str(models(family)), dtype="bfloat16").model.network
    without, hidden = float32_head(network, range(1, 9)), torch.randn(50, network.config.hidden_size).bfloat16()
    assert not without.in_half  # no processor has such a product
    monkeypatch.setattr(logits, "summed_in_float32", summed_by_hand)
    head = float32_head(network, range(1, 9))
    assert head.in_half
    assert head.copy_bytes == 0
    asked, tokens = torch.arange(50), torch.arange(50) % network.config.vocab_size
    with torch.inference_mode():
        expected = without.log_probabilities(hidden, asked, tokens)
        assert (head.log_probabilities(hidden, asked, tokens) - expected).abs().max() < 1e-4


def test_a_product_that_is_summed_in_half_precision_is_not_used(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logits, "summed_in_float32", lambda hidden, weight, bias: (hidden @ weight.T).float())
    head = float32_head(load_model(str(models("llama")), dtype="bfloat16").model.network, range(1, 9))
    assert not head.in_half
