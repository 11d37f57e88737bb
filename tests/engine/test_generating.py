"""Generation: the tokens of transformers' own `generate`, in every family, in any batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from conftest import Loaded, Models, read
from helpers.families import FAMILIES
from helpers.soak import with_soak

from deepthink_cli import DemonstrationSet, Gate, Memory, Method, load_model, think, tokenize_demonstrations
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.boundary import encode

TEXTS = ["Review: so so", "Review: a quiet joy of a film, told slowly and with care\nSentiment:", "Re", "A film"]
NEW = 12


def prompts_of(engine: Engine, texts: Sequence[str] = TEXTS, seed: int = 0) -> list[Prompt]:
    return [Prompt(tuple(ids), seed + n) for n, ids in enumerate(encode(engine.tokenizer, list(texts), special=False))]


def memory_of(engine: Engine, reviews: DemonstrationSet, iterations: int) -> Memory:
    demonstrations = tokenize_demonstrations(engine.tokenizer, reviews)
    return list(think(engine, demonstrations, Method(iterations, Gate(0.2))))[-1]


def generated(engine: Engine, memory: Memory | None, prompts: Sequence[Prompt], **fields: Any) -> list[list[int]]:
    texts: list[list[int]] = [[] for _ in prompts]
    for token in engine.generate(memory, prompts, Decoding(**{"max_new_tokens": NEW, **fields})):
        texts[token.place].append(token.id)
    return texts


def by_transformers(engine: Any, memory: Memory, prompt: Prompt, **fields: Any) -> list[int]:
    """What `model.generate` adds to the prompt after a cache with the memory's content."""
    ids = [*memory.provenance.demonstrations.token_ids, *prompt.ids]
    ids_1S = torch.tensor([ids])
    torch.manual_seed(prompt.seed)
    network = engine.model.network
    out_1S = network.generate(
        ids_1S,
        attention_mask=torch.ones_like(ids_1S),
        past_key_values=memory.as_cache(network.dtype),
        pad_token_id=0,
        **{"max_new_tokens": NEW, "do_sample": False, **fields},
    )
    return out_1S[0, len(ids) :].tolist()  # type: ignore[no-any-return]


# Generation runs the family's own pass: one of each way to say positions, and caches of two forms. The generate of
# transformers refuses a cache of mpt.
FAMILIES_TRIED = with_soak(
    [each for each in FAMILIES if each != "mpt"], ["gpt2", "llama", "bloom", "gemma2", "deepseek_v3"]
)


@pytest.mark.parametrize("family", FAMILIES_TRIED)
def test_greedy_tokens_are_those_of_transformers_on_the_same_cache(
    family: str, loaded: Loaded, reviews: DemonstrationSet
) -> None:
    engine = loaded(family)
    memory, prompts = memory_of(engine, reviews, 3), prompts_of(engine)
    assert generated(engine, memory, prompts) == [by_transformers(engine, memory, prompt) for prompt in prompts]


@pytest.mark.parametrize(
    ("family", "top_p"), with_soak(product(["gpt2", "llama", "gpt_neox"], [1.0, 0.7]), [("gpt2", 1.0), ("llama", 0.7)])
)
def test_sampled_tokens_are_those_of_transformers_with_the_same_seed(
    family: str, top_p: float, loaded: Loaded, reviews: DemonstrationSet
) -> None:
    engine = loaded(family)
    memory, prompts = memory_of(engine, reviews, 2), prompts_of(engine, seed=11)
    fields: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "top_p": top_p, "top_k": 0}
    theirs = [by_transformers(engine, memory, prompt, **fields) for prompt in prompts]
    assert [generated(engine, memory, [prompt], temperature=1.5, top_p=top_p)[0] for prompt in prompts] == theirs


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_a_batch_generates_what_each_prompt_generates_alone(
    temperature: float, llama: Engine, reviews: DemonstrationSet
) -> None:
    memory, prompts = memory_of(llama, reviews, 2), prompts_of(llama, [*TEXTS, TEXTS[1] * 3])
    alone = [generated(llama, memory, [prompt], temperature=temperature)[0] for prompt in prompts]
    assert generated(llama, memory, prompts, temperature=temperature) == alone


def test_prompts_are_continued_without_a_memory(llama: Any) -> None:
    (prompt, *_) = prompts_of(llama)
    with torch.inference_mode():
        theirs = llama.model.network.generate(
            torch.tensor([prompt.ids]), max_new_tokens=NEW, do_sample=False, pad_token_id=0
        )
    assert generated(llama, None, [prompt]) == [theirs[0, len(prompt.ids) :].tolist()]


def test_a_text_ends_at_the_end_token_and_at_a_stop_string(llama: Any, reviews: DemonstrationSet) -> None:
    memory, prompts = memory_of(llama, reviews, 1), prompts_of(llama)[:1]
    (free,) = generated(llama, memory, prompts)
    ended = list(llama.generate(memory, prompts, Decoding(max_new_tokens=3)))
    assert [token.finish for token in ended] == [None, None, "length"]
    texts = [llama.tokenizer.decode(free[: count + 1]) for count in range(NEW)]
    stop = next(text[-1] for text in texts[3:] if text[-1].isascii())
    stopped = list(llama.generate(memory, prompts, Decoding(max_new_tokens=NEW, stop=(stop,))))
    expected = free[: 1 + next(count for count, text in enumerate(texts) if stop in text)]
    assert (stopped[-1].finish, [token.id for token in stopped]) == ("stop", expected)


def test_the_model_own_end_is_the_last_token(models: Models, reviews: DemonstrationSet) -> None:
    engine: Any = load_model(str(models("gpt2")))
    memory, prompts = memory_of(engine, reviews, 1), prompts_of(engine)[:1]
    (free,) = generated(engine, memory, prompts)
    engine.model.network.generation_config.eos_token_id = [0, free[2]]
    tokens = list(engine.generate(memory, prompts, Decoding(max_new_tokens=NEW)))
    assert tokens[-1] == NewToken(0, free[2], "end")
    assert len(tokens) == free.index(free[2]) + 1


def test_a_prompt_that_does_not_fit_is_refused_before_any_pass(
    llama: BatchedEngine, reviews: DemonstrationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, (short, *_) = memory_of(llama, reviews, 1), prompts_of(llama)
    monkeypatch.setattr(LanguageModel, "inputs", pytest.fail)
    remaining = 512 - memory.length - len(short.ids) + 1
    with pytest.raises(InputError, match=rf"a prompt: too long: .* holds 512 .*max_new_tokens {remaining} or less"):
        next(llama.generate(memory, [short], Decoding(max_new_tokens=remaining + 1)))
    with pytest.raises(InputError, match=r"row 7: too long: .*; shorten it"):
        next(llama.generate(memory, [short, Prompt((5,) * 513, where="row 7")], Decoding(max_new_tokens=1)))
    with pytest.raises(InputError, match="has no tokens"):
        next(llama.generate(memory, [Prompt(())], Decoding()))
    with pytest.raises(InputError, match="knows"):
        next(llama.generate(memory, [Prompt((10**6,))], Decoding()))


def test_all_positions_of_a_model_can_be_used(llama: Engine, reviews: DemonstrationSet) -> None:
    memory, prompt = memory_of(llama, reviews, 1), Prompt((5,) * 400)
    remaining = 512 - memory.length - 400 + 1
    (tokens,) = generated(llama, memory, [prompt], max_new_tokens=remaining)
    assert len(tokens) == remaining or tokens[-1] == 0


def test_a_batch_that_runs_out_of_memory_continues_as_smaller_ones(
    models: Models, reviews: DemonstrationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = load_model(str(models("gpt_neox")))
    memory, prompts = memory_of(engine, reviews, 1), prompts_of(engine, ["A film", "A joke", "A mess", "A town"])
    expected = generated(engine, memory, prompts, temperature=1.0)
    inputs, rows = LanguageModel.inputs, list[int]()

    def small(model: LanguageModel, ids_RS: Any, past: Any, start: int) -> dict[str, Any]:
        rows.append(len(ids_RS))
        if len(ids_RS) > 2 and start > memory.length + 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")
        return inputs(model, ids_RS, past, start)

    monkeypatch.setattr(LanguageModel, "inputs", small)
    assert generated(engine, memory, prompts, temperature=1.0) == expected
    assert rows[0] == 4
    assert rows[-1] <= 2


def test_logits_that_are_not_finite_are_an_error(
    models: Models, reviews: DemonstrationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = load_model(str(models("gpt2")))
    memory, prompts = memory_of(engine, reviews, 1), prompts_of(engine)
    with torch.no_grad():
        engine.model.network.transformer.ln_f.bias.fill_(torch.nan)
    with pytest.raises(DeepThinkError, match="GPT2LMHeadModel: logits are NaN or infinite"):
        generated(engine, memory, prompts)


def test_history_read_before_a_prompt_changes_nothing(llama: Engine, reviews: DemonstrationSet) -> None:
    memory, (first, second, *_) = memory_of(llama, reviews, 1), prompts_of(llama)
    longer = memory.followed_by(read(llama, first.ids, memory, memory.length))
    assert generated(llama, longer, [second]) == generated(llama, memory, [Prompt(first.ids + second.ids)])
