"""A quick look during training: does it follow the demonstrations, on sentences it never saw?

The figures that count are those of measure.py, on the evaluation split and with deepthink itself.
"""

from __future__ import annotations

import random

import torch
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedTokenizerFast

from corpus import Corpus
from vocabulary import class_names

SEEDS, ROWS, SHOTS = 2, 50, 16


@torch.no_grad()
def look_at_reading(reader: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    """Share of dev sentences whose class the reader tells, after demonstrations with words drawn at random."""
    reader.eval()
    prompt = _prompt(corpus.texts["sst2"], tokenizer, [1000, 2000], 0)
    found = _right(reader, corpus, tokenizer, prompt, class_names(tokenizer)["sst2"])
    reader.train()
    return {"read": round(found, 3)}


@torch.no_grad()
def look_at_binding(
    network: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, fresh: list[int]
) -> dict[str, float]:
    """Dev accuracy with own, swapped and fresh words, after demonstrations read in training."""
    network.eval()
    own = [_ids(tokenizer, f" {word}")[0] for word in ("negative", "positive")]
    found = dict.fromkeys(("own", "swapped", "fresh"), 0.0)
    for seed in range(SEEDS):
        anew = random.Random(seed).sample(fresh, 2)
        for kind, options in (("own", own), ("swapped", own[::-1]), ("fresh", anew)):
            prompt = _prompt(corpus.texts["sst2"], tokenizer, options, seed)
            found[kind] += _right(network, corpus, tokenizer, prompt, options) / SEEDS
    network.train()
    return {name: round(share, 3) for name, share in found.items()}


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _prompt(texts: list[list[str]], tokenizer: PreTrainedTokenizerFast, options: list[int], seed: int) -> list[int]:
    rng = random.Random(seed)
    classes = [0, 1] * (SHOTS // 2)
    rng.shuffle(classes)
    long = [[text for text in of_class if len(text.split()) >= 8] for of_class in texts]
    prompt = [tokenizer.bos_token_id]
    for c in classes:
        prompt += _ids(tokenizer, f"Review: {rng.choice(long[c])}\nSentiment:")
        prompt += [options[c], *_ids(tokenizer, "\n\n")]
    return prompt


def _right(
    network: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, prompt: list[int], options: list[int]
) -> float:
    """Share of dev sentences for which the right one of `options` comes next."""
    past = network(torch.tensor([prompt]), use_cache=True, logits_to_keep=1).past_key_values
    right = 0
    for start in range(0, len(corpus.dev), ROWS):
        part = corpus.dev[start : start + ROWS]
        tails = [_ids(tokenizer, f"Review: {text}\nSentiment:") for text, _ in part]
        width = max(map(len, tails))
        ids = torch.tensor([tail + [0] * (width - len(tail)) for tail in tails])
        expand = (len(part), -1, -1, -1)
        cache = DynamicCache([(layer.keys.expand(*expand), layer.values.expand(*expand)) for layer in past.layers])
        hidden = network.model(ids, past_key_values=cache).last_hidden_state
        ends = torch.arange(len(part)), torch.tensor([len(tail) - 1 for tail in tails])
        guess = network.lm_head(hidden[ends])[:, options].argmax(1)
        right += int((guess == torch.tensor([label for _, label in part])).sum())
    return right / len(corpus.dev)
