"""A text is cut only where its tokens are those of its two parts, and queries are never tokenised in another way."""

from __future__ import annotations

import pytest
from helpers.texts import TOKENIZERS, tokenizer_of
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.model.boundary import cut_in
from deepthink_cli.model.tokens import tokenize_queries

CORPUS = ["a warm film\nSentiment: positive", "a dull film\nSentiment: negative", "warm and dull\nTopic: film"] * 9
TEMPLATE = Template("Review: {text}\nSentiment: {label}")
WORDS = (
    "a warm film",
    "dull",
    "Sentiment",
    "Sentiment:",
    "no.",
    "film a",
    "1",
    "é",
    "a  film",
    "films a",
    "warm a film",
)


def trained(pattern: str | None, together: str = "") -> PreTrainedTokenizerBase:
    """A BPE of bytes trained on the corpus, whose words are divided by a pattern, with another token of its own."""
    tokenizer = Tokenizer(models.BPE())
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    parts = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*parts, whole])
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if together:
        tokenizer.add_tokens([together])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def as_whole_texts(tokenizer: PreTrainedTokenizerBase, queries: list[Query]) -> list[list[list[int]]]:
    """The tokens of each query with each candidate, of a text at a time."""
    return [
        [
            tokenizer(TEMPLATE.query(query.text) + word, add_special_tokens=False, split_special_tokens=True).input_ids
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
    assert cut_in(trained(None), text) is None


def test_a_token_that_holds_both_sides_prevents_the_cut() -> None:
    assert cut_in(trained(None), "\nSentiment: ") == len("\nSentiment")
    assert cut_in(trained(None, together="ment:"), "\nSentiment: ") is None
    assert cut_in(trained(None, together="ment:"), "\nSentiment: yes? ") == len("\nSentiment: yes")


def test_models_of_other_kinds_have_no_cut() -> None:
    vocabulary = {"[UNK]": 0, "Sentiment": 1, ":": 2}
    for model in (models.WordLevel(vocabulary, unk_token="[UNK]"), models.WordPiece(vocabulary, unk_token="[UNK]")):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
        assert cut_in(tokenizer, "\nSentiment: ") is None


@pytest.mark.parametrize("pattern", [r"film(?=\nSentiment:)|\n|[^\n]", r"(?<=a )film|."])
def test_a_pattern_that_looks_at_what_follows_prevents_the_cut(pattern: str) -> None:
    assert cut_in(trained(pattern), "\nSentiment: ") is None


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
    queries = [Query(text, ("positive", "negative")) for text in WORDS] + [Query("warm", ("positive", "dull"))]
    found = tokenize_queries(tokenizer, TEMPLATE, queries)
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
    assert cut_in(lower, "\nT: ") is None
