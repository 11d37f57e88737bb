"""The cells of a table, worked out by hand from a few rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.said import Captured, json_of
from helpers.synthetic import CLASSIC, THREE, classic, curve, dev, mmlu, row, seeds, write

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result
from deepthink_cli.report.arms import Arm, title, varying
from deepthink_cli.report.footnotes import footnotes
from deepthink_cli.report.job_results import jobs_of, read_jobs
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.tables import TableRow, summarize


def rows_of(results: list[Result], iteration: int | None = None) -> list[TableRow]:
    return summarize(jobs_of(results), iteration)


def only(results: list[Result], iteration: int | None = None) -> TableRow:
    (line,) = rows_of(results, iteration)
    return line


def test_the_last_iteration_is_reported_against_the_first() -> None:
    line = only(seeds(THREE))
    assert line.plain == Spread(pytest.approx(0.6), pytest.approx(0.1), 3)
    assert line.thinking.mean == pytest.approx(0.65)
    assert line.gain.steps == (0.1, 0.06, -0.01)
    assert line.iterations == [3, 3, 3]
    # Mean 0.05, sd 0.0556776, t(2, 97.5 %) = 4.302653.
    assert line.gain.ci95 == pytest.approx((0.05 - 0.138311, 0.05 + 0.138311), abs=1e-5)
    assert line.gain.wilcoxon_p == 0.5


def test_another_iteration_can_be_named_within_the_run() -> None:
    assert only(seeds(THREE), 2).thinking.mean == pytest.approx((55 + 62 + 80) / 300)
    for beyond in (0, 4):
        with pytest.raises(InputError, match=f"iteration {beyond}: the run has iterations 1 to 3"):
            rows_of(seeds(THREE), beyond)


def test_the_best_t_on_the_test_is_only_the_oracle() -> None:
    line = only(seeds(THREE))
    assert line.oracle.mean == pytest.approx((60 + 66 + 80) / 300)
    assert line.thinking.mean < line.oracle.mean


def test_mcnemar_counts_seeds() -> None:
    lucky = [*[True] * 10, *[False] * 2, *[True] * 88]
    unlucky = [not answer for answer in lucky[:12]] + lucky[12:]
    rows = [
        row(answers, seed=seed, iteration=t)
        for seed, pair in enumerate([(unlucky, lucky), (lucky, unlucky), (lucky, lucky)])
        for t, answers in enumerate(pair, start=1)
    ]
    line = only(rows)
    assert (line.better, line.worse) == (1, 1)


def test_each_seed_chooses_t_and_eta_on_its_own_dev_rows() -> None:
    rows = [
        *[*curve([50, 60, 90], seed=0, eta=0.1), *dev([50, 80, 70], 0, 0.1)],
        *[*curve([50, 61, 62], seed=0, eta=0.01), *dev([50, 70, 70], 0, 0.01)],
        *[*curve([40, 99, 41], seed=1, eta=0.1), *dev([50, 60, 65], 1, 0.1)],
        *[*curve([40, 42, 43], seed=1, eta=0.01), *dev([50, 60, 66], 1, 0.01)],
    ]
    line = only(rows)
    assert line.arm.eta is None
    assert (line.iterations, line.etas) == ([2, 3], [0.1, 0.01])
    assert [score.thinking for score in line.scores] == [0.60, 0.43]
    assert [score.oracle for score in line.scores] == [0.90, 0.99]
    # With an iteration named nothing is chosen: each eta has a row of its own.
    assert [line.arm.eta for line in rows_of(rows, 3)] == [0.01, 0.1]


def test_of_equal_dev_accuracies_the_smaller_t_then_the_smaller_eta_wins() -> None:
    rows = [
        *[*curve([50, 51, 52], eta=0.1), *dev([50, 70, 70], 0, 0.1)],
        *[*curve([50, 53, 54], eta=0.01), *dev([50, 70, 70], 0, 0.01)],
    ]
    line = only(rows)
    assert (line.iterations, line.etas) == ([2], [0.01])


def test_a_choice_may_be_not_to_think() -> None:
    line = only([*curve([50, 40]), *dev([70, 70], 0, 0.01)])
    assert line.iterations == [1]
    assert line.gain.steps == (0.0,)


def test_a_group_is_averaged_in_each_seed_first() -> None:
    rows = [*seeds([[50, 60], [70, 70]], task="a"), *seeds([[10, 30], [30, 30]], task="b")]
    a, b, mean = rows_of(rows)
    assert (mean.name, mean.tasks, mean.known, mean.is_mean) == ("classic", 2, 2, True)
    assert [score.plain for score in mean.scores] == [pytest.approx(0.3), pytest.approx(0.5)]
    assert mean.thinking == Spread(pytest.approx(0.475), pytest.approx(0.05 / 2**0.5), 2)
    assert mean.scores[0].changed[0] == a.scores[0].changed[0] + b.scores[0].changed[0] == 30


def test_an_incomplete_group_says_how_many_tasks_it_averages() -> None:
    rows = [*curve([50, 60], task="a"), *curve([50, 70], task="b"), *curve([50, 60], task="a", model="other")]
    means = [line for line in rows_of(rows) if line.is_mean]
    assert [(mean.arm.model, mean.tasks, mean.known) for mean in means][1] == ("other", 1, 2)


def test_a_seed_without_all_tasks_is_not_in_the_mean_and_is_named() -> None:
    rows = [*seeds([[50, 60], [50, 60]], task="a"), *curve([50, 70], task="b")]
    jobs = jobs_of(rows)
    assert len(summarize(jobs)[-1].scores) == 1
    assert footnotes(jobs)[0] == "Incomplete jobs, omitted if rows that the table needs are missing: b, seed 1: no rows"


def test_jobs_that_were_cut_off_are_named_and_not_paired() -> None:
    rows = [*seeds(THREE), *curve([50, 60], seed=3), *curve([50, 60, 61], seed=0, eta=0.1)]
    jobs = jobs_of(rows)
    assert [len(line.scores) for line in summarize(jobs)] == [3, 1]
    note, *_ = footnotes(jobs)
    assert "eta 0.01, sst2, seed 3: no T = 3" in note
    assert "eta 0.1, sst2, seed 1, seed 2, seed 3: no rows" in note
    assert [len(line.scores) for line in summarize(jobs, 2)] == [4, 1]


def test_a_seed_without_all_dev_rows_does_not_choose_and_is_named() -> None:
    jobs = jobs_of([*seeds([[1, 2], [3, 4]]), *dev([1, 2], 0, 0.01), *dev([1], 1, 0.01)])
    (line,) = summarize(jobs)
    assert len(line.scores) == 1
    assert footnotes(jobs)[0].endswith("sst2, seed 1: no dev T = 2")


def test_what_was_skipped_left_out_or_cut_is_counted() -> None:
    more = {"skipped": {"too_long": 3}, "left_out": {"in_test": 2}, "shots_used": 6}
    rows = [*curve([50], more), *curve([50], {**more, "skipped": {"too_long": 4}, "shots_used": 7}, seed=1)]
    assert footnotes(jobs_of(rows)) == [
        "Inputs skipped (too long): sst2 3 to 4",
        "Fewer demonstrations used than asked: sst2 6 to 7 of 8",
        "Inputs evaluated: sst2 100",
        "Training rows never used as demonstrations (in test): sst2 2",
        "Demonstrations (shots): 8",
    ]


def test_tables_name_tasks_then_inner_groups_then_the_whole() -> None:
    rows = rows_of([*classic(count=1), *mmlu()])
    assert [line.name for line in rows][:7] == [*CLASSIC, "classic", "mmlu/0"]
    assert [line.name for line in rows][-3:] == ["mmlu/others", "mmlu/stem", "mmlu"]
    assert [line.name for line in rows if not line.is_detail] == [
        *CLASSIC,
        "classic",
        "mmlu/others",
        "mmlu/stem",
        "mmlu",
    ]


def test_a_group_of_one_task_is_no_mean() -> None:
    assert [line.name for line in rows_of(mmlu()[:2])] == ["mmlu/0"]


def test_arms_are_distinguished_by_what_differs() -> None:
    rows = [*classic([0.1, 0.01], 1), *classic([0.1], 1, momentum=0.9)]
    arms = list(dict.fromkeys(line.arm for line in rows_of(rows)))
    labels = ["momentum 0, eta 0.01", "momentum 0, eta 0.1", "momentum 0.9, eta 0.1"]
    assert [arm.label(varying(arms)) for arm in arms] == labels
    assert title(arms).startswith(arms[0].model)
    assert "quantized" not in title(arms)


def test_numbers_of_demonstrations_split_arms_only_where_a_task_has_several() -> None:
    by_task = [*curve([50], task="a", shots=8), *curve([50], task="b", shots=12)]
    assert {line.arm.shots for line in rows_of(by_task)} == {None}
    sweep = [*curve([50], shots=4), *curve([50], shots=8, seed=1)]
    assert [line.arm.shots for line in rows_of(sweep)] == [4, 8]


def test_methods_with_their_own_numbers_of_demonstrations_are_told_apart() -> None:
    rows = [*curve([50], shots=4), *curve([60], shots=8, technique="repeat-2")]
    arms = [line.arm for line in rows_of(rows)]
    assert [arm.label(varying(arms)) for arm in arms] == ["4 shots, Deep-Thinking", "8 shots, repeat-2"]


def test_rows_that_may_not_be_averaged_are_refused() -> None:
    with pytest.raises(InputError, match=r"differ in split \(validation, test\) and cannot be averaged; choose"):
        jobs_of([*curve([50]), *curve([50], seed=1, split="test")])
    with pytest.raises(InputError, match="two different results for one setting"):
        jobs_of([row(50), row(51)])
    assert len(jobs_of([row(50), row(50)])) == 1


def test_orders_of_the_same_demonstrations_are_seeds_of_their_own() -> None:
    line = only([*curve([50, 60], order_seed=0), *curve([50, 70], order_seed=1)])
    assert len(line.scores) == 2
    assert isinstance(line.arm, Arm)


def test_missing_seeds_are_named_in_order() -> None:
    orders = [row(50, task="a", seed=1, order_seed=order) for order in (1, None, 0)]
    jobs = jobs_of([*orders, row(50, task="b")])
    assert footnotes(jobs)[0].endswith("a, seed 0: no rows; b, seed 1, seed 1 in order 0, seed 1 in order 1: no rows")


def test_with_one_eta_only_t_is_chosen() -> None:
    line = only([*curve([50, 60, 70]), *dev([50, 80, 70], 0, 0.01)])
    assert (line.on_dev, line.arm.eta, line.iterations) == (True, 0.01, [2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tasks with two etas and two seeds."""
    rows: list[Result] = []
    for task in ("sst2", "mr"):
        for eta in (0.01, 0.1):
            rows += seeds([[50, 60, 70], [52, 61, 75]], task=task, eta=eta)
    return write(tmp_path / "run", rows)


def chosen(folder: Path, *where: str) -> set[tuple[str, float | None, int]]:
    return {(job.task, job.arm.eta, job.seed.number) for job in read_jobs([folder], where)}


def test_fields_are_all_fulfilled_and_values_of_one_field_are_alternatives(folder: Path) -> None:
    assert chosen(folder, "eta=0.1", "task=sst2") == {("sst2", 0.1, 0), ("sst2", 0.1, 1)}
    assert chosen(folder, "task=sst2", "task=mr", "eta=1e-2", "seed=1") == {("sst2", 0.01, 1), ("mr", 0.01, 1)}
    assert len(chosen(folder)) == 8


@pytest.mark.parametrize("value", ["none", "false", "7"])
def test_values_that_are_not_text_are_written_as_words(value: str, tmp_path: Path) -> None:
    rows = [*curve([50, 60]), *curve([50, 60], pool_size=7, balanced=False, seed=1)]
    field, number = {"none": ("order_seed", 2), "false": ("balanced", 1), "7": ("pool_size", 1)}[value]
    assert len(read_jobs([write(tmp_path / "run", rows)], [f"{field}={value}"])) == number


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["etta=0.1"], "where etta=0.1: a setting has no field 'etta'; did you mean eta?"),
        (["colour=red"], "a setting has no field 'colour'; the fields are model, model_sha256, dtype"),
        (["eta"], "where eta: write FIELD=VALUE, as in eta=0.1"),
        (["eta=0.5"], "where eta=0.5: no row has it; eta is 0.01, 0.1"),
        (["eta=much"], "where eta=much: no row has it; eta is 0.01, 0.1"),
        (["task=sst3"], "where task=sst3: no row has it; task is sst2, mr"),
    ],
)
def test_what_no_row_has_is_named_with_what_there_is(where: list[str], message: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_jobs([folder], where)
    assert message in str(caught.value)


def test_values_that_no_row_has_together_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [*curve([50, 60]), *curve([50, 60], task="mr", eta=0.1)])
    with pytest.raises(InputError, match=r"where task=sst2 where eta=0\.1: there are rows with each of these values"):
        read_jobs([folder], ["task=sst2", "eta=0.1"])


def test_a_report_takes_conditions(folder: Path, capsys: Captured) -> None:
    (row,) = json_of(capsys, "report", folder, "--where", "task=sst2", "--where", "eta=0.1", "--json")["rows"]
    assert (row["task"], row["eta"], row["seeds"]) == ("sst2", 0.1, 2)


def test_rows_of_several_limits_are_chosen_by_a_condition(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [*curve([60, 70]), *curve([50, 51], limit=30)])
    with pytest.raises(
        InputError, match=r"sst2: rows of .* differ in limit \(None, 30\) and cannot be averaged; choose"
    ):
        read_jobs([folder])
    (job,) = read_jobs([folder], ["limit=30"])
    assert [row.accuracy for row in job.test.values()] == [0.5, 0.51]


def test_dev_rows_of_several_sizes_are_not_averaged() -> None:
    rows = [*curve([50, 60]), *dev([50, 60], 0, 0.01), *curve([50, 60], part="dev", split="train", limit=7)]
    with pytest.raises(InputError, match=r"sst2: rows of .* differ in limit \(None, 7\) and cannot be averaged"):
        jobs_of(rows)
