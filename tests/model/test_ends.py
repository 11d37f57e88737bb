"""The end of a candidate: the first token of what follows a label among the demonstrations."""

from __future__ import annotations

import pytest
from conftest import REVIEWS, TEMPLATE, shared
from helpers.chats import MARKS, chat_tokenizer, turns, whole_ids
from helpers.families import build_tokenizer
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from deepthink_cli import Chat, DemonstrationSet, Example, Query, tokenize_demonstrations, tokenize_queries
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.scoring.scoring import Scoring

END = Scoring.of(score="end")

WORDS = ("bug", "bug report", "feature")
KIND = Template("Text: {text}\nKind: {kind}")


def with_separator(tokenizer: PreTrainedTokenizerBase, template: Template, text: str, label: str) -> list[int]:
    """The ids of a query, a label, the separator and what follows it among the demonstrations."""
    ids = tokenizer.encode(template.query(text) + label + template.separator + "Text: it", add_special_tokens=False)
    return list(ids)


def joining(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """A tokenizer of characters that joins some of them, also across words."""
    characters = sorted({*"text: kindab.#\nTKeu"})
    vocabulary = {token: number for number, token in enumerate([*characters, *map("".join, merges)])}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, list(merges))))


@pytest.mark.parametrize("name", [None, "gpt2", "pythia", "llama2"])
@pytest.mark.parametrize("separator", ["\n\n", pytest.param("\n", marks=pytest.mark.soak), "\n###\n"])
def test_the_end_is_the_first_token_of_the_separator(name: str | None, separator: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(shared(f"tokenizers/{name}")) if name else build_tokenizer()
    template = Template(KIND.pattern, separator)
    (plain,) = tokenize_queries(tokenizer, template, [Query("it fails", WORDS)])
    (query,) = tokenize_queries(tokenizer, template, [Query("it fails", WORDS)], END)
    assert query.prefix == plain.prefix
    for label, answer, without in zip(WORDS, query.answers, plain.answers, strict=True):
        assert answer[:-1] == without
        whole = with_separator(tokenizer, template, "it fails", label)
        assert whole[: len(query.prefix) + len(answer)] == [*query.prefix, *answer]


def test_a_label_that_begins_with_another_shares_its_tokens_after_the_same_prefix() -> None:
    (alone,) = tokenize_queries(build_tokenizer(), KIND, [Query("it fails", ("feature",))])
    (query,) = tokenize_queries(build_tokenizer(), KIND, [Query("it fails", WORDS)])
    bug, report, _ = query.answers
    assert query.prefix == alone.prefix
    assert report[: len(bug)] == bug
    assert query.extended == {1: 0}


def test_with_an_end_no_label_begins_with_another() -> None:
    (query,) = tokenize_queries(build_tokenizer(), KIND, [Query("it fails", WORDS)], END)
    assert query.extended == {}


@pytest.mark.parametrize(
    ("merges", "label", "separator", "last"),
    [
        ([(".", "\n")], "a.", "\n\n", ["a", ".\n"]),
        ([("a", "."), (".", "\n")], "a.", "\n", ["a.", "\n"]),
        ([(".", "\n"), ("a", ".")], "a.", "\n\n", ["a", ".\n"]),
    ],
)
def test_a_token_that_joins_the_label_and_the_separator_is_the_end(
    merges: list[tuple[str, str]], label: str, separator: str, last: list[str]
) -> None:
    tokenizer, template = joining(*merges), Template("Text: {text}\nKind:{kind}", separator)
    (query,) = tokenize_queries(tokenizer, template, [Query("e", (label, "b"))], END)
    assert tokenizer.convert_ids_to_tokens(list(query.answers[0])) == last
    assert tokenizer.convert_ids_to_tokens(list(query.answers[1])) == ["b", "\n"]


@pytest.mark.parametrize("name", MARKS)
def test_the_end_in_a_chat_is_the_token_after_the_reply(name: str) -> None:
    tokenizer = chat_tokenizer(name)
    examples = [Example(text, label) for text, label in REVIEWS]
    read = tokenize_demonstrations(tokenizer, DemonstrationSet.of(examples, TEMPLATE, chat=Chat()))
    (query,) = tokenize_queries(tokenizer, read, [Query("a joy", ("positive", "so very good"))], END)
    pairs = [(f"Review: {text}\nSentiment:", label) for text, label in REVIEWS]
    conversation = turns(pairs, "Review: a joy\nSentiment:")
    for label, answer in zip(("positive", "so very good"), query.answers, strict=True):
        whole = whole_ids(tokenizer, [*conversation, {"role": "assistant", "content": label}])
        expected = whole[len(read.token_ids) + len(query.prefix) :]
        assert list(answer) == expected[: len(answer)]
        assert answer[-1] in tokenizer.all_special_ids
        assert answer[-2] not in tokenizer.all_special_ids


def test_without_a_separator_the_score_is_refused_with_a_hint() -> None:
    reason = r"^score end: the separator after the demonstrations is empty; use score sum or mean$"
    with pytest.raises(InputError, match=reason):
        tokenize_queries(build_tokenizer(), Template(KIND.pattern, ""), [Query("it fails", WORDS)], END)


def test_a_tokenizer_without_a_token_for_what_follows_a_label_is_refused() -> None:
    vocabulary = {token: number for number, token in enumerate("kindug")}  # others are left out
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, [])))
    with pytest.raises(InputError, match=r"^score end: the tokenizer writes no token .*; use score sum or mean$"):
        tokenize_queries(tokenizer, Template("X{text}Y kind{label}"), [Query("k", ("ug", "ku"))], END)
