"""Context Tuning: its loss and gradient against plain passes, what is hidden, and the training."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi
from pathlib import Path

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Loaded, Models, read
from helpers.families import write_model
from torch import Tensor

from deepthink_cli import DemonstrationSet, Engine, Example, Memory, load_model, tokenize_demonstrations
from deepthink_cli.data.template import Chat, Template
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.context_tuning.technique import ContextTuning, own_tokens
from deepthink_cli.plugins.context_tuning.training import (
    ContextTraining,
    TrainingRow,
    answer_gradient,
    trainable,
    training_rows,
)
from deepthink_cli.provenance import TokenizedDemonstrations

FAST = ContextTuning("ct-kv", steps=4, lr=0.01)


def given(engine: Engine, count: int = 4) -> TokenizedDemonstrations:
    """The first reviews as an engine reads them."""
    examples = [Example(text, label) for text, label in REVIEWS[:count]]
    return tokenize_demonstrations(engine.tokenizer, DemonstrationSet.of(examples, TEMPLATE))


def rows_of(engine: Engine, demonstrations: TokenizedDemonstrations) -> list[TrainingRow]:
    """The training rows without dropout."""
    return training_rows(engine.tokenizer, demonstrations, "--technique ct-kv")


def plain_loss(engine: Engine, ids: tuple[int, ...], row: TrainingRow) -> Tensor:
    """The loss of a row's answer, in float64, in one pass over [demonstrations ; row] with a 4-D mask."""
    network, length = engine.model.network.double(), len(ids)
    whole = (*ids, *row.ids)
    seen = torch.ones(len(whole), len(whole)).tril().bool()
    seen[length:, :length] &= ~row.hidden
    mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)
    logits = network(input_ids=torch.tensor([whole]), attention_mask=mask[None, None], use_cache=False).logits[0]
    places = torch.arange(len(whole) - row.answer - 1, len(whole) - 1)
    return -logits.log_softmax(-1)[places, list(row.ids[-row.answer :])].sum()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_loss_is_that_of_whole_prompts_with_the_rows_own_tokens_masked(family: str, models: Models) -> None:
    engine = load_model(str(models(family)))
    demonstrations = given(engine)
    rows, memory = rows_of(engine, demonstrations), read(engine, demonstrations.token_ids)
    loss, _ = answer_gradient(engine, memory, rows)
    expected = sum(plain_loss(engine, demonstrations.token_ids, row) for row in rows)
    assert loss == pytest.approx(float(expected) / sum(row.answer for row in rows), rel=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_the_gradient_is_the_slope_of_the_loss(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    demonstrations = given(engine)
    rows, memory = rows_of(engine, demonstrations), read(engine, demonstrations.token_ids).copy()
    _, gradient = answer_gradient(engine, memory, rows)
    slopes = [*gradient.keys, *gradient.values]
    length = sum(float(slope.square().sum()) for slope in slopes) ** 0.5

    def moved(step: float) -> float:
        parts = [part + step * slope / length for part, slope in zip(tensors(memory), slopes, strict=True)]
        half = len(memory.keys)
        return answer_gradient(engine, replace(memory, keys=tuple(parts[:half]), values=tuple(parts[half:])), rows)[0]

    assert (moved(1e-2) - moved(-1e-2)) / 2e-2 == pytest.approx(length, rel=0.02)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2", "gemma3_text", "gpt_neo"])
def test_what_is_hidden_from_a_row_does_not_change_its_loss(family: str, loaded: Loaded) -> None:
    torch.manual_seed(0)
    engine = loaded(family)
    demonstrations = given(engine)
    memory = read(engine, demonstrations.token_ids)
    for row in rows_of(engine, demonstrations):
        changed, rest = memory.copy(), memory.copy()
        for tensor, other in zip(tensors(changed), tensors(rest), strict=True):
            tensor[:, row.hidden] = torch.randn(tensor[:, row.hidden].shape)
            other[:, ~row.hidden] = torch.randn(other[:, ~row.hidden].shape)
        (loss, gradient), (after, _) = answer_gradient(engine, memory, [row]), answer_gradient(engine, changed, [row])
        assert after == pytest.approx(loss, rel=1e-5)
        assert answer_gradient(engine, rest, [row])[0] != pytest.approx(loss, rel=1e-4)
        assert not any(tensor[:, row.hidden].any() for tensor in tensors(gradient))


def test_distances_of_alibi_are_refused(loaded: Loaded) -> None:
    with pytest.raises(InputError, match="counts the distances of ALiBi along its attention mask"):
        trainable(loaded("bloom"))


def test_windows_apply_to_training_rows_as_to_queries(tmp_path: Path) -> None:
    engine = load_model(str(write_model(tmp_path, "gemma2", sliding_window=16)), engine="padded")
    demonstrations = given(engine)
    memory, (row, *_) = read(engine, demonstrations.token_ids), rows_of(engine, demonstrations)
    seeing = TrainingRow(row.ids, row.answer, torch.zeros_like(row.hidden))
    query = TokenizedQuery(row.ids[: -row.answer], (row.ids[-row.answer :],))
    (((score,),),) = engine.score([memory], engine.plan([query]))
    assert answer_gradient(engine, memory, [seeing])[0] == pytest.approx(-score / row.answer, rel=1e-4)


def test_rows_in_several_passes_are_one_batch(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded("llama")
    demonstrations = given(engine)
    memory, rows = read(engine, demonstrations.token_ids), rows_of(engine, demonstrations)
    loss, gradient = answer_gradient(engine, memory, rows)
    monkeypatch.setattr(engine, "free", 1)
    one_by_one, others = answer_gradient(engine, memory, rows)
    assert one_by_one == pytest.approx(loss, rel=1e-5)
    for found, expected in zip(tensors(others), tensors(gradient), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_every_token_but_the_first_ones_belongs_to_the_demonstration_that_it_was_made_of(llama: Engine) -> None:
    demonstrations = given(llama)
    own_RL = own_tokens(llama.tokenizer, demonstrations, FAST.option)
    assert own_RL.sum(0).tolist() == [0] + [1] * (len(demonstrations.token_ids) - 1)
    for (text, label), own_L in zip(REVIEWS, own_RL, strict=True):
        ids = [token for token, is_own in zip(demonstrations.token_ids, own_L, strict=True) if is_own]
        assert llama.tokenizer.decode(ids) == f"Review: {text}\nSentiment: {label}\n\n"


def test_a_token_across_two_demonstrations_is_hidden_from_both(llama: Engine) -> None:
    examples = [Example("warm", "positiv"), Example("dull", "negativ")]
    prompt = DemonstrationSet(tuple(examples), Template("e {text}: {label}", separator=""), ("positiv", "negativ"))
    demonstrations = tokenize_demonstrations(llama.tokenizer, prompt)
    own_RL = own_tokens(llama.tokenizer, demonstrations, FAST.option)
    (joined,) = [token for token, owners in zip(demonstrations.token_ids, own_RL.sum(0), strict=True) if owners == 2]
    assert llama.tokenizer.decode([joined]).endswith("ive")


def test_fewer_than_four_demonstrations_are_not_left_out(llama: Engine) -> None:
    assert not any(row.hidden.any() for row in rows_of(llama, given(llama, 3)))
    assert all(row.hidden.any() for row in rows_of(llama, given(llama, 4)))


def test_copies_of_a_demonstration_are_hidden_from_each_other(llama: Engine) -> None:
    examples = [Example(text, label) for text, label in [*REVIEWS, REVIEWS[0], (REVIEWS[1][0], REVIEWS[2][1])]]
    demonstrations = tokenize_demonstrations(llama.tokenizer, DemonstrationSet.of(examples, TEMPLATE))
    own_RL = own_tokens(llama.tokenizer, demonstrations, FAST.option)
    rows = rows_of(llama, demonstrations)
    for row, same in enumerate([(0, 4), (1, 5), (2,), (3,), (0, 4), (1, 5)]):
        assert rows[row].hidden.equal(own_RL[list(same)].any(0))
    three = tokenize_demonstrations(llama.tokenizer, DemonstrationSet.of([*examples[:3], examples[4]], TEMPLATE))
    assert not any(row.hidden.any() for row in rows_of(llama, three))


def test_the_answer_is_the_whole_label(llama: Engine) -> None:
    demonstrations = given(llama)
    for row, (_, label) in zip(rows_of(llama, demonstrations), REVIEWS, strict=True):
        assert llama.tokenizer.decode(row.ids[-row.answer :]).strip() == label


def test_the_loss_falls_and_the_demonstrations_stay(llama: Engine) -> None:
    demonstrations = given(llama)
    training = ContextTraining(llama, demonstrations, ContextTuning("ct-kv", steps=40, lr=0.03, dropout=0))
    losses = list(training)
    assert losses[-1] < losses[0] / 2
    provenance = training.memory.provenance
    assert provenance.demonstrations == demonstrations
    assert (training.memory.iteration, provenance.method.iterations) == (1, 1)
    assert str(provenance.technique) == "ct-kv steps=40 lr=0.03 dropout=0 seed=0"


def test_steps_are_those_of_adamw_along_a_cosine_with_a_clipped_gradient(llama: Engine) -> None:
    demonstrations = given(llama)
    training = ContextTraining(llama, demonstrations, replace(FAST, dropout=0.0))
    numbers = [tensor.clone() for tensor in tensors(training.memory)]
    first, second = ([torch.zeros_like(each) for each in numbers] for _ in range(2))
    half = len(training.memory.keys)
    for step, _ in enumerate(training):
        memory = Memory(tuple(numbers[:half]), tuple(numbers[half:]))
        slopes = tensors(answer_gradient(llama, memory, rows_of(llama, demonstrations))[1])
        norm, rate = torch.cat([slope.flatten() for slope in slopes]).norm(), 0.01 * (1 + cos(pi * step / 4)) / 2
        for n, slope in enumerate(slopes):
            clipped = slope / max(1.0, float(norm))
            first[n] = 0.9 * first[n] + 0.1 * clipped
            second[n] = 0.999 * second[n] + 0.001 * clipped**2
            size = (second[n] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
            numbers[n] = numbers[n] - rate * first[n] / (1 - 0.9 ** (step + 1)) / size
        for found, expected in zip(tensors(training.memory), numbers, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(llama: Engine) -> None:
    demonstrations = given(llama)
    first, again, other = (ContextTraining(llama, demonstrations, replace(FAST, seed=seed)) for seed in (0, 0, 1))
    assert list(first) == list(again) != list(other)
    assert all(map(torch.equal, tensors(first.memory), tensors(again.memory)))
    assert not torch.equal(first.memory.keys[0], other.memory.keys[0])


def test_a_model_in_bfloat16_is_trained_in_float32(models: Models) -> None:
    engine = load_model(str(models("llama")), dtype="bfloat16")
    training = ContextTraining(engine, given(engine), FAST)
    before = training.memory.keys[1].clone()
    list(training)
    assert training.memory.keys[1].dtype == torch.float32
    assert 0 < (training.memory.keys[1] - before).abs().max() < 0.05


def test_a_conversation_is_refused(llama: Engine) -> None:
    with pytest.raises(InputError, match="omit chat"):
        own_tokens(llama.tokenizer, replace(given(llama), chat=Chat()), FAST.option)


def tensors(memory: Memory) -> list[Tensor]:
    """All tensors of a memory."""
    return [*memory.keys, *memory.values]
