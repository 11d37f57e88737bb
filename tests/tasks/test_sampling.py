"""Which rows are evaluated, which are demonstrations, and where they come from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from conftest import shared, write_rows
from helpers.tiny import reviews, tiny_task

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.tasks.catalogue import built_in, find_task, find_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.sources import Source, matches, split_rows
from deepthink_cli.tasks.splits import EvaluationSet, dev_set, draw_demonstrations, evaluation_set


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Task, EvaluationSet]:
    """The tiny task with its evaluation set."""
    path, data = tiny_task(tmp_path)
    task = find_task(str(path))
    return task, evaluation_set(task, "paper", Source(data))


def texts(task: Task, evaluated: EvaluationSet, **how: object) -> list[object]:
    drawn = draw_demonstrations(task, evaluated, **how)  # type: ignore[arg-type]
    return [example.text for example in drawn.demonstrations.examples]


def test_a_limit_is_a_sample_and_never_a_prefix(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path, test=100)
    task = find_task(str(path))
    golds = Counter(query.gold for query in evaluation_set(task, "paper", Source(data), limit=20))
    assert golds.total() == 20
    assert min(golds.values()) > 3  # the rows are sorted by label: a prefix has one label


def test_a_sample_is_the_same_every_time_and_in_the_splits_order(tiny: tuple[Task, EvaluationSet]) -> None:
    task, whole = tiny
    one, two = (list(evaluation_set(task, "official", whole.source)) for _ in range(2))
    order = [query.text for query in whole]
    assert one == two
    assert len(one) == 6
    assert [order.index(query.text) for query in one] == sorted(order.index(query.text) for query in one)


def test_a_seed_draws_its_demonstrations_and_no_others(tiny: tuple[Task, EvaluationSet]) -> None:
    assert texts(*tiny, seed=1) == texts(*tiny, seed=1)
    assert texts(*tiny, seed=1) != texts(*tiny, seed=2)


def test_an_order_seed_permutes_the_same_demonstrations(tiny: tuple[Task, EvaluationSet]) -> None:
    plain, other = texts(*tiny, seed=1), texts(*tiny, seed=1, order_seed=3)
    assert plain != other
    assert sorted(map(str, plain)) == sorted(map(str, other))


def test_too_many_shots_are_refused(tiny: tuple[Task, EvaluationSet]) -> None:
    with pytest.raises(InputError, match="shots 21: task tiny has 20 rows"):
        texts(*tiny, shots=21)


def test_a_text_that_is_evaluated_is_never_a_demonstration(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path)
    leaked = reviews("film", 12)[:3]
    write_rows(data / "tiny" / "train.jsonl", [*reviews("play", 6), *leaked])
    task = find_task(str(path))
    drawn = draw_demonstrations(task, evaluation_set(task, "paper", Source(data), limit=2), shots=6)
    assert drawn.left_out == {"also in test": 3}
    assert not {example.text for example in drawn.demonstrations.examples} & {str(row["body"]) for row in leaked}


def test_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path)
    write_rows(data / "tiny" / "test.jsonl", [*reviews("film", 4), {"body": "x", "kind": 7}, {"body": " ", "kind": 1}])
    evaluated = evaluation_set(find_task(str(path)), "paper", Source(data))
    assert len(list(evaluated)) == len(evaluated) == 4
    assert evaluated.skipped == {"the answer is no candidate": 1, "no text": 1}


def test_a_dev_set_has_no_demonstrations_and_no_test_rows(tiny: tuple[Task, EvaluationSet]) -> None:
    task, evaluated = tiny
    drawn = draw_demonstrations(task, evaluated, seed=4)
    dev = dev_set(task, evaluated, drawn)
    assert len(dev) == len(evaluated) == 12
    held_out = {query.text for query in evaluated} | {each.text for each in drawn.demonstrations.examples}
    assert not {query.text for query in dev} & held_out


def test_the_dev_set_is_the_same_for_every_seed_but_for_the_demonstrations(tiny: tuple[Task, EvaluationSet]) -> None:
    task, evaluated = tiny
    one, two = (dev_set(task, evaluated, draw_demonstrations(task, evaluated, seed=seed), 16) for seed in (0, 1))
    assert len({query.text for query in one} & {query.text for query in two}) >= 12


def test_a_task_without_training_rows_has_no_dev_set(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path, train=4)
    task = find_task(str(path))
    evaluated = evaluation_set(task, "paper", Source(data))
    with pytest.raises(InputError, match="choose_on dev: task tiny has no training rows"):
        dev_set(task, evaluated, draw_demonstrations(task, evaluated))


def test_an_unknown_protocol_is_refused_and_an_only_one_is_taken(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path, protocols={"official": {"split": "test"}})
    task = find_task(str(path))
    assert evaluation_set(task, "paper", Source(data)).protocol == "official"
    with pytest.raises(InputError, match="protocol mine: use paper or official"):
        evaluation_set(task, "mine", Source(data))


def test_a_missing_split_says_how_to_get_it(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path, protocols={"paper": {"split": "elsewhere"}})
    with pytest.raises(InputError, match=r"needs .*tiny/elsewhere\.jsonl"):
        evaluation_set(find_task(str(path)), "paper", Source(data))


@pytest.mark.parametrize(
    "layout", ["{split}.jsonl", "data/{split}-00000-of-00001.parquet", "default/{split}/0000.parquet"]
)
def test_the_hub_and_a_directory_give_the_same_rows(tmp_path: Path, layout: str) -> None:
    path, data = tiny_task(tmp_path, hub={"path": str(tmp_path / "hub"), "revision": "main"})
    for split in ("train", "test"):
        target = tmp_path / "hub" / layout.format(split=split)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_rows(data / "tiny" / f"{split}.jsonl", target)
    task = find_task(str(path))
    for split in ("train", "test"):
        ours, hubs = split_rows(task, split, Source(data)), split_rows(task, split, Source())
        assert [row.fields for row in ours] == [row.fields for row in hubs]


def test_a_data_set_that_cannot_be_loaded_is_named_with_its_split_and_what_to_do(tmp_path: Path) -> None:
    path, _ = tiny_task(tmp_path, hub={"path": str(tmp_path / "hub"), "revision": "main"})
    for _ in range(2):  # without its folder, and with an empty one
        with pytest.raises(DeepThinkError, match=rf"task tiny: cannot load {tmp_path / 'hub'}, split test: ") as caught:
            list(split_rows(find_task(str(path)), "test", Source()))
        assert "; give data_dir DIR with DIR/tiny/test.jsonl" in str(caught.value)
        (tmp_path / "hub").mkdir(exist_ok=True)


def copy_rows(source: Path, target: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [json.loads(line) for line in source.read_text().splitlines()]
    if target.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), target)
    else:
        write_rows(target, rows)


def test_rows_are_cut_out_of_a_text_by_the_tasks_pattern() -> None:
    pattern = built_in()["bbh/snarks"].splits["demos"].pattern
    assert pattern is not None
    text = (
        "Head\n-----\nQ: One?\nOptions:\n(A) x\nA: Let's think.\nSo the answer is (A).\n\n"
        "Q: Two?\nA: Well. So the answer is no."
    )
    assert matches(pattern, text) == [
        {"input": "One?\nOptions:\n(A) x", "target": "(A)"},
        {"input": "Two?", "target": "no"},
    ]


# What the data's own card says: rows of the paper's protocol, and of each label where there are labels.
CARD = {
    "sst2": [428, 444],
    "sst5": [279, 633, 389, 510, 399],
    "trec": [9, 138, 94, 65, 81, 113],
    "mr": [533, 533],
    "agnews": [1900] * 4,
}


@pytest.mark.parametrize("name", ["sst2", "sst5", "trec", "mr", "agnews"])
def test_the_classic_sets_have_the_rows_of_their_card(name: str) -> None:
    task = built_in()[name]
    evaluated = evaluation_set(task, "paper", Source(shared("data")))
    golds = Counter(query.gold for query in evaluated)
    assert sorted(golds.values()) == sorted(CARD[name])
    assert len(evaluated) == task.protocols["paper"].rows


@pytest.mark.parametrize("group", ["mmlu", "bbh", pytest.param("mmlu-letters", marks=pytest.mark.soak), "bbh-letters"])
def test_every_subtask_has_the_papers_rows_and_its_demonstrations(group: str) -> None:
    source = Source(shared("data"))
    total = 0
    for task in find_tasks([group]):
        evaluated = evaluation_set(task, "paper", source)
        total += len(evaluated)
        assert len(evaluated) == task.protocols["paper"].rows, task.name
        assert len(draw_demonstrations(task, evaluated).demonstrations.examples) == task.shots, task.name
    # Appendix C counts 5,146 rows of BBH; one of snarks has two options of the same words.
    assert total == {"mmlu": 14042, "mmlu-letters": 14042, "bbh": 5145, "bbh-letters": 5146}[group]


def test_ten_training_questions_of_trec_stand_in_its_test() -> None:
    task = built_in()["trec"]
    evaluated = evaluation_set(task, "paper", Source(shared("data")))
    assert draw_demonstrations(task, evaluated).left_out == {"also in test": 10}
