"""Pools of labelled rows: their order, and the rows that cannot be chosen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.tiny import tiny_task

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import boundary, demonstration_ids, special_ids
from deepthink_cli.model.limits import Limits
from deepthink_cli.selection.pool import IDENTICAL, TOO_LONG, PoolRows, pool_of_file
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.rows import pool_of_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import EvaluationSet, evaluation_set

TEMPLATE = Template("Review: {text}\nSentiment: {label}")
LABELS = ("negative", "positive")
ROWS: list[dict[str, object]] = [{"id": n, "text": f"film {n}", "label": LABELS[n % 2]} for n in range(20)]


def pool(count: int = 20) -> PoolRows:
    """A pool of short rows."""
    return PoolRows.of("rows", [Query(f"film {n}", LABELS, LABELS[n % 2]) for n in range(count)], TEMPLATE, LABELS)


def texts(pool: PoolRows) -> list[object]:
    """The texts that can be chosen, in content order."""
    return [pool.queries[place].text for place in pool.free]


@pytest.fixture
def tiny(tmp_path: Path) -> EvaluationSet:
    """The evaluated rows of the tiny task."""
    path, data = tiny_task(tmp_path)
    return evaluation_set(find_task(str(path)), "paper", Source(data))


def test_the_order_and_the_labels_do_not_depend_on_the_order_of_the_file(tmp_path: Path) -> None:
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    pools = [pool_of_file(str(write_rows(tmp_path / f"{n}.jsonl", rows))) for n, rows in enumerate((ROWS, shuffled))]
    assert [pools[0].queries[place].fields for place in pools[0].free] == [
        pools[1].queries[place].fields for place in pools[1].free
    ]
    assert pools[0].sha256 == pools[1].sha256
    assert pools[0].labels == pools[1].labels == LABELS


def test_a_sample_does_not_depend_on_the_order_of_the_file_and_is_drawn_with_the_seed() -> None:
    reverse = PoolRows.of("rows", reversed(pool().queries), TEMPLATE, LABELS)
    assert texts(pool().sampled(5, seed=1)) == texts(reverse.sampled(5, seed=1))
    assert texts(pool().sampled(5, seed=1)) != texts(pool().sampled(5, seed=2))
    assert pool().sampled(5, seed=1).reasons == {"not in the sample of the pool": 15}
    assert pool().sampled(99, seed=1).reasons == {}


def test_identical_rows_are_counted_and_only_one_can_be_chosen(tmp_path: Path) -> None:
    rows = [
        *ROWS,
        {"id": 99, "text": " film 4 ", "label": "negative"},
        {"id": 98, "text": "film 4", "label": "positive"},
    ]
    template = "Review: {text}\nSentiment: {label}"
    duplicated = pool_of_file(str(write_rows(tmp_path / "rows.jsonl", rows)), template)
    assert duplicated.reasons == {IDENTICAL: 1}
    assert duplicated.set_aside == {20: IDENTICAL}
    assert texts(duplicated).count("film 4") == 2  # with both labels


def test_rows_that_do_not_fit_as_a_query_or_as_a_demonstration_are_set_aside(llama: Engine) -> None:
    tokenizer, rows = llama.tokenizer, [Query("a " * n + "film", LABELS, LABELS[n % 2]) for n in range(30)]
    lengths = [
        len(boundary(tokenizer, TEMPLATE, [TEMPLATE.demonstrations([(row.text, str(row.gold))])]).ids) for row in rows
    ]
    most = sorted(lengths)[15]
    fitting = PoolRows.of("rows", rows, TEMPLATE, LABELS).fitting(tokenizer, Limits(most, None, False))
    assert {place for place, reason in fitting.set_aside.items() if reason == TOO_LONG} == {
        place for place, length in enumerate(lengths) if length > most
    }
    unlimited = PoolRows.of("rows", rows, TEMPLATE, LABELS).fitting(tokenizer, Limits(None, None, True))
    assert not unlimited.set_aside


def test_special_ids_are_those_before_a_text(llama: Engine) -> None:
    ids = special_ids(llama.tokenizer)
    assert demonstration_ids(llama.tokenizer, "a film")[: len(ids)] == list(ids)
    assert ids == ((llama.tokenizer.bos_token_id,) if llama.tokenizer("a film")["input_ids"][0] in ids else ())


def test_a_task_s_pool_is_its_training_rows_without_evaluated_texts(tiny: EvaluationSet) -> None:
    rows = pool_of_task(tiny.task, tiny)
    assert len(rows.free) == 20
    assert rows.row(0) == {"text": "a warm play 0", "kind": "positive"}
    assert rows.name == "tiny"


def test_a_file_with_evaluated_rows_is_refused_by_line(tiny: EvaluationSet, tmp_path: Path) -> None:
    rows = [{"text": "a warm play", "kind": "positive"}, *({"text": query.text, "kind": query.gold} for query in tiny)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(
        InputError, match=r"rows.jsonl:2: in split test, which task tiny evaluates, and so are 11 other"
    ):
        pool_of_task(tiny.task, tiny, str(path))
    allowed = pool_of_task(tiny.task, tiny, str(write_rows(tmp_path / "one.jsonl", rows[:1])))
    assert allowed.row(0) == rows[0]


def test_candidates_of_a_row_do_not_hide_that_its_text_is_evaluated(tiny: EvaluationSet, tmp_path: Path) -> None:
    row = {"text": next(iter(tiny)).text, "candidates": ["positive", "negative", "mixed"], "kind": "positive"}
    with pytest.raises(InputError, match=r"rows.jsonl:1: in split test, which task tiny evaluates; remove"):
        pool_of_task(tiny.task, tiny, str(write_rows(tmp_path / "rows.jsonl", [row])))


def test_rows_with_candidates_of_their_own_keep_them(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "2 + 2?", "candidates": ["3", "4"], "answer": "4"},
        {"question": "3 + 2?", "candidates": ["5", "6"], "answer": "5"},
    ]
    own = pool_of_file(str(write_rows(tmp_path / "rows.jsonl", rows)))
    assert own.labels == ()
    assert [own.row(place) for place in (0, 1)] == rows


def test_every_mistake_of_a_file_is_reported(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "a", "label": "x"}, {"text": "b"}, {"text": "", "label": "y"}]
    with pytest.raises(InputError) as error:
        pool_of_file(str(write_rows(tmp_path / "rows.jsonl", rows)))
    assert [message.rpartition(":")[0] for message in error.value.messages]
    assert len(error.value.messages) == 2
