"""Pocket's tokenizer: a lower-case byte-level BPE in which every line break stands alone."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from corpus import SOURCES

BOS = "<|begin|>"
# A word keeps the space before it; digits go one by one; no piece ever crosses a line break.
PIECES = Regex(r" ?[^\W\d_]+('[^\W\d_]+)?| ?\d| ?[^\s\w]|\n|\s|.")


def build_tokenizer(texts: Iterable[str], size: int, context: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer on `texts`; it starts every text it is given alone with one BOS token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[BOS, *(name_of(s.name, c) for s in SOURCES for c in range(s.classes))],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS, model_max_length=context)


def name_of(source: str, number: int) -> str:
    """The reserved token that names one class of one source; it never stands in a text."""
    return f"<|{source}:{number}|>"


def class_names(tokenizer: PreTrainedTokenizerFast) -> dict[str, list[int]]:
    """Ids of the reserved tokens, by source."""
    return {s.name: [tokenizer.convert_tokens_to_ids(name_of(s.name, c)) for c in range(s.classes)] for s in SOURCES}


def label_words(tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """Ids of the whole words that can serve as labels: (for training, never used in training)."""
    ids = [
        index
        for piece, index in sorted(tokenizer.get_vocab().items())
        if piece.startswith("Ġ") and piece[1:].isascii() and piece[1:].isalpha() and len(piece) >= 4
    ]
    return [i for n, i in enumerate(ids) if n % 10], ids[::10]
