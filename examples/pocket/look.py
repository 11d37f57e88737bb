"""A quick look during training: does it follow the demonstrations, on sentences it never saw?

The figures that count are those of measure.py, on the evaluation split and with deepthink itself.
"""

from __future__ import annotations

import random

import torch
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedTokenizerFast

from corpus import Corpus
from network import READING_LAYERS
from vocabulary import class_names

QUERIES, SEEDS, ROWS, SHOTS = 200, 2, 50, 16


@torch.no_grad()
def look(
    network: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, fresh: list[int]
) -> dict[str, float]:
    """Dev accuracy with own, swapped and fresh words; `read` is how well the reading layers tell the class."""
    network.eval()
    own = [_ids(tokenizer, f" {word}")[0] for word in ("negative", "positive")]
    found = dict.fromkeys(("own", "swapped", "fresh", "read"), 0.0)
    for seed in range(SEEDS):
        anew = random.Random(seed).sample(fresh, 2)
        for kind, options in (("own", own), ("swapped", own[::-1]), ("fresh", anew)):
            prompt = _prompt(corpus, tokenizer, options, seed)
            answered, read = _right(network, corpus, tokenizer, prompt, options)
            found[kind] += answered / SEEDS
            found["read"] += read / SEEDS / 3
    network.train()
    return {name: round(share, 3) for name, share in found.items()}


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _prompt(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, options: list[int], seed: int) -> list[int]:
    rng = random.Random(seed)
    classes = [0, 1] * (SHOTS // 2)
    rng.shuffle(classes)
    long = [[text for text in texts if len(text.split()) >= 8] for texts in corpus.texts["sst2"]]
    prompt = [tokenizer.bos_token_id]
    for c in classes:
        prompt += _ids(tokenizer, f"Review: {rng.choice(long[c])}\nSentiment:")
        prompt += [options[c], *_ids(tokenizer, "\n\n")]
    return prompt


def _right(
    network: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, prompt: list[int], options: list[int]
) -> tuple[float, float]:
    """Shares of dev sentences answered rightly and read rightly."""
    names = class_names(tokenizer)["sst2"]
    past = network(torch.tensor([prompt]), use_cache=True, logits_to_keep=1).past_key_values
    answered = read = 0
    for start in range(0, QUERIES, ROWS):
        part = corpus.dev[start : start + ROWS]
        tails = [_ids(tokenizer, f"Review: {text}\nSentiment:") for text, _ in part]
        width = max(map(len, tails))
        ids = torch.tensor([tail + [0] * (width - len(tail)) for tail in tails])
        expand = (len(part), -1, -1, -1)
        cache = DynamicCache([(layer.keys.expand(*expand), layer.values.expand(*expand)) for layer in past.layers])
        out = network.model(ids, past_key_values=cache, output_hidden_states=True)
        ends = torch.arange(len(part)), torch.tensor([len(tail) - 1 for tail in tails])
        gold = torch.tensor([label for _, label in part])
        middle = network.model.norm(out.hidden_states[READING_LAYERS][ends])
        answered += int((network.lm_head(out.last_hidden_state[ends])[:, options].argmax(1) == gold).sum())
        read += int((network.lm_head(middle)[:, names].argmax(1) == gold).sum())
    return answered / QUERIES, read / QUERIES
