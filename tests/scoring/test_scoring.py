"""Candidates, their tokens and their scores."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
import torch
from conftest import readings_of, shared
from transformers import AutoTokenizer

from deepthink_cli import DemonstrationSet, Memory, Method, Query, predict, score, tokenize_queries
from deepthink_cli.data.examples import UNREADABLE, Skipped
from deepthink_cli.data.template import Template
from deepthink_cli.engine.base import Engine, ScoringPlan, Sums
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Progress
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.likelihood import NotFiniteError
from deepthink_cli.scoring.pipeline import (
    EVERY_REASON,
    NO_REASON,
    NOT_FINITE,
    SAME_TOKENS,
    TOO_LONG,
    UNSCORABLE,
    predicted,
    predictions,
)
from deepthink_cli.scoring.prediction import Prediction

PAIR = ("positive", "negative")


@pytest.fixture
def memory(llama: Engine, reviews: DemonstrationSet) -> Memory:
    return list(readings_of(llama, reviews, Method(2)))[-1]


def test_neither_order_nor_company_changes_a_score(llama: Engine, memory: Memory, reviews: DemonstrationSet) -> None:
    texts = ["short", "a much longer review than the one before it", "of middling length"]
    queries = tokenize_queries(llama.tokenizer, reviews.template, [Query(text, PAIR) for text in texts])
    together = score(llama, memory, queries)
    for query, found in zip(queries[::-1], together[::-1], strict=True):
        assert score(llama, memory, [query])[0].sums == pytest.approx(found.sums, abs=1e-5)


def test_what_every_query_begins_with_is_read_once(llama: Engine, memory: Memory, reviews: DemonstrationSet) -> None:
    texts = ["short", "shorter", "of middling length"]
    queries = tokenize_queries(llama.tokenizer, reviews.template, [Query(text, PAIR) for text in texts])
    plan = llama.plan(queries)
    shared_tokens = len(plan.shared)
    assert shared_tokens > 0
    assert all(query.prefix[:shared_tokens] == plan.shared for query in queries)
    alone = [llama.plan([query]) for query in queries]
    assert sum(map(len, plan.rows)) == sum(len(row) for one in alone for row in one.rows) - 3 * shared_tokens


def test_candidates_that_share_tokens_are_scored_to_their_ends(
    llama: Engine, memory: Memory, reviews: DemonstrationSet
) -> None:
    candidates = ("very", "very good", "very good indeed")
    (query,) = tokenize_queries(llama.tokenizer, reviews.template, [Query("fine", candidates)])
    assert query.answers[1][: len(query.answers[0])] == query.answers[0]
    sums = score(llama, memory, [query])[0].sums
    assert sums[0] > sums[1] > sums[2]


def test_the_probability_is_the_labels_share_among_the_candidates(llama: Engine, memory: Memory) -> None:
    (row,) = predict(llama, memory, ["a fine film"])
    shares = {label: math.exp(value) for label, value in row.scores.items()}
    assert row.probability == pytest.approx(shares[row.label] / sum(shares.values()))
    assert row.label == max(shares, key=lambda label: shares[label])


def test_predictions_come_in_the_order_of_the_inputs(llama: Engine, memory: Memory) -> None:
    texts = [("long " * (n % 7)) + str(n) for n in range(40)]
    assert [row.query.text for row in predict(llama, memory, iter(texts), chunk=16)] == texts


def test_predict_never_reads_further_ahead_than_three_chunks(llama: Engine, memory: Memory) -> None:
    taken: list[int] = []
    inputs = (taken.append(n) or str(n) for n in range(100))
    predictions = predict(llama, memory, inputs, chunk=8)
    next(predictions)
    time.sleep(0.2)
    assert len(taken) <= 24
    predictions.close()


def test_a_query_too_long_for_the_model_is_named(llama: Engine, memory: Memory) -> None:
    with pytest.raises(InputError, match=r"too long: \d+ tokens after \d+ of memory, .* holds 512"):
        list(predict(llama, memory, [Query("word " * 600, PAIR, where="inputs.jsonl:7")]))


def test_two_candidates_with_the_same_tokens_are_refused(llama: Engine, reviews: DemonstrationSet) -> None:
    tokenizer = llama.tokenizer
    assert tokenizer.encode("\ud7ff", add_special_tokens=False)
    with pytest.raises(InputError, match="are the same tokens"):
        tokenize_queries(tokenizer, reviews.template, [Query("x", ("yes", "yes"))])


def test_a_candidate_with_no_tokens_is_refused(llama: Engine, reviews: DemonstrationSet) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl:3: candidate '' has no tokens"):
        tokenize_queries(llama.tokenizer, reviews.template, [Query("x", ("yes", ""), where="rows.jsonl:3")])


@pytest.mark.parametrize("name", ["gpt2", "pythia", "llama2"])
def test_real_tokenizers_find_where_the_answer_starts(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(shared(f"tokenizers/{name}"))
    template = Template("Review: {text}\nSentiment: {label}")
    special = tokenizer.eos_token
    (query,) = tokenize_queries(tokenizer, template, [Query(f"fine {special}", ("positive", "12", "very bad"))])
    assert tokenizer.decode(query.prefix).endswith("Sentiment:")
    assert tokenizer.eos_token_id not in query.prefix
    for ids, word in zip(query.answers, ("positive", "12", "very bad"), strict=True):
        assert tokenizer.decode([*query.prefix, *ids]).endswith(f"Sentiment: {word}")


def test_the_label_after_a_line_break_starts_after_it(llama: Engine) -> None:
    (query,) = tokenize_queries(llama.tokenizer, Template("{text}\n{label}"), [Query("fine", PAIR)])
    assert llama.tokenizer.decode(query.prefix) == "fine\n"


def test_a_memory_as_a_cache_continues_in_generate(llama: Engine, memory: Memory) -> None:
    ids = torch.tensor([[7, 8, 9]])
    mask = torch.ones(1, memory.length + 3, dtype=torch.long)
    written = llama.model.network.generate(
        ids, attention_mask=mask, past_key_values=memory.as_cache(llama.model.dtype), max_new_tokens=1, do_sample=False
    )
    expected = (
        llama.model.network(**llama.model.inputs(ids, memory.as_cache(llama.model.dtype), memory.length))
        .logits[0, -1]
        .argmax()
    )
    assert written[0, -1] == expected


LABELS = ("positive", "negative")
GOOD = [Query("a warm film", LABELS, "positive", "row 1"), Query("far too long", LABELS, "negative", "row 2")]
NAN = Query("a film that overflows", LABELS, "positive", "overflows")
UNREAD = Skipped(("row 3: not JSON",))
BAD = [NAN, UNREAD, Query("fine " * 3000, LABELS, "positive", "row 4"), Query("a", ("yes", "yes"), "yes", "row 5")]


class Overflowing(PackedEngine):
    """Gives NaN for the row that is called `overflows`."""

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        sums = super().score(memories, plan)
        for of_memory in sums:
            for query, scores in zip(plan.queries, of_memory, strict=True):
                scores[0] = math.nan if query.where == "overflows" else scores[0]
        return sums


@pytest.fixture
def engine(llama: Engine) -> Engine:
    return Overflowing(llama.model)


@pytest.fixture
def memories(llama: Engine, reviews: DemonstrationSet) -> list[Memory]:
    return list(readings_of(llama, reviews, Method(2)))


def test_rows_keep_their_places(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [GOOD[0], *BAD, GOOD[1]], skip=EVERY_REASON)
    first, second, *bad, third, fourth = rows
    assert [each.reason for each in bad if isinstance(each, Skipped)] == [NOT_FINITE, UNREADABLE, TOO_LONG, SAME_TOKENS]
    assert bad[1] == UNREAD
    assert "overflows: the score of candidate 1 is nan" in bad[0].error
    good = [first, second, third, fourth]
    assert [(each.iteration, each.query) for each in good if isinstance(each, Prediction)] == [
        *((1, GOOD[0]), (2, GOOD[0]), (1, GOOD[1]), (2, GOOD[1]))
    ]


def test_a_chunk_of_bad_rows_has_no_predictions(engine: Engine, memories: list[Memory]) -> None:
    parts = list(predictions(engine, [memories], [*BAD, *GOOD], size=len(BAD), skip=EVERY_REASON))
    assert [len(predicted(part)) for part in parts] == [0, 4]


def test_other_rows_have_the_scores_they_have_alone(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [*BAD, *GOOD], skip=EVERY_REASON)
    alone = list(predict(engine, memories, GOOD))
    for row, expected in zip(predicted(rows), alone, strict=True):
        assert row.scores == pytest.approx(expected.scores, abs=1e-4)


def test_without_skipping_scores_that_are_not_finite_are_an_error(engine: Engine, memories: list[Memory]) -> None:
    for skip in (NO_REASON, UNSCORABLE):
        with pytest.raises(NotFiniteError, match="overflows: the score of candidate 1 is nan"):
            list(predictions(engine, [memories], [*GOOD, NAN], skip=skip))


def test_only_what_is_to_be_skipped_is(engine: Engine, memories: list[Memory]) -> None:
    (rows,) = predictions(engine, [memories], [*BAD[1:], *GOOD], skip=UNSCORABLE)
    reasons = [row.reason for row in rows if isinstance(row, Skipped)]
    assert reasons == [UNREADABLE, TOO_LONG, SAME_TOKENS]
    for row, reason in zip(BAD[2:], ("too long", "same tokens"), strict=True):
        with pytest.raises(InputError, match=reason):
            list(predictions(engine, [memories], [row, *GOOD]))


def test_progress_counts_every_row_of_a_chunk(engine: Engine, memories: list[Memory]) -> None:
    told, start = list[Event](), Progress("scoring", 10, 16)
    rows = [*BAD, *GOOD]
    loaded = Loaded(Scorer.open(memories), engine, [memories])
    list(loaded(rows, size=4, skip=EVERY_REASON, tell=told.append, progress=start))
    assert told == [Progress("scoring", 14, 16), Progress("scoring", 16, 16)]
