"""The ids of demonstrations, query and candidate are those that the tokenizer gives the whole prompt.

A text is cut only where its tokens are those of its two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from helpers.families import build_tokenizer
from helpers.texts import TOKENIZERS, WORDS, tokenizer_of
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from deepthink_cli import DemonstrationSet, Example, tokenize_demonstrations
from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import boundary, cut_in
from deepthink_cli.model.tokens import tokenize_queries

CORPUS = ["Review: A joy.\nSentiment: good\n\nReview: Dull!\nSentiment: bad\n\n", "Text: 12 of 3\n\nText: \n\n\n"] * 20
MARKS = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+" + MARKS
PATTERNS = ("Review: {text}\nSentiment: {label}", "{text}\nSentiment: {label}", "{text} => {label}", "({text}) {label}")
SEPARATORS = ("\n\n", "\n", " ", "\n###\n", "; ", "")
WORDS_OF_ROWS = ("A joy", "dull!", "12 films", '"Fine," he said', "(so so)", "Ça va", "不错", "- no -", "'s")


def saved(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_level(
    pattern: str | None, corpus: Sequence[str] = CORPUS, together: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """Byte pairs of a corpus after a pattern, of GPT-2 if there is none, and tokens that stay together."""
    tokenizer = Tokenizer(models.BPE())
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, own])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    tokenizer.add_tokens([*together])
    return saved(tokenizer)


def sentence_piece() -> PreTrainedTokenizerBase:
    """Byte pairs of a whole text, without words, and a space before it."""
    tokenizer = Tokenizer(models.BPE(unk_token="?", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=90, special_tokens=["?"]))
    return saved(tokenizer)


def unigram() -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=60, unk_token="?", special_tokens=["?"]))
    return saved(tokenizer)


def word_piece() -> PreTrainedTokenizerBase:
    """Lower-case words, a token before every text and one after it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="?"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=80, special_tokens=["?", "[A]", "[Z]"]))
    tokenizer.post_processor = processors.TemplateProcessing("[A] $A [Z]", None, [("[A]", 1), ("[Z]", 2)])
    return saved(tokenizer)


def characters() -> PreTrainedTokenizerBase:
    """Characters, of which some are joined across the end of a demonstration."""
    merges = [("\n", "\n"), ("\n", "R"), (".", "\n"), ("d", "R"), ("d", "\n"), (" ", "A")]
    tokens = [*sorted({*"".join(CORPUS)}), "?", *map("".join, merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return saved(Tokenizer(models.BPE(vocabulary, merges, unk_token="?")))


BUILT: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "with BOS": build_tokenizer,
    "byte level": lambda: byte_level(None),
    "byte level, line breaks after marks": lambda: byte_level(LLAMA3),
    "sentence piece": sentence_piece,
    "unigram": unigram,
    "word piece": word_piece,
    "characters": characters,
}


@cache
def tokenizer_named(name: str) -> PreTrainedTokenizerBase:
    return BUILT[name]() if name in BUILT else tokenizer_of(name)


def whole_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of a text as the library gives them, without a token that it appends."""
    ids: list[int] = tokenizer(text, split_special_tokens=True)["input_ids"]
    return ids[:-1] if len(tokenizer("")["input_ids"]) == 2 else ids


TEXT = st.sampled_from(WORDS_OF_ROWS) | WORDS
LABEL = st.sampled_from(("good", "bad.", "Rare")) | WORDS


@pytest.mark.parametrize("name", [*TOKENIZERS, *BUILT])
@given(
    st.builds(Template, st.sampled_from(PATTERNS), st.sampled_from(SEPARATORS)),
    st.lists(st.builds(Example, TEXT, LABEL), min_size=1, max_size=4),
    TEXT,
)
def test_the_ids_are_those_of_the_whole_prompt(
    name: str, template: Template, examples: list[Example], text: str
) -> None:
    tokenizer, labels = tokenizer_named(name), ("good", "bad.")
    read = tokenize_demonstrations(tokenizer, DemonstrationSet.of(examples, template, labels))
    try:
        (query,) = tokenize_queries(tokenizer, read, [Query(text, labels)])
    except InputError:
        assume(False)
    start = template.demonstrations([(str(one.text), one.label) for one in examples]) + template.query(text)
    for label, answer in zip(labels, query.answers, strict=True):
        assert [*read.token_ids, *query.prefix, *answer] == whole_ids(tokenizer, start + label)


def test_where_no_token_ends_with_the_demonstrations_they_end_before_it() -> None:
    template = Template("Text: {text}\nKind: {label}", " ")
    read = tokenize_demonstrations(tokenizer_of("gpt2"), DemonstrationSet.of([Example("a", "b")], template, ("b", "c")))
    (query,) = tokenize_queries(tokenizer_of("gpt2"), read, [Query("d", ("b", "c"))])
    assert tokenizer_of("gpt2").decode(read.token_ids) == "Text: a\nKind: b"
    assert tokenizer_of("gpt2").decode(query.prefix) == " Text: d\nKind:"


def test_a_text_that_changes_the_last_tokens_of_the_demonstrations_has_its_ids_alone() -> None:
    tokenizer, template = tokenizer_of("gpt2"), Template("Text: {text}\nKind: {label}")
    between = boundary(tokenizer, template, ["Text: a\nKind: b\n\n"])
    assert between.ids == tuple(tokenizer("Text: a\nKind: b\n").input_ids) + tuple(tokenizer("\n").input_ids)
    assert between.after(tokenizer, ["\nKind: c", "Text: c"]) == tokenizer(["\nKind: c", "Text: c"]).input_ids


def test_a_memory_of_another_writing_of_its_demonstrations_is_refused() -> None:
    read = tokenize_demonstrations(
        tokenizer_of("gpt2"), DemonstrationSet.of([Example("a", "b")], PATTERNS[0], ("b", "c"))
    )
    other = replace(read, token_ids=(*read.token_ids[:-1], 628))
    with pytest.raises(InputError, match="in another way than when it was made; run deepthink think again"):
        tokenize_queries(tokenizer_of("gpt2"), other, [Query("d", ("b", "c"))])


REVIEWS = ["a warm film\nSentiment: positive", "a dull film\nSentiment: negative", "warm and dull\nTopic: film"] * 9
REVIEW = Template("Review: {text}\nSentiment: {label}")
PHRASES = ("a warm film", "Sentiment", "Sentiment:", "no.", "film a", "1", "é", "a  film", "films a", "warm a film")


def trained(pattern: str | None, *together: str) -> PreTrainedTokenizerFast:
    return byte_level(pattern, REVIEWS, together)


def as_whole_texts(tokenizer: PreTrainedTokenizerBase, queries: list[Query]) -> list[list[list[int]]]:
    """The tokens of each query with each candidate, of a text at a time."""
    return [
        [
            tokenizer(REVIEW.query(query.text) + word, add_special_tokens=False, split_special_tokens=True).input_ids
            for word in query.candidates
        ]
        for query in queries
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers_are_cut_between_the_last_word_and_its_colon(name: str) -> None:
    assert cut_in(tokenizer_of(name), "\nSentiment: ") == len("\nSentiment")
    assert cut_in(tokenizer_of(name), "\nIs it good? Answer: ") == len("\nIs it good")


@pytest.mark.parametrize("text", ["", " ", "\n", "\nSentiment ", " => ", "\n1: ", "\né: "])
def test_without_a_letter_before_a_mark_there_is_no_cut(text: str) -> None:
    assert cut_in(trained(None), text) == len(text)


def test_a_token_that_holds_both_sides_prevents_the_cut() -> None:
    assert cut_in(trained(None), "\nSentiment: ") == len("\nSentiment")
    assert cut_in(trained(None, "ment:"), "\nSentiment: ") == len("\nSentiment: ")
    assert cut_in(trained(None, "ment:"), "\nSentiment: yes? ") == len("\nSentiment: yes")


def test_models_of_other_kinds_have_no_cut() -> None:
    vocabulary = {"[UNK]": 0, "Sentiment": 1, ":": 2}
    for model in (models.WordLevel(vocabulary, unk_token="[UNK]"), models.WordPiece(vocabulary, unk_token="[UNK]")):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
        assert cut_in(tokenizer, "\nSentiment: ") == len("\nSentiment: ")


@pytest.mark.parametrize("pattern", [r"film(?=\nSentiment:)|\n|[^\n]", r"(?<=a )film|."])
def test_a_pattern_that_looks_at_what_follows_prevents_the_cut(pattern: str) -> None:
    assert cut_in(trained(pattern), "\nSentiment: ") == len("\nSentiment: ")


@pytest.mark.parametrize(
    "pattern",
    [
        None,
        r"\s+(?!\S)|\S+|\s+",
        r"film(?=\nSentiment:)|\n|[^\n]",  # the words of a text depend on what follows the place of a cut
        r"\w+:|\w|.",  # a word is one piece before a colon, and letters elsewhere
    ],
)
def test_queries_are_the_tokens_of_their_whole_texts(pattern: str | None) -> None:
    tokenizer = trained(pattern)
    queries = [Query(text, ("positive", "negative")) for text in PHRASES] + [Query("warm", ("positive", "dull"))]
    found = tokenize_queries(tokenizer, REVIEW, queries)
    assert [[[*query.prefix, *answer] for answer in query.answers] for query in found] == as_whole_texts(
        tokenizer, queries
    )


def test_a_tokenizer_that_changes_the_text_has_no_cut_between_characters_that_it_changes() -> None:
    merges = [("\n", "t"), ("a", "\nt"), ("a\nt", ":")]  # a token reaches from a text's last letter to the colon
    tokens = [*"abcx\nt: ", *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.normalizer = normalizers.Lowercase()
    lower = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    queries = [Query(text, ("b", "c")) for text in "bbbbabbbb"]
    found = tokenize_queries(lower, Template("X{text}\nT: {label}"), queries)
    for query, tokenized in zip(queries, found, strict=True):
        whole = [lower(f"X{query.text}\nT: {label}").input_ids for label in "bc"]
        assert [[*tokenized.prefix, *answer] for answer in tokenized.answers] == whole
    assert cut_in(lower, "\nT: ") == len("\nT: ")
