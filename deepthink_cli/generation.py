"""Generate answers to inputs after one or more iterations of a memory, one chunk at a time, and judge free answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import Query, Skipped, queries_of
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.decoding import Decoding, Finish, Prompt
from deepthink_cli.errors import InputError
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.chat import Conversation
from deepthink_cli.model.limits import check_continuation
from deepthink_cli.model.tokens import Written, query_tokenizer
from deepthink_cli.provenance import TokenizedDemonstrations, check_model
from deepthink_cli.scoring.pipeline import TOO_LONG, longest
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.format import Free
from deepthink_cli.tasks.judges import judge_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.memory import Memory

Show = Callable[[str], None]  # called with every piece of an answer
_UNFINISHED = "\ufffd"  # the text of the first bytes of a character


@dataclass(frozen=True)
class Continuation:
    """A generated text, without the stop string that ended it, and the reason of its end.

    `token_ids` are all generated tokens, with the stop string and the model's end of text.
    """

    text: str
    token_ids: tuple[int, ...]
    finish: Finish


@dataclass(frozen=True)
class Piece:
    """A piece of the continuation of the prompt at `place`; the last piece also has the whole continuation."""

    place: int
    text: str
    whole: Continuation | None = None


def continuations(
    engine: Engine, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding, show: Show | None = None
) -> list[Continuation]:
    """Continue every prompt after a memory, or without a memory; in order. Raises as `Engine.generate`.

    `show` is called with every piece of a text as it is generated.
    """
    wholes: dict[int, Continuation] = {}
    for piece in pieces(engine, memory, prompts, decoding):
        if show is not None:
            show(piece.text)
        if piece.whole is not None:
            wholes[piece.place] = piece.whole
    return [wholes[place] for place in range(len(prompts))]


def pieces(engine: Engine, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Piece]:
    """Yield the texts that continue the prompts as they are generated; raises as `Engine.generate`.

    Text is held back while it may be the beginning of a stop string, or of a character of several tokens.
    """
    texts = [_GrowingText(engine.tokenizer, decoding.stop or ()) for _ in prompts]
    for token in engine.generate(memory, prompts, decoding):
        text = texts[token.place]
        added = text.add(token.id, token.finish)
        whole = None if token.finish is None else Continuation(text.shown, tuple(text.ids), token.finish)
        if added or whole is not None:
            yield Piece(token.place, added, whole)


class _GrowingText:
    """The text of one continuation: its tokens, and the length of the text that was shown."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> None:
        self._tokenizer: Any = tokenizer
        self._stop = stop
        self.ids: list[int] = []
        self.shown = ""

    def add(self, token: int, finish: Finish | None) -> str:
        """The text that can be shown after another token."""
        self.ids.append(token)
        ids = self.ids[:-1] if finish == "end" else self.ids
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if finish is None:
            text = text.rstrip(_UNFINISHED)
            begun = [n for stop in self._stop for n in range(1, len(stop) + 1) if text.endswith(stop[:n])]
            text = text[: len(text) - max(begun, default=0)]
        else:
            text = text[: min((text.index(stop) for stop in self._stop if stop in text), default=None)]
        added = text[len(self.shown) :] if text.startswith(self.shown) else ""
        if added or finish is not None:
            self.shown = text
        return added


CHUNK = 64  # inputs whose answers are generated together


@dataclass(frozen=True)
class Generation:
    """The answer that one iteration of a memory generates to one query.

    `text` is the generated text, without the stop string that ended it. `tokens` counts all generated tokens; `finish`
    is the reason of the text's end.
    """

    query: Query
    iteration: int
    text: str
    tokens: int
    finish: Finish


def generate(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | str | Mapping[str, str]],
    decoding: Decoding | None = None,
    chunk: int = CHUNK,
) -> Iterator[Generation]:
    """Yield the generated answer to every input, in order; with several memories, an answer by each, input by input.

    Inputs are queries, or texts (strings, or the template's named fields). Without stop strings in `decoding`, an
    answer ends as in the demonstrations: at the separator, or at the end of a turn in a chat. Answers to `chunk` inputs
    are generated together. Raises InputError for an input that does not fit the template or, together with its new
    tokens, the model's context.
    """
    from deepthink_cli.memory import Memory

    memories = [memory] if isinstance(memory, Memory) else list(memory)
    for part in generate_or_skip(engine, memories, queries_of(inputs, ()), decoding or Decoding(), chunk, skip=False):
        yield from (each for each in part if isinstance(each, Generation))


def generate_or_skip(
    engine: Engine,
    memories: Sequence[Memory],
    rows: Iterable[Query | Skipped],
    decoding: Decoding,
    chunk: int = CHUNK,
    skip: bool = True,
    show: Show | None = None,
    written: Written | None = None,
) -> Iterator[list[Generation | Skipped]]:
    """Yield the answers to every chunk of rows, with `Skipped` in the place of a row that cannot be answered.

    `written` writes the queries. `show` is called with pieces of the answers as they are generated. Without `skip`,
    raises as `generate` does.
    """
    provenance, placed = longest(memories).provenance, [engine.place(memory) for memory in memories]
    if provenance is None:
        raise InputError("this memory has no template; use one from think() or load_memory()")
    check_model(provenance, engine.identity, "this memory")
    decoding = ended(decoding, engine.tokenizer, provenance.demonstrations)
    tokenize = query_tokenizer(engine.tokenizer, provenance.demonstrations, written)
    length = len(provenance.demonstrations.token_ids)

    def prompted(number: int, row: Query | Skipped) -> Prompt | Skipped:
        if isinstance(row, Skipped):
            return row
        try:
            (ids,), where = tokenize.prompts([row]), row.where or f"input {number + 1}"
            check_continuation(engine.limits, engine.identity.id, length, ids, decoding.max_new_tokens, where)
            engine.check_ids(ids, where)
        except InputError as error:
            if not skip:
                raise
            return Skipped(error.problems, TOO_LONG, row.fields)
        return Prompt(ids, decoding.seed + number, where)

    remaining = enumerate(rows)
    while part := list(islice(remaining, chunk)):
        prepared = [prompted(number, row) for number, row in part]
        prompts = [prompt for prompt in prepared if isinstance(prompt, Prompt)]
        answers = [iter(continuations(engine, memory, prompts, decoding, show)) for memory in placed]
        answered: list[Generation | Skipped] = []
        for (_, row), prompt in zip(part, prepared, strict=True):
            if isinstance(prompt, Skipped):
                answered.append(prompt)
                continue
            assert isinstance(row, Query)
            for memory, of_memory in zip(memories, answers, strict=True):
                text = next(of_memory)
                answered.append(Generation(row, memory.iteration, text.text, len(text.token_ids), text.finish))
        yield answered


def ended(decoding: Decoding, tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> Decoding:
    """The decoding with stop strings: its own, or the text that follows an answer in the demonstrations."""
    if decoding.stop is not None:
        return decoding
    chat = demonstrations.chat
    end = demonstrations.template.separator if chat is None else Conversation(tokenizer, demonstrations, chat).end()
    end = end if chat is None else end.strip()
    return decoding.model_copy(update={"stop": (end,) if end else ()})


def answered(
    engine: Engine,
    memories: Sequence[Memory],
    free: Free,
    queries: Iterable[Query | Skipped],
    written: Written | None = None,
    tell: Tell = silent,
    progress: Progress | None = None,
) -> Iterator[Prediction | Skipped]:
    """Yield every query's answers, one by each memory, in order: greedily generated, and judged by the task's judge.

    A prediction's `label` is the answer found in the generated `text`; the `gold` of its query is the compared part of
    the true answer; there are no scores. `written` writes the queries. Rows that are too long are skipped. `tell` is
    called with the `progress` after every row, as in `scoring.pipeline`.
    """
    stop = None if free.stop is None else tuple(free.stop)
    decoding = Decoding(max_new_tokens=free.max_new_tokens, stop=stop)
    for each in chain.from_iterable(generate_or_skip(engine, memories, queries, decoding, written=written)):
        yield each if isinstance(each, Skipped) else judged(free, each)
        if progress is not None and (isinstance(each, Skipped) or each.iteration == memories[-1].iteration):
            progress = replace(progress, done=progress.done + 1)
            tell(progress)


def judged(free: Free, generation: Generation) -> Prediction:
    """A generated answer as a prediction; it is right if its label is the true answer."""
    query, gold = generation.query, generation.query.gold
    assert gold is not None
    gold, label = judge_of(free).answers(free, gold, generation.text, query.fields or {})
    return Prediction(
        query=replace(query, gold=gold),
        iteration=generation.iteration,
        label=label,
        probability=1.0,
        scores={},
        label_mean_per_token=label,
        tied=False,
        means={},
        text=generation.text,
    )
