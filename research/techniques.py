"""What every technique and correction of the package gains and costs, beside classifiers of the same labelled rows.

    python -m research.techniques --model MODEL --data-dir DIR -o FOLDER/techniques.jsonl [--arms NAME ...]
    python -m research.techniques -o FOLDER/techniques.jsonl --table

An arm is a line of `ARMS`: one for each technique of the registry and T, which gives raw scores and those after every
calibration of the registry; one for each classifier; and one for the nearest mean hidden state at each T. A row is
appended for each arm, correction, task and seed, and a second run skips what is there. The model is loaded once.
FOLDER also has the scores and answers of every row, a file for each arm, task and seed (`write_samples`); it is packed
as `FOLDER.parquet`. The table is refused if they do not give its accuracies and areas.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.labelled import Observed, observed, observed_demonstrations
from deepthink_cli.calibration.registry import CALIBRATIONS, CENTROID, HEAD, NONE, choices
from deepthink_cli.data.examples import Query
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.engine.base import Observation, Reading, ScoringPlan, Sums
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.events import silent
from deepthink_cli.experiments.executors.base import RowMade
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, known, pending, planned
from deepthink_cli.experiments.prepare import SharedRows, prepare_run
from deepthink_cli.experiments.scorer import work
from deepthink_cli.io.atomic import append, cut, replacing, whole_lines
from deepthink_cli.method import Method
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.plugins.context_tuning import training
from deepthink_cli.plugins.context_tuning.gradients import TrainingRow, answer_gradient
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.pipeline import predicted
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN
from deepthink_cli.scoring.softmax import softmax
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, sample
from deepthink_cli.thinking import think
from deepthink_cli.tuning.rivals import states, words
from deepthink_cli.updates.rules import Gate
from research.packing import continued, unpacked

if TYPE_CHECKING:
    import pyarrow as pa

    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats

TASKS = ("sst2", "mr", "agnews", "trec", "sst5")
BACKWARD = 2  # a backward pass costs about two forward ones
NUMBERS = {"ensemble": "ensemble-3"}  # of a family with a parameter; of the others the smallest
READINGS = {DEEP_THINKING: (1, 5), "fresh": (5,)}  # T of a technique; of the others 1
SLOW = ("ct-kv",)  # trained by gradients: measured last
AREA_DIGITS, ROUNDING = 5, 1e-3  # areas of scores as they are stored differ by less


@dataclass
class Cost:
    """Tokens that the network read, and the processor seconds of that."""

    tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tokens + other.tokens, self.seconds + other.seconds)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.tokens - other.tokens, self.seconds - other.seconds)

    def share(self, part: float) -> Cost:
        """A part of it, from 0 to 1."""
        return Cost(round(part * self.tokens), part * self.seconds)


class Meter(PackedEngine):
    """An engine that counts what memories cost, and what scoring and observing rows costs.

    Every candidate's own tokens count; tokens that all queries share count for each. A step of training counts as a
    pass forward and one backward.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self.scorer = PackedEngine(model)  # whose readings of tokens that queries share are no memories
        self.making, self.scoring = Cost(), Cost()

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        started = time.process_time()
        memories = super().read(readings)
        self.making += Cost(sum(map(len, readings)), time.process_time() - started)
        return memories

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        started = time.process_time()
        sums = self.scorer.score(memories, plan)
        self.scoring += Cost(len(memories) * _tokens(plan), time.process_time() - started)
        return sums

    def observe(
        self, memory: Memory | None, plan: ScoringPlan, every_token: bool = False, layers: Sequence[int] = ()
    ) -> list[Observation]:
        started = time.process_time()
        found = self.scorer.observe(memory, plan, every_token, layers)
        self.scoring += Cost(_tokens(plan), time.process_time() - started)
        return found


def _counted(engine: BatchedEngine, memory: Memory, rows: Sequence[TrainingRow]) -> tuple[float, Memory]:
    started = time.process_time()
    found = answer_gradient(engine, memory, rows)
    if isinstance(engine, Meter):
        engine.making += Cost((1 + BACKWARD) * sum(map(len, rows)), time.process_time() - started)
    return found


training.answer_gradient = _counted


def _tokens(plan: ScoringPlan) -> int:
    return sum(1 for query in plan.queries for _ in query.ids)


@dataclass(frozen=True)
class Outcome:
    """What an arm gives with one correction: scores (n, C) in nats, the places (n,) of the true labels, and its cost.

    `labels` is the number of rows whose true labels it has seen; `making` is the cost of the memory, `scoring` that of
    the n rows and of what the correction needs. `length` is that of the demonstrations in tokens. `dev` are the scores
    and true labels of the dev rows, if these were scored.
    """

    correction: str
    scores: Floats
    gold: Sequence[int]
    labels: int
    length: int
    making: Cost
    scoring: Cost
    dev: tuple[Floats, Sequence[int]] | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """A task with a seed, and a model: what an arm is measured on.

    `common` are the fields of an `Experiment` that all arms have in common.
    """

    engine: Meter
    spec: ModelSpec
    task: str
    seed: int
    common: dict[str, Any]
    shared: SharedRows = field(default_factory=SharedRows)

    def job(self, **options: Any) -> Job:
        """The job of a run of one technique with these fields of an `Experiment`.

        With `demos_by`, its demonstrations are chosen.
        """
        experiment = Experiment.checked(tasks=(self.task,), seeds=(self.seed,), **{**self.common, **options})
        run, nowhere = planned(experiment, self.spec), Path("no-folder")  # whose rows would be continued
        prepared = prepare_run(run, nowhere, shared=self.shared)
        chosen = (job for each in pending(prepared) for job in each.jobs(self.engine, None))
        (job,) = (*known(prepared), *chosen)
        return job


Arm = Callable[[Case], Iterator[Outcome]]


def run_arm(case: Case, technique: str, iteration: int, **options: Any) -> Iterator[Outcome]:
    """What `deepthink run` scores with a technique at one T, raw and after every calibration.

    `options` are more fields of an `Experiment`. The texts of all calibrations are charged to each that needs some.
    """
    job = case.job(techniques=(technique,), iterations=iteration, at=str(iteration), calibrations=choices(), **options)
    meter = case.engine
    start, last = meter.making, meter.scoring
    wanted = [each for each in job.settings(meter.identity) if each.part == "test" or each.calibration is None]
    found: dict[tuple[str, str], list[Prediction]] = {}
    rows, texts = Cost(), Cost()
    for event in work(meter, {job: wanted}, samples=True):
        spent, last = meter.scoring - last, meter.scoring
        if not isinstance(event, RowMade):
            rows += spent
            continue
        texts += spent  # what was scored after the last of the rows
        name = event.row.setting.calibration or NONE
        found[event.row.setting.part, name] = [
            each if name == NONE else each.calibrated[name].prediction for each in event.predictions
        ]
    making, shots, length = meter.making - start, len(job.plain.examples), len(job.plain.token_ids)
    labels = job.demonstrations.labels
    raw, gold = scores_of(found["test", NONE], labels)
    dev, dev_gold = scores_of(found["dev", NONE], labels)
    test_rows = rows.share(len(gold) / (len(gold) + len(dev_gold)))  # members of an ensemble score both in turns
    for name in choices():
        scores, _ = scores_of(found["test", name], labels)
        own = Cost() if name == NONE or CALIBRATIONS[name].from_rows else texts
        yield Outcome(
            name, scores, gold, shots, length, making, test_rows + own, (dev, dev_gold) if name == NONE else None
        )
    for name, calibration in CALIBRATIONS.items():
        if calibration.labelled and not calibration.of_states:
            scores = calibration.corrected(raw, dev, dev_gold)
            yield Outcome(name, scores, gold, shots + len(dev), length, making, rows)


def scores_of(predictions: Sequence[Prediction], labels: Sequence[str]) -> tuple[Floats, list[int]]:
    """The scores (n, C) of predictions in nats, and the places of their true labels."""
    import numpy as np

    scores = np.array([[each.scores[label] for label in labels] for each in predictions], dtype=np.float64)
    return scores, [labels.index(str(each.query.gold)) for each in predictions]


def classifier_arm(case: Case, kind: Callable[..., Any], with_dev: bool) -> Iterator[Outcome]:
    """A classifier that is trained on the demonstrations, or on these and the dev rows."""
    import numpy as np

    job = case.job()
    labels = job.plain.labels
    read = [Query(each.text, labels, each.label) for each in job.plain.examples]
    training = [*read, *(job.queries("dev") if with_dev else ())]
    test, before = list(job.queries("test")), case.engine.scoring
    gold = [labels.index(str(row.gold)) for row in (*training, *test)]
    untrained, inputs = kind(case.engine, job.plain.template, [*training, *test], None)
    known = sorted(set(gold[: len(training)]))
    scores = np.full((len(test), len(labels)), -np.inf)
    if len(known) == 1:  # nothing can be trained
        scores[:, known] = 0
    else:
        trained = untrained().fit(inputs[: len(training)], gold[: len(training)])
        scores[:, known] = trained.predict_log_proba(inputs[len(training) :])
    cost = case.engine.scoring - before
    yield Outcome(NONE, scores, gold[len(training) :], len(training), len(job.plain.token_ids), Cost(), cost)


def centroid_arm(case: Case, iteration: int) -> Iterator[Outcome]:
    """The nearest mean hidden state: of the dev rows, and of the demonstrations, each read after the others.

    Labels of fewer than two such inputs have no mean, and are never given.
    """
    job = case.job(iterations=iteration, at=str(iteration))
    engine, before = case.engine, case.engine.making
    method = Method(iteration, Gate(case.common["etas"][0]), case.common["positions"][0])
    *_, memory = think(engine, job.plain, method)
    assert memory.provenance is not None
    making, between = engine.making - before, engine.scoring
    read = memory.provenance.demonstrations
    dev, test = (
        measured_rows(predicted(observed(engine, [memory], job.queries(part), PLAIN)), read) for part in ("dev", "test")
    )
    scoring = engine.scoring - between
    length, shots = len(job.plain.token_ids), len(job.plain.examples)
    for name in (CENTROID, HEAD):
        scores = by_head(name, dev, test)
        yield Outcome(name, scores, test.gold, shots + len(dev.gold), length, making, scoring)
    own = predicted(observed_demonstrations(engine, memory.provenance, [iteration], PLAIN, silent))
    scores, making = by_head(CENTROID, measured_rows(own, read), test), engine.making - before
    test_rows = scoring.share(len(test.gold) / (len(test.gold) + len(dev.gold)))
    yield Outcome("centroid of demonstrations", scores, test.gold, shots, length, making, test_rows)


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows after a memory: scores (n, C) in nats, hidden states (n, L, W), true labels (n,) and inputs (n,)."""

    scores: Floats
    states: Floats
    gold: Sequence[int]
    groups: Sequence[int]


def measured_rows(rows: Sequence[Observed], read: TokenizedDemonstrations) -> Measured:
    """Rows after one memory as arrays."""
    import numpy as np

    queries = [each.query for each, _ in rows]
    return Measured(
        np.array([[each.scores[label] for label in read.labels] for each, _ in rows]),
        np.stack([states.numpy() for _, states in rows if states is not None]),
        [read.labels.index(str(query.gold)) for query in queries],
        input_groups(queries, read.template, read.labels),
    )


def by_head(name: str, rows: Measured, test: Measured) -> Floats:
    """Scores (n, C) of test rows by a calibration of hidden states, fitted to rows.

    A label of fewer than two inputs among the rows is never given: its scores are minus infinity.
    """
    import numpy as np

    labels = np.shape(rows.scores)[1]
    counts = Counter(label for label, _ in {*zip(rows.gold, rows.groups, strict=True)})
    known = [label for label in range(labels) if counts[label] > 1]
    used = [row for row, label in enumerate(rows.gold) if label in known]
    gold, groups = [known.index(rows.gold[row]) for row in used], [rows.groups[row] for row in used]
    head = CALIBRATIONS[name].head(rows.states[used], rows.scores[used][:, known], gold, groups)
    scores = np.full((len(test.gold), labels), -np.inf)
    scores[:, known] = head.scores(test.states, test.scores[:, known])
    return scores


def _techniques() -> Iterator[tuple[str, Arm]]:
    for family in sorted((name for name, _ in TECHNIQUES.items()), key=lambda name: name in SLOW):
        name = NUMBERS.get(family, sample(family).name)
        for iteration in READINGS.get(family, (1,)):
            yield f"{name} T={iteration}", partial(run_arm, technique=name, iteration=iteration)


CLASSIFIERS: dict[str, Arm] = {
    f"{name}{rows}": partial(classifier_arm, kind=kind, with_dev=with_dev)
    for name, kind in (("TF-IDF", words), ("mean hidden states", states))
    for rows, with_dev in ((", demonstrations", False), (", dev rows too", True))
}
CENTROIDS: dict[str, Arm] = {
    f"centroid T={iteration}": partial(centroid_arm, iteration=iteration) for iteration in READINGS[DEEP_THINKING]
}
ARMS: dict[str, Arm] = {**CLASSIFIERS, **CENTROIDS, **dict(_techniques())}


def area(scores: Floats, gold: Sequence[int]) -> float:
    """The macro mean over labels of the area under the ROC curve, one label against the rest.

    Labels that are true of no row or of all are left out.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    probabilities, true = softmax(scores), np.asarray(gold)
    known = [label for label in range(probabilities.shape[1]) if 0 < (true == label).sum() < len(true)]
    return float(np.mean([roc_auc_score(true == label, probabilities[:, label]) for label in known]))


def measured(outcome: Outcome) -> dict[str, Any]:
    """The figures of a row."""
    right = int((outcome.scores.argmax(axis=1) == outcome.gold).sum())
    n, cost = len(outcome.gold), outcome.making + outcome.scoring
    return {
        "correction": outcome.correction,
        "n": n,
        "right": right,
        "auc": round(area(outcome.scores, outcome.gold), AREA_DIGITS),
        "labels": outcome.labels,
        "passes": round(outcome.making.tokens / outcome.length, 2),
        "tokens_per_row": round(outcome.scoring.tokens / n, 1),
        "seconds": round(cost.seconds, 2),
    }


def samples_path(out: Path, arm: str, task: str, seed: int) -> Path:
    """The file of an arm's samples for a task and a seed, in a folder beside the file of the rows."""
    return out.parent / arm / f"{task}-{seed}.parquet"


def write_samples(path: Path, labels: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Write a row for each test row, and for each dev row if these were scored.

    `scores` are those of the first outcome, in the order of `candidates`; `answers` are the labels that are given to a
    test row after each of `corrections`.
    """
    import numpy as np
    import pyarrow as pa

    first, names = outcomes[0], np.array(labels)
    number = len(first.gold)
    of_test = {
        "part": ["test"] * number,
        "corrections": [[each.correction for each in outcomes]] * number,
        "answers": names[[each.scores.argmax(axis=1) for each in outcomes]].T.tolist(),
    }
    parts = [scores_table(labels, first.scores, first.gold, of_test)]
    if first.dev is not None:
        parts.append(scores_table(labels, *first.dev, {"part": ["dev"] * len(first.dev[1])}))
    write_table(path, pa.concat_tables(parts, promote_options="default"))


def scores_table(labels: Sequence[str], scores: Floats, gold: Sequence[int], more: dict[str, list[Any]]) -> pa.Table:
    """A row for each input, with columns `gold`, `candidates` and `scores`, and `more` columns."""
    import pyarrow as pa

    known = {"gold": [labels[place] for place in gold], "candidates": [list(labels)] * len(gold)}
    return pa.table({**more, **known, "scores": scores.tolist()})


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, atomically, into a folder that may not exist yet."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def figures_of(path: Path) -> dict[str, dict[str, float]]:
    """What a file of samples gives: `n` and `right` after each correction, and the `auc` of the first."""
    import numpy as np
    import pyarrow.parquet as pq

    samples = [each for each in pq.read_table(path).to_pylist() if each["part"] == "test"]
    right = [
        sum(each["answers"][place] == each["gold"] for each in samples) for place in range(len(samples[0]["answers"]))
    ]
    figures: dict[str, dict[str, float]] = {
        name: {"n": len(samples), "right": count} for name, count in zip(samples[0]["corrections"], right, strict=True)
    }
    gold = [each["candidates"].index(each["gold"]) for each in samples]
    first = next(iter(figures.values()))
    first["auc"] = round(area(np.array([each["scores"] for each in samples]), gold), AREA_DIGITS)
    return figures


def check_rows(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Compare rows with the figures of their samples.

    Raises SystemExit for the first row without samples, and for the first figure that differs.
    """
    known, figures = f"the scores in {out.parent.name}.parquet", cache(figures_of)
    for row in rows:
        path = samples_path(out, row["arm"], row["task"], row["seed"])
        asked = ", ".join(str(row[key]) for key in ("arm", "task", "seed", "correction"))
        if not path.exists():
            raise SystemExit(f"{out.name}: {asked} is not among {known}; run it again with -o in another folder")
        for name, value in figures(path)[row["correction"]].items():
            if abs(row[name] - value) > ROUNDING:
                raise SystemExit(
                    f"{out.name}: {name} of {asked} is {row[name]}, but {value} by {known}; run it again with -o in "
                    "another folder"
                )


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a file, which may be missing or end in an incomplete line."""
    return [json.loads(line) for line in file.read_bytes()[: whole_lines(file)].splitlines()] if file.is_file() else []


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over tasks of means over seeds, as a Markdown table with a line for every arm.

    They are of the tasks and seeds that all arms have. After the accuracy of each correction come the area under the
    ROC curve and the cost of the first.
    """
    pairs: dict[str, set[tuple[str, int]]] = {}
    for row in rows:
        pairs.setdefault(row["arm"], set()).add((row["task"], row["seed"]))
    common = set.intersection(*pairs.values()) if pairs else set()
    rows = [row for row in rows if (row["task"], row["seed"]) in common]
    corrections = list(dict.fromkeys(row["correction"] for row in rows))
    costs = ("labels", "passes", "tokens_per_row", "seconds")
    headings = ["method", "runs", *corrections, "AUC", *(name.replace("_", " ") for name in costs)]
    lines = [f"| {' | '.join(headings)} |", f"|---{'|--:' * (len(headings) - 1)}|"]
    arms: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row)
    for arm, of_arm in arms.items():
        by_name = {name: [row for row in of_arm if row["correction"] == name] for name in corrections}
        accuracies = [
            f"{100 * _mean(same, lambda row: row['right'] / row['n']):.1f}" if same else "" for same in by_name.values()
        ]
        first = next(same for same in by_name.values() if same)
        means = [f"{_mean(first, lambda row, name=name: row[name]):,.1f}" for name in costs]
        cells = [*accuracies, f"{100 * _mean(first, lambda row: row['auc']):.1f}", *means]
        lines.append(f"| {' | '.join([arm, str(len(first)), *cells])} |")
    return "\n".join(lines)


def _mean(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    """The mean over tasks of means over seeds."""
    tasks = {row["task"] for row in rows}
    return fmean(fmean(value(row) for row in rows if row["task"] == task) for task in tasks)


def main() -> None:
    """Measure what is missing, arm by arm, and append its rows; or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--data-dir", help="the tasks' rows; without it they come from the hub")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=300, help="test rows")
    parser.add_argument("--dev-rows", type=int, default=150, help="labelled rows of corrections and classifiers")
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--positions", default="restarted")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="only print the table, in the order of --arms")
    args = parser.parse_args()
    folder = args.out.parent
    if not args.table:
        with continued([folder]):
            measure(args)
    with unpacked(folder.parent, [folder.name]) as tables:
        out = tables / folder.name / args.out.name
        rows = [row for arm in args.arms for row in rows_of(out) if row["arm"] == arm]
        check_rows(rows, out)
    print(table(rows))


def measure(args: argparse.Namespace) -> None:
    """Append the rows that are missing, seed by seed; those of an arm, a task and a seed are appended together.

    Raises SystemExit if the file has rows of another model or setting.
    """
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.touch()
    cut(args.out, whole_lines(args.out))
    setting = {name: getattr(args, name) for name in ("model", "limit", "dev_rows", "eta", "positions")}
    for row in rows_of(args.out):
        for name, value in setting.items():
            if row[name] != value:
                raise SystemExit(
                    f"{args.out} has rows with {name} {row[name]}, not {value}: name another folder with -o"
                )
    spec = find_model(ModelOptions.checked(model=args.model, device="cpu", dtype="float32"), silent)
    engine, shared = Meter(load(spec, silent).model), SharedRows()
    common = {"limit": args.limit, "etas": (args.eta,), "positions": (args.positions,), "data_dir": args.data_dir}
    common |= {"choose_on": f"dev:{args.dev_rows}"}
    for seed in range(args.seeds):  # first, so that all arms have the same pairs early
        for arm in args.arms:
            for task in args.tasks:
                asked = {**setting, "arm": arm, "task": task, "seed": seed}
                if any(asked.items() <= row.items() for row in rows_of(args.out)):
                    continue
                case = Case(
                    engine,
                    spec,
                    task,
                    seed,
                    {**common, "data_dir": args.data_dir, "choose_on": f"dev:{args.dev_rows}"},
                    shared,
                )
                outcomes = list(ARMS[arm](case))
                write_samples(samples_path(args.out, arm, task, seed), case.job().plain.labels, outcomes)
                append(args.out, [json.dumps({**asked, **measured(outcome)}) + "\n" for outcome in outcomes])
                print(f"{arm}, {task}, seed {seed}: {len(outcomes)} rows", flush=True)


if __name__ == "__main__":
    main()
