"""Demonstrations, queries and candidates as token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import ORDINARY, Boundary, boundary, common_length, cut_in, encode, followed
from deepthink_cli.model.chat import Conversation
from deepthink_cli.provenance import TokenizedDemonstrations

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_FEW = 8  # for so few queries with the same candidates, a cut of their text is not searched


@dataclass(frozen=True)
class TokenizedQuery:
    """Token ids of a query: the prefix that its candidates share, and the tokens of each candidate.

    `prefix` [q] is the longest common start of the query alone and of the query with every candidate; `answers[i]`
    [c_i] are the ids that candidate i adds. `where` names the query in messages.
    """

    prefix: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    where: str = ""

    @property
    def ids(self) -> Iterator[int]:
        """Every token of the query and its candidates."""
        return chain(self.prefix, *self.answers)

    @property
    def longest(self) -> int:
        """The number of tokens of the query with its longest candidate."""
        return len(self.prefix) + max(map(len, self.answers))

    @property
    def extended(self) -> dict[int, int]:
        """The numbers of candidates whose ids begin with another candidate's ids, each with the other's number."""
        numbers = {answer: number for number, answer in enumerate(self.answers)}
        lengths = sorted({len(answer) for answer in numbers})  # not every length: a label may have megabytes
        starts = {
            number: [numbers[answer[:end]] for end in lengths if end < len(answer) and answer[:end] in numbers]
            for answer, number in numbers.items()
        }
        return {number: others[0] for number, others in starts.items() if others}


def tokenize_demonstrations(
    tokenizer: PreTrainedTokenizerBase, demonstrations: DemonstrationSet
) -> TokenizedDemonstrations:
    """Tokenise solved examples, as the beginning of a prompt (`model.boundary`), or as turns if they have a `chat`.

    Demonstrations that are `apart` are separate texts, each with the special tokens of a text. Raises InputError as
    `Conversation`, for a chat that the tokenizer's chat template cannot write.
    """
    given = {each.name: getattr(demonstrations, each.name) for each in fields(DemonstrationSet)}
    if demonstrations.chat is not None:
        conversation = Conversation(tokenizer, demonstrations, demonstrations.chat)
        given |= {"chat": conversation.chat, "apart": False}
        return TokenizedDemonstrations(**given, token_ids=conversation.token_ids)
    solved = solved_texts(demonstrations)
    groups = [[each] for each in solved] if demonstrations.apart else [solved]
    texts = [boundary(tokenizer, demonstrations.template, group).ids for group in groups]
    parts = tuple(map(len, texts)) if demonstrations.apart else ()
    return TokenizedDemonstrations(**given, token_ids=tuple(chain.from_iterable(texts)), parts=parts)


def check_known(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int], known: int, model: str, where: str) -> None:
    """Raise InputError, prefixed with `where`, for a token id beyond the `known` rows of a model's embedding."""
    largest = max(ids, default=0)
    if largest >= known:
        raise InputError(
            f"{where}: {tokenizer.decode([largest])!r} is token {largest} of the tokenizer, and {model} knows {known} "
            "tokens; change the text, or save the model with its embedding resized to the tokenizer "
            "(resize_token_embeddings)"
        )


@dataclass(frozen=True)
class AfterLabel:
    """The text between a label and the next demonstration's own text, and its ids `alone`.

    `ids` gives the token ids of texts after the demonstrations. The text is empty if the separator is.
    """

    text: str
    alone: list[int]
    ids: Callable[[Sequence[str]], list[list[int]]]


Ended = Callable[[Mapping[str, list[int]]], Mapping[str, list[int]]]  # the ids of texts with a candidate, with its end


class Written(Protocol):
    """The part of a `Scoring` that writes queries and the ends of their candidates."""

    def written(self, asked: str) -> str:
        """The text of a query up to the end of its last field, given that text as the template writes it."""

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """The function that gives candidates further tokens; None for none."""


def tokenize_queries(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Template | TokenizedDemonstrations,
    queries: Sequence[Query],
    scoring: Written | None = None,
) -> list[TokenizedQuery]:
    """Tokenise every query with each of its candidates, after demonstrations, or by a template without demonstrations.

    Raises InputError, naming the query, for a candidate that adds no token, and for two that add the same tokens; with
    a chat, raises as `Conversation`; also raises as the scoring does.
    """
    return query_tokenizer(tokenizer, prompt, scoring)(queries)


def query_tokenizer(
    tokenizer: PreTrainedTokenizerBase, prompt: Template | TokenizedDemonstrations, scoring: Written | None = None
) -> QueryTokenizer:
    """The tokenisation of queries, prepared once for many calls; raises InputError as `tokenize_queries`.

    Without a scoring, queries are as the template writes them, and their candidates have no end.
    """
    written, ended = (str, None) if scoring is None else (scoring.written, scoring.ended)
    if isinstance(prompt, TokenizedDemonstrations) and prompt.chat is not None:
        conversation = Conversation(tokenizer, prompt, prompt.chat)
        if conversation.token_ids != prompt.token_ids:
            raise InputError(
                "the chat template writes the demonstrations in another way than when this memory was made; "
                "run deepthink think again"
            )

        def after() -> AfterLabel:
            text = conversation.after_reply()
            return AfterLabel(text, conversation.ids([text])[0], conversation.ids)

        of_turns = partial(conversation.texts, written=written)
        return QueryTokenizer(of_turns, conversation.ids, conversation.added, ended and ended(after))
    template, word = (prompt, str) if isinstance(prompt, Template) else (prompt.template, prompt.word)
    between = end_of_demonstrations(tokenizer, prompt)

    def texts(query: Query) -> tuple[str, list[str]]:
        start = template.query(query.text, written)
        return start, [start + word(candidate) for candidate in query.candidates]

    ids = partial(between.after, tokenizer)
    return QueryTokenizer(
        texts,
        ids,
        ended=ended and ended(lambda: after_label(tokenizer, template, ids)),
        after_cut=cache(lambda: len(template.introduction) - cut_in(tokenizer, template.introduction)),
    )


def after_label(
    tokenizer: PreTrainedTokenizerBase, template: Template, ids: Callable[[Sequence[str]], list[list[int]]]
) -> AfterLabel:
    """The separator and the text after it; `ids` gives the token ids of texts after the demonstrations."""
    text = followed(template, template.separator) if template.separator else ""
    return AfterLabel(text, encode(tokenizer, [text], special=False)[0], ids)


def end_of_demonstrations(
    tokenizer: PreTrainedTokenizerBase, prompt: Template | TokenizedDemonstrations, name: str = "this memory"
) -> Boundary:
    """The boundary between demonstrations without a chat and a query; a template stands for no demonstrations.

    Raises InputError, with the memory's name, if the tokenizer now writes the demonstrations differently.
    """
    if isinstance(prompt, Template):
        return Boundary()
    texts = solved_texts(prompt)
    found = boundary(tokenizer, prompt.template, texts[-1:] if prompt.parts else texts)
    if texts and found.ids != prompt.texts[-1]:
        raise InputError(
            f"{name}: the tokenizer writes the demonstrations in another way than when it was made; run deepthink "
            "think again"
        )
    return found


def solved_texts(demonstrations: DemonstrationSet) -> list[str]:
    """The text of every demonstration, with the separator after it."""
    template, word = demonstrations.template, demonstrations.word
    return [template.demonstrations([(each.text, word(each.label))]) for each in demonstrations.examples]


@dataclass(frozen=True)
class QueryTokenizer:
    """Tokenises queries by two functions: the texts of a query, without and with each candidate, and ids of texts.

    `added` is the number of bytes that a chat template writes around a query's own text. `ended` gives candidates
    further tokens, if they have any. `after_cut` gives the number of characters at the end of every query whose tokens
    do not depend on the text before them; 0 if unknown.
    """

    texts: Callable[[Query], tuple[str, list[str]]]
    ids: Callable[[Sequence[str]], list[list[int]]]
    added: int = 0
    ended: Ended | None = None
    after_cut: Callable[[], int] = lambda: 0

    def __call__(self, queries: Sequence[Query]) -> list[TokenizedQuery]:
        """Tokenise every query with each of its candidates; raises InputError as `tokenize_queries`.

        Among queries with the same candidates, two are tokenised with each candidate. If the same tokens result for
        both from their start and a cut (`model.cuts`), only the start of the other queries is tokenised.
        """
        candidates, count = Counter(query.candidates for query in queries).most_common(1)[0] if queries else ((), 0)
        if count < _FEW or not self.after_cut():
            return self._whole(queries)
        alike = [query for query in queries if query.candidates == candidates]
        others = [query for query in queries if query.candidates != candidates]
        first, last, *whole = self._whole([alike[0], alike[-1], *others])
        starts = self.ids([self.texts(query)[0][: -self.after_cut()] for query in alike])
        rest = first.prefix[len(starts[0]) :]
        found = [
            TokenizedQuery((*start, *rest), first.answers, query.where)
            for query, start in zip(alike, starts, strict=True)
        ]
        if (found[0], found[-1]) != (first, last):
            return self._whole(queries)
        of_alike, of_others = iter(found), iter(whole)
        return [next(of_alike if query.candidates == candidates else of_others) for query in queries]

    def _whole(self, queries: Sequence[Query]) -> list[TokenizedQuery]:
        """Every query, tokenised with each of its candidates."""
        # The query without and with the space before its label, and with every candidate. The space is part of the
        # label's first token, never of the query.
        texts = [[start.rstrip(" "), start, *whole] for start, whole in map(self.texts, queries)]
        every = list(dict.fromkeys(text for of_query in texts for text in of_query))
        ids = dict(zip(every, self.ids(every), strict=True))
        wholes = {text: ids[text] for of_query in texts for text in of_query[2:]}
        ended = wholes if self.ended is None else self.ended(wholes)
        return [
            _spans(query, *(ids[text] for text in of_query), ended=[ended[text] for text in of_query[2:]])
            for query, of_query in zip(queries, texts, strict=True)
        ]

    def prompts(self, queries: Sequence[Query]) -> list[tuple[int, ...]]:
        """The ids of every query up to its answer, for generation; candidates are not used."""
        starts = [self.texts(replace(query, candidates=()))[0].rstrip(" ") for query in queries]
        return [tuple(ids) for ids in self.ids(starts)]


def ordinary_ids(tokenizer: PreTrainedTokenizerBase, known: int, count: int) -> list[int]:
    """`count` token ids below `known` from an ordinary text, repeated if it is too short."""
    ids = [token for token in encode(tokenizer, [ORDINARY], special=True)[0] if token < known] or [0]
    return (ids * (count // len(ids) + 1))[:count]


def _spans(
    query: Query, alone: list[int], spaced: list[int], *together: list[int], ended: Sequence[list[int]]
) -> TokenizedQuery:
    """Prefix and answer ids, from the ids of a query's texts; `ended` are the ids of candidates with their ends."""
    start = min(common_length(alone, ids) for ids in ended)
    answers = tuple(tuple(ids[start:]) for ids in ended)
    where = f"{query.where}: " if query.where else ""
    for number, answer in enumerate(answers):
        if not answer or together[number] == spaced:
            raise InputError(
                f"{where}candidate {query.candidates[number]!r} has no tokens after the query; use another word"
            )
        if answer in answers[:number]:
            other = query.candidates[answers.index(answer)]
            raise InputError(
                f"{where}candidates {other!r} and {query.candidates[number]!r} are the same tokens; keep one"
            )
    if start == 0:
        raise InputError(f"{where}there is no text before the label; put text before it in the template")
    return TokenizedQuery(tuple(alone[:start]), answers, query.where)
