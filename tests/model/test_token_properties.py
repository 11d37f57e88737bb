"""What holds of every text and every candidate, with three real tokenizers."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest
from helpers.texts import TEMPLATE, TEXT, TOKENIZERS, WORDS, tokenizer_of
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from deepthink_cli import DemonstrationSet, Example
from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import encode
from deepthink_cli.model.tokens import tokenize_demonstrations, tokenize_queries

QUERY = st.builds(Query, WORDS, st.lists(WORDS, min_size=1, max_size=4, unique=True).map(tuple))


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return tokenizer_of(request.param)


def ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """A text's tokens, alone, as the tokenizer's own library has them."""
    found: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return found


def assert_as_one_by_one(tokenizer: PreTrainedTokenizerBase, template: Template, queries: list[Query]) -> None:
    alone = []
    for query in queries:
        try:
            alone += tokenize_queries(tokenizer, template, [query])
        except InputError:
            assume(False)
    assert tokenize_queries(tokenizer, template, queries) == alone


@given(TEMPLATE, QUERY)
def test_a_query_and_its_answer_are_the_tokens_of_the_whole_text(
    tokenizer: PreTrainedTokenizerBase, template: Template, query: Query
) -> None:
    start = template.query(query.text)
    whole = [ids(tokenizer, start + candidate) for candidate in query.candidates]
    alone = ids(tokenizer, start.rstrip(" "))
    together = zip(alone, *whole, strict=False)
    common = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, together)]
    spaced = ids(tokenizer, start)
    same = len({tuple(one) for one in whole}) < len(whole)
    wrong = same or not common or any(one in (common, spaced) for one in whole)
    try:
        (found,) = tokenize_queries(tokenizer, template, [query])
    except InputError:
        assert wrong
        return
    assert not wrong
    assert [list(found.prefix + answer) for answer in found.answers] == whole
    assert list(found.prefix) == common  # so that no token of it holds a part of a label, or the space before it


@given(TEMPLATE, st.lists(QUERY, min_size=1, max_size=4))
def test_queries_together_are_queries_one_by_one(
    tokenizer: PreTrainedTokenizerBase, template: Template, queries: list[Query]
) -> None:
    assert_as_one_by_one(tokenizer, template, queries)


@given(TEMPLATE, st.lists(WORDS, min_size=8, max_size=12), st.lists(WORDS, min_size=1, max_size=4, unique=True))
def test_queries_with_the_same_candidates_are_queries_one_by_one(
    tokenizer: PreTrainedTokenizerBase, template: Template, texts: list[str], candidates: list[str]
) -> None:
    queries = [Query(text, tuple(candidates)) for text in texts]
    assert_as_one_by_one(tokenizer, template, queries)


@given(st.lists(TEXT, min_size=1, max_size=4), st.booleans())
def test_texts_together_are_texts_one_by_one(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], special: bool
) -> None:
    assert encode(tokenizer, texts, special) == [encode(tokenizer, [text], special)[0] for text in texts]


@given(TEXT)
def test_a_special_token_written_in_a_text_is_no_special_token(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert not set(encode(tokenizer, [text], special=False)[0]) & set(tokenizer.all_special_ids)


@given(TEMPLATE, st.lists(st.builds(Example, WORDS, WORDS), min_size=1, max_size=4))
def test_tokens_of_parts_are_the_tokenizers_own_start_and_the_text_alone(
    tokenizer: PreTrainedTokenizerBase, template: Template, examples: list[Example]
) -> None:
    given = DemonstrationSet.of(examples, replace(template, tokens="parts"))
    text = "".join(template.query(one.text) + one.label + template.separator for one in examples)
    token_ids = list(tokenize_demonstrations(tokenizer, given).token_ids)
    start = tokenizer("")["input_ids"]
    assert token_ids == start + ids(tokenizer, text)
    assert not set(ids(tokenizer, text)) & set(tokenizer.all_special_ids)
