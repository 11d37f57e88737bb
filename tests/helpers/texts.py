"""Texts, words and templates drawn by hypothesis, and real tokenizers to read them."""

from __future__ import annotations

from functools import cache

from conftest import shared
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from deepthink_cli.data.template import Template

TOKENIZERS = ("gpt2", "llama2", "pythia")
# Special tokens, and what tokenizers join, split, strip or normalise: spaces, line breaks, marks, parts of emoji.
HARD = [
    *("<|endoftext|>", "<s>", "</s>", "<unk>", "<|padding|>", "▁", "Ġ", " ", "  ", "\n", "\n\n", "\t", "\r\n"),
    *("e\u0301", "é", "\u200b", "\ufeff", "👩\u200d🚀", "positive", "neg", "'s", "1", "00", "Sentiment:"),
]
TEXT = st.lists(
    st.sampled_from(HARD) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5
).map("".join)
WORDS = TEXT.map(str.strip).filter(bool)
TEMPLATE = st.sampled_from(
    ["Review: {text}\nSentiment: {label}", "{text} {label}", "{text}{label}", "({text})   {label}"]
).map(Template)


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(shared(f"tokenizers/{name}"))
    return tokenizer
