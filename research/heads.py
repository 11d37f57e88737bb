"""What the head on hidden states gives beside other corrections of the same labelled rows, by their number.

    python -m research.heads --model MODEL --data-dir DIR -o research/tables/heads.jsonl [--memories NAME ...]
    python -m research.heads -o research/tables/heads.jsonl --page docs/predict.md

A row has one memory, correction, number of labelled rows, task and seed: the accuracy on 300 test rows, the expected
calibration error, and the processor seconds of fitting. Rows are appended; a second run skips what is there. The
labelled rows are drawn from the dev rows of `deepthink run`, two of each label first; a label with fewer is never given
by the corrections of hidden states.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.discriminants import Unlabelled
from deepthink_cli.calibration.estimates import log_fitted_with_slope
from deepthink_cli.calibration.labelled import observed, states_of
from deepthink_cli.calibration.registry import CALIBRATIONS, HEAD, MOST_UNLABELLED
from deepthink_cli.data.examples import Query
from deepthink_cli.data.same_input import input_groups, is_among
from deepthink_cli.engine.base import Reading
from deepthink_cli.io.atomic import append, replacing
from deepthink_cli.method import Method
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.plugins.rivals.classifiers import standardised
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.heads import observed_layers
from deepthink_cli.scoring.pipeline import predicted
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.techniques.base import Trained
from deepthink_cli.techniques.registry import technique_of
from deepthink_cli.thinking import think
from deepthink_cli.updates import Gate
from research.cases import Case, cases, rows_of
from research.evidence.runs import DEV_ROWS, SEEDS, TASKS

if TYPE_CHECKING:
    import pyarrow as pa

    from deepthink_cli.experiments.jobs import Job
    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats

LABELLED = (12, 24, 48, 96, 150)
PLAIN_MEMORY, ZERO_SHOT = "T = 1", "zero-shot"
JOINED = f"T = 1, with {MOST_UNLABELLED:,} rows without labels"  # the head alone
# The memories, with T and positions; ct-kv is trained.
MEMORIES: dict[str, tuple[int, str]] = {
    PLAIN_MEMORY: (1, "continued"),
    "T = 5": (5, "continued"),
    "T = 5, restarted": (5, "restarted"),
    "ct-kv": (1, "continued"),
    JOINED: (1, "continued"),
    ZERO_SHOT: (1, "continued"),
}
ETA = 0.01
RAW, BATCH, SLOPE, CENTROID = "none", "batch", "fitted-slope", "centroid"
REGRESSION, SETFIT = "logistic regression", "SetFit"  # of a sentence encoder, frozen and fine-tuned
FINE_TUNED = (12, 24, 48, DEV_ROWS)  # labelled rows
FEWER_PAIRS = 5  # pairs of a kind for each of DEV_ROWS rows: all pairs, the default, take hours a task
BINS = 10
FEW_OR_MANY = {
    "two labels (SST-2, MR)": ("sst2", "mr"),
    "four to six (AG News, SST-5, TREC)": ("agnews", "sst5", "trec"),
}


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows after a memory: scores (n, C) in nats, hidden states (n, L, W), true labels (n,) and inputs (n,)."""

    scores: Floats
    states: Floats
    gold: Sequence[int]
    groups: Sequence[int]


def measured_rows(rows: Sequence[Prediction], read: TokenizedDemonstrations) -> Measured:
    """Rows after one memory as arrays."""
    import numpy as np

    queries, states = [each.query for each in rows], states_of(rows)
    assert states is not None
    return Measured(
        np.array([[each.scores[label] for label in read.labels] for each in rows]),
        states,
        [read.labels.index(str(query.gold)) for query in queries],
        input_groups(queries, read.template, read.labels),
    )


def by_head(name: str, rows: Measured, test: Measured, more: Unlabelled | None = None) -> Floats:
    """Scores (n, C) of test rows by a calibration of hidden states, fitted to rows, and to more without labels.

    A label of fewer than two inputs among the rows is never given: its scores are minus infinity.
    """
    import numpy as np

    labels = np.shape(rows.scores)[1]
    counts = Counter(label for label, _ in {*zip(rows.gold, rows.groups, strict=True)})
    known = [label for label in range(labels) if counts[label] > 1]
    used = [row for row, label in enumerate(rows.gold) if label in known]
    gold, groups = [known.index(rows.gold[row]) for row in used], [rows.groups[row] for row in used]
    others = None if more is None else Unlabelled(more.states, more.logs[:, known])
    head = CALIBRATIONS[name].fitted(rows.scores[used][:, known], gold, groups, rows.states[used], others)
    scores = np.full((len(test.gold), labels), -np.inf)
    scores[:, known] = head.scores(test.states, test.scores[:, known])
    return scores


def memory_of(case: Case, job: Job, name: str) -> Memory:
    """The memory of this name, of the job's demonstrations."""
    iterations, positions = MEMORIES[name]
    if name == "ct-kv":
        technique = technique_of(name)
        assert isinstance(technique, Trained)
        training = technique.training(case.engine, job.plain)
        for _ in training:
            pass
        return training.memory
    *_, memory = think(case.engine, job.plain, Method(iterations, Gate(ETA), positions))  # type: ignore[arg-type]
    return memory


def zero_shot(case: Case, job: Job, part: str) -> Measured:
    """Rows after the special tokens that begin a text."""
    import numpy as np

    engine, read, queries = case.engine, job.plain, list(job.queries(part))
    special = special_ids(engine.tokenizer)
    memory = engine.read([Reading(special)])[0] if special else None
    plan = engine.plan(query_tokenizer(engine.tokenizer, read.template)(queries))
    found = engine.observe(memory, plan, layers=observed_layers(len(engine.model.one_token.keys)))
    named = [dict(zip(query.candidates, each.sums, strict=True)) for query, each in zip(queries, found, strict=True)]
    return Measured(
        np.array([[each[label] for label in read.labels] for each in named]),
        np.stack([each.hidden.numpy() for each in found]),
        gold_of(queries, read.labels),
        input_groups(queries, read.template, read.labels),
    )


def measured(case: Case, job: Job, name: str) -> Iterator[Measured]:
    """The dev rows and the test rows after a memory."""
    memory = None if name == ZERO_SHOT else memory_of(case, job, name)
    for part in ("dev", "test"):
        if memory is None:
            yield zero_shot(case, job, part)
        else:
            assert memory.provenance is not None
            rows = predicted(observed(case.engine, [memory], job.queries(part), PLAIN))
            yield measured_rows(rows, memory.provenance.demonstrations)


def without_labels(case: Case, job: Job) -> Unlabelled:
    """Training rows after plain reading, which are neither demonstrations nor dev rows."""
    import numpy as np

    memory, read = memory_of(case, job, PLAIN_MEMORY), job.plain
    is_dev = is_among(job.queries("dev"), read.template, read.labels)
    others = case.job(iterations=1, at="1", choose_on=f"dev:{DEV_ROWS + MOST_UNLABELLED}").queries("dev")
    rows = predicted(observed(case.engine, [memory], (row for row in others if not is_dev(row)), PLAIN))
    states = states_of(rows)
    assert states is not None
    return Unlabelled(states, np.array([[each.scores[label] for label in read.labels] for each in rows]))


def drawn(rows: Measured, count: int, seed: int) -> Measured:
    """So many of the rows: two of each label that has two, then others at random, in their order."""
    order = random.Random(seed).sample(range(len(rows.gold)), len(rows.gold))
    first = [row for label in set(rows.gold) for row in [row for row in order if rows.gold[row] == label][:2]]
    kept = sorted([*first, *(row for row in order if row not in set(first))][:count])
    return Measured(rows.scores[kept], rows.states[kept], [rows.gold[n] for n in kept], [rows.groups[n] for n in kept])


def corrected(name: str, rows: Measured, test: Measured, more: Unlabelled | None = None) -> Floats:
    """Scores (n, C) of test rows after a correction that is fitted to labelled rows, or to the test rows alone."""
    if name == RAW:
        return test.scores
    if name == BATCH:
        return CALIBRATIONS[BATCH].fitted(test.scores).scores(None, test.scores)
    if name == SLOPE:
        logs, of_test = log_softmax(rows.scores), log_softmax(test.scores)
        found: Floats = of_test - log_fitted_with_slope(logs, rows.gold)
        return found
    return by_head(name, rows, test, more)


def calibration_error(scores: Floats, gold: Sequence[int]) -> float:
    """The expected calibration error of the given labels, in ten bins of equal width (Guo et al. 2017)."""
    import numpy as np

    shares = np.exp(log_softmax(scores))
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == np.asarray(gold)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        abs(confidence[bins == each].mean() - right[bins == each].mean()) * (bins == each).mean() for each in set(bins)
    ]
    return float(sum(gaps))


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


def figures(case: Case, memory: str, samples: Path | None = None) -> Iterator[dict[str, Any]]:
    """The rows of one memory, for a task and seed; `samples` is a file for the scores of test rows with most labels."""
    job = case.job(iterations=1, at="1")
    dev, test = measured(case, job, memory)
    more = without_labels(case, job) if memory == JOINED else None
    if samples is not None:
        import pyarrow as pa

        kept = {name: corrected(name, dev, test) for name in (RAW, CENTROID, HEAD)}
        labels = list(job.plain.labels)
        tables = [scores_table(labels, kept[name], test.gold, {"correction": [name] * len(test.gold)}) for name in kept]
        write_table(samples, pa.concat_tables(tables))
    for name in (RAW, BATCH, SLOPE, CENTROID, HEAD) if more is None else (HEAD,):
        for count in LABELLED if name in (SLOPE, CENTROID, HEAD) else (0,):
            rows, started = drawn(dev, count, case.seed), time.process_time()
            scores = corrected(name, rows, test, more)
            yield {
                "memory": memory,
                "correction": name,
                "labelled": count,
                "task": case.task,
                "seed": case.seed,
                "n": len(test.gold),
                "right": int((scores.argmax(axis=1) == test.gold).sum()),
                "ece": round(calibration_error(scores, test.gold), 4),
                "seconds": round(time.process_time() - started, 3),
            }


def gold_of(rows: Sequence[Query], labels: Sequence[str]) -> list[int]:
    """The places of the rows' true labels."""
    return [labels.index(str(row.gold)) for row in rows]


def of_encoder(case: Case, folder: str, fine_tune: bool) -> Iterator[dict[str, Any]]:
    """The rows of a sentence encoder with the same labelled rows: logistic regression on its embeddings, or SetFit."""
    import numpy as np

    job = case.job(iterations=1, at="1")
    template, labels = job.plain.template, job.plain.labels
    (dev, of_dev, groups), (test, of_test, _) = (
        (
            ["\n".join(template.values(row.text).values()) for row in rows],
            gold_of(rows, labels),
            input_groups(rows, template, labels),
        )
        for rows in (list(job.queries(part)) for part in ("dev", "test"))
    )
    places = Measured(np.zeros((len(dev), len(labels))), np.arange(len(dev))[:, None, None], of_dev, groups)
    label = by_setfit(folder) if fine_tune else by_regression(folder, dev, test)
    for count in FINE_TUNED if fine_tune else LABELLED:
        rows, started = drawn(places, count, case.seed), time.process_time()
        chosen = [int(place) for place in rows.states.ravel()]
        scores = np.full((len(of_test), len(labels)), -np.inf)
        scores[:, sorted(set(rows.gold))] = np.log(label([dev[place] for place in chosen], rows.gold, test))
        yield {
            "memory": encoder_name(folder, fine_tune),
            "correction": SETFIT if fine_tune else REGRESSION,
            "labelled": count,
            "task": case.task,
            "seed": case.seed,
            "n": len(of_test),
            "right": int((scores.argmax(axis=1) == of_test).sum()),
            "ece": round(calibration_error(scores, of_test), 4),
            "seconds": round(time.process_time() - started, 3),
        }


def encoder_name(folder: str, fine_tuned: bool) -> str:
    """The name of an encoder among memories."""
    return f"{Path(folder).name}{', fine-tuned' if fine_tuned else ''}"


Classify = Callable[[Sequence[str], Sequence[int], Sequence[str]], "Floats"]


def by_regression(folder: str, dev: Sequence[str], test: Sequence[str]) -> Classify:
    """Probabilities (n, known labels) of texts by logistic regression on embeddings, all of which are made once."""
    from sentence_transformers import SentenceTransformer

    encoder, texts = SentenceTransformer(folder, device="cpu"), [*dev, *test]
    embedded = dict(zip(texts, encoder.encode(texts), strict=True))

    def label(read: Sequence[str], gold: Sequence[int], asked: Sequence[str]) -> Floats:
        fitted = standardised().fit([embedded[text] for text in read], gold)
        found: Floats = fitted.predict_proba([embedded[text] for text in asked])
        return found

    return label


def by_setfit(folder: str) -> Classify:
    """Probabilities (n, known labels) of texts by SetFit (Tunstall et al. 2022) with the defaults of its package.

    The encoder is fine-tuned on pairs of the labelled rows, then logistic regression is fitted to its embeddings.
    With DEV_ROWS rows the pairs are a sample: FEWER_PAIRS of equal and of unequal labels for each row.
    """
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def label(read: Sequence[str], gold: Sequence[int], asked: Sequence[str]) -> Floats:
        import numpy as np

        known = sorted(set(gold))
        model = SetFitModel.from_pretrained(folder, device="cpu")
        rows = Dataset.from_dict({"text": list(read), "label": [known.index(place) for place in gold]})
        pairs = FEWER_PAIRS if len(read) == DEV_ROWS else None
        asks = TrainingArguments(batch_size=16, num_epochs=1, num_iterations=pairs, report_to="none")
        Trainer(model, asks, train_dataset=rows).train()
        found: Floats = np.asarray(model.predict_proba(list(asked), as_numpy=True), dtype=np.float64)
        return found

    return label


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean accuracies after plain reading, by correction and number of labelled rows, as a Markdown table.

    Means are over tasks and seeds. The last column is the expected calibration error with the most rows.
    """
    numbers = " | ".join(map(str, LABELLED))
    lines = [f"| correction | {numbers} | ECE |", "|---|" + "--:|" * (1 + len(LABELLED))]
    for name in (RAW, BATCH, SLOPE, CENTROID, HEAD):
        same = [row for row in rows if (row["memory"], row["correction"]) == (PLAIN_MEMORY, name)]
        cells = [_mean(row for row in same if row["labelled"] in (0, count)) for count in LABELLED]
        ece = fmean(100 * row["ece"] for row in same if row["labelled"] in (0, DEV_ROWS))
        lines.append(f"| `{name}` | {' | '.join(cells)} | {ece:.1f} |")
    return "\n".join(lines)


def _mean(rows: Iterable[dict[str, Any]]) -> str:
    return f"{fmean(100 * row['right'] / row['n'] for row in rows):.1f}"


def beside(rows: Sequence[dict[str, Any]]) -> str:
    """The head after other memories, and classifiers of embeddings; in parentheses the head after plain reading.

    Both are on the same tasks and seeds, which `runs` counts.
    """
    lines = [f"| | runs | {' | '.join(map(str, LABELLED))} |", "|---|" + "--:|" * (1 + len(LABELLED))]
    plain = [row for row in rows if (row["memory"], row["correction"]) == (PLAIN_MEMORY, HEAD)]
    for memory in dict.fromkeys(row["memory"] for row in rows if row["memory"] != PLAIN_MEMORY):
        corrections = {row["correction"] for row in rows if row["memory"] == memory}
        name = next(each for each in (HEAD, REGRESSION, SETFIT) if each in corrections)
        found = [row for row in rows if (row["memory"], row["correction"]) == (memory, name)]
        cells = {(row["task"], row["seed"]) for row in found}
        same = [row for row in plain if (row["task"], row["seed"]) in cells]
        shown = f"`{name}`, {memory}" if name == HEAD else f"{name}, {memory}"
        values = []
        for count in LABELLED:
            one, other = ([row for row in each if row["labelled"] == count] for each in (found, same))
            values.append(f"{_mean(one)} ({_mean(other)})" if one else "")
        lines.append(f"| {shown} | {len(cells)} | {' | '.join(values)} |")
    return "\n".join(lines)


def advice(rows: Sequence[dict[str, Any]]) -> str:
    """The best correction after plain reading, by the number of labelled rows and of labels, as a Markdown table.

    The seconds are those of fitting the head, and the head with rows without labels.
    """
    lines = [f"| labelled rows | {' | '.join(FEW_OR_MANY)} | seconds |", "|--:|" + "---|" * len(FEW_OR_MANY) + "--:|"]
    for count in LABELLED:
        cells = []
        for tasks in FEW_OR_MANY.values():
            measured_as = {name: (PLAIN_MEMORY, name) for name in (RAW, BATCH, SLOPE, CENTROID, HEAD)}
            measured_as[f"{HEAD} --unlabelled"] = (JOINED, HEAD)
            found = {name: _mean_of(rows, of, count, tasks) for name, of in measured_as.items()}
            best = max(found, key=lambda name: found[name])
            cells.append(f"`{best}` {found[best]:.1f} (`{RAW}` {found[RAW]:.1f})")
        fitting = [
            fmean(
                row["seconds"]
                for row in rows
                if (row["memory"], row["correction"], row["labelled"]) == (memory, HEAD, count)
            )
            for memory in (PLAIN_MEMORY, JOINED)
        ]
        lines.append(f"| {count} | {' | '.join(cells)} | {fitting[0]:.2f}, {fitting[1]:.1f} |")
    return "\n".join(lines)


def _mean_of(rows: Sequence[dict[str, Any]], of: tuple[str, str], count: int, tasks: Sequence[str]) -> float:
    """The mean accuracy over tasks of the means over seeds, in percent."""
    of_tasks = []
    for task in tasks:
        same = [row for row in rows if (row["memory"], row["correction"], row["task"]) == (*of, task)]
        of_tasks.append(fmean(100 * row["right"] / row["n"] for row in same if row["labelled"] in (0, count)))
    return fmean(of_tasks)


def page(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """The text with the tables between their marks, as in `<!-- heads -->`."""
    for mark, made in (("heads", table), ("advice", advice), ("beside", beside)):
        start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}{made(rows)}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    """Append the rows that are missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, GGUF file or hub id")
    parser.add_argument("--data-dir", help="the tasks' rows; without it they come from the hub")
    parser.add_argument("--memories", nargs="+", default=[PLAIN_MEMORY], choices=MEMORIES)
    parser.add_argument("--encoder", help="folder or hub id of a sentence encoder, to measure in place of memories")
    parser.add_argument("--setfit", action="store_true", help="fine-tune the encoder: SetFit, with few rows alone")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--samples", type=Path, help="folder of the scores of test rows with most labels")
    parser.add_argument("--page", type=Path, help="write the tables of what is there into this page")
    parser.add_argument("-o", "--out", type=Path, required=True, help="file of the rows")
    args = parser.parse_args()
    if args.page is not None:
        args.page.write_text(page(args.page.read_text(encoding="utf-8"), rows_of(args.out)), encoding="utf-8")
        return
    case_of = cases(args.model, args.data_dir)
    there = {(row["memory"], row["task"], row["seed"]) for row in rows_of(args.out)}
    named = args.memories if args.encoder is None else [encoder_name(args.encoder, args.setfit)]
    for memory, seed, task in product(named, args.seeds, args.tasks):
        samples = args.samples / f"{task}-{seed}.parquet" if args.samples else None
        if (memory, task, seed) not in there or (samples is not None and not samples.exists()):
            case = case_of(task, seed)
            if args.encoder is None:
                found = list(figures(case, memory, samples))
            else:
                found = list(of_encoder(case, args.encoder, args.setfit))
            append(args.out, (json.dumps(row) + "\n" for row in found))
            print(f"{memory}, {task}, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
