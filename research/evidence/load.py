"""Read result folders: one table with a line for every row of a run, and its measures from the stored scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet

from deepthink_cli.experiments.results import FILE, Result, read_results
from deepthink_cli.experiments.samples import find_samples
from research.encoding import CALIBRATED, SCORES
from research.table1.runs import TASKS

from .measures import Floats, Ints, batch_calibrated, normalised, predicted

METHODS = ("random", "techniques", "choices")
VARIED = ("own", "etas", "long", "shots", "orders", "chat")
NEAREST = "nearest"  # the folder of what the nearest mean hidden state gives; it has no results
ARMS_FOLDER = "arms"  # the folder of the samples of `research/techniques.py`
SUBJECTS = "subjects"  # the folder of MMLU and BBH, whose inputs have their own candidates
DIGEST = "demonstrations_sha256"
ORDER = ("continued", "restarted", "official")
TASK_NAMES = {"sst2": "SST-2", "sst5": "SST-5", "mr": "MR", "agnews": "AG News", "trec": "TREC"}
COLUMNS = (
    *("folder", "setting", "task", "technique", "sampling", "seed", "eta", "t", "part"),
    *("rows", "demonstrations", "accuracy", "shots", "order", "scores"),
)


@dataclass(frozen=True, eq=False)
class Scores:
    """Normalised log-probabilities [n, C] of the labels, the true label [n] as an index, and where the rows are [n]."""

    labels: tuple[str, ...]
    logs: Floats
    gold: Ints
    where: tuple[str, ...] = ()

    def at(self, where: Sequence[str]) -> Scores:
        """Those of the rows that are there, in this order."""
        places = {each: place for place, each in enumerate(self.where)}
        rows = [places[each] for each in where]
        return replace(self, logs=self.logs[rows], gold=self.gold[rows], where=tuple(where))


@dataclass(frozen=True, eq=False)
class Evidence:
    """All rows of all folders whose scores are there.

    `subjects` are the results of MMLU and BBH; `nearest` has the scores of test rows by the nearest mean hidden state,
    by task, seed and the digest of the demonstrations; `arms` has those of `research/techniques.py` of test rows and
    dev rows (`part`), by arm, task and seed.
    """

    rows: pd.DataFrame
    subjects: tuple[Result, ...]
    models: tuple[str, ...]
    nearest: Mapping[tuple[str, int, str], Scores] = field(default_factory=dict)
    arms: Mapping[tuple[str, str, int], Mapping[str, Scores]] = field(default_factory=dict)

    def folder(self, *names: str) -> pd.DataFrame:
        """The rows of these folders."""
        return self.rows[self.rows["folder"].isin(names)]

    @property
    def grid(self) -> pd.DataFrame:
        """The rows that are neither of another method nor of a variation."""
        return self.rows[~self.rows["folder"].astype(str).isin((*METHODS, *VARIED))]


def read_evidence(folder: Path) -> Evidence:
    """Read every run below a folder; a folder that is missing or has no rows yet contributes nothing."""
    lines, models = list[dict[str, Any]](), set[str]()
    subjects = tuple(read_results(folder / SUBJECTS)) if (folder / SUBJECTS / FILE).exists() else ()
    for path in sorted(path for path in folder.glob(f"*/{FILE}") if path.parent.name != SUBJECTS):
        results = read_results(path.parent)
        names = _setting_names(path.parent.name, results)
        for result in results:
            samples = find_samples(path.parent, result)
            if samples is not None:
                lines.append(_line(path.parent.name, names[_family(result)], result, read_scores(samples, result)))
            models.add(PurePath(result.setting.model).name)
    rows = pd.DataFrame(lines, columns=None if lines else [*COLUMNS])
    rows = in_order(rows).sort_values(["setting", "task", "seed", "eta", "t", "part", "shots"], ignore_index=True)
    return Evidence(rows, subjects, tuple(sorted(models)), dict(_nearest(folder)), dict(_arms(folder)))


def nearest_path(folder: Path, task: str, seed: int) -> Path:
    """The file of the nearest mean hidden state for a task and a seed, in the folder of all results."""
    return folder / NEAREST / f"{task}-{seed}.parquet"


def _nearest(folder: Path) -> Iterator[tuple[tuple[str, int, str], Scores]]:
    for path in sorted((folder / NEAREST).glob("*.parquet")):
        task, _, seed = path.stem.rpartition("-")
        (digest,) = set(pyarrow.parquet.read_table(path, columns=[DIGEST])[DIGEST].to_pylist())
        yield (task, int(seed), digest), stored_scores(path)


def _arms(folder: Path) -> Iterator[tuple[tuple[str, str, int], dict[str, Scores]]]:
    for path in sorted((folder / ARMS_FOLDER).glob("*/*.parquet")):
        task, _, seed = path.stem.rpartition("-")
        parts, scores = pyarrow.parquet.read_table(path, columns=["part"])["part"].to_numpy(), stored_scores(path)
        of_parts = {
            str(part): replace(scores, logs=scores.logs[parts == part], gold=scores.gold[parts == part])
            for part in np.unique(parts)
        }
        yield (path.parent.name, task, int(seed)), of_parts


def read_scores(path: Path, result: Result) -> Scores:
    """The scores of one row of a run, corrected if it has a calibration; all its inputs have the same candidates."""
    name = SCORES if result.setting.calibration is None else CALIBRATED
    where = pyarrow.parquet.read_table(path, columns=["where"])["where"].to_pylist()
    return replace(stored_scores(path, name), where=tuple(where))


def stored_scores(path: Path, name: str = SCORES) -> Scores:
    """The scores of a file of samples, before a correction or with it (`calibrated`)."""
    table = pyarrow.parquet.read_table(path, columns=["gold", "candidates", name])
    labels = tuple(table["candidates"][0].as_py())
    flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    places = {label: place for place, label in enumerate(labels)}
    gold = np.array([places[label] for label in table["gold"].to_pylist()], dtype=np.int64)
    return Scores(labels, normalised(flat.astype(np.float64).reshape(len(gold), len(labels))), gold)


def _line(folder: str, setting: str, result: Result, scores: Scores) -> dict[str, Any]:
    calibrated, right = batch_calibrated(scores.logs), predicted(scores.logs) == scores.gold
    return {
        "folder": folder,
        "setting": setting,
        "task": result.setting.task,
        "seed": result.setting.seed,
        "eta": result.setting.eta,
        "t": result.setting.iteration,
        "technique": result.setting.technique or "",
        "sampling": result.setting.sampling,
        "part": result.setting.part,
        "rows": result.setting.rows_sha256,
        "demonstrations": result.demonstrations_sha256,
        "shots": result.shots_used,
        "order": result.setting.order_seed,
        "scores": scores,
        "right": right,
        "accuracy": float(right.mean()),
        "calibrated": float((predicted(calibrated) == scores.gold).mean()),
    }


def _family(result: Result) -> tuple[str, float]:
    return result.setting.positions, result.setting.momentum


def _setting_names(folder: str, results: list[Result]) -> dict[tuple[str, float], str]:
    """The folder's name; if it holds several positions or momenta, with these."""
    families = sorted({_family(result) for result in results})
    if len(families) == 1:
        return {families[0]: folder}
    prefix = "" if folder in METHODS else f"{folder}, "
    return {
        (positions, momentum): f"{prefix}{positions}" + (f", momentum {momentum:g}" if momentum else "")
        for positions, momentum in families
    }


def named(tasks: Collection[str]) -> str:
    """The names of tasks, in the order of tables."""
    return ", ".join(TASK_NAMES[task] for task in TASKS if task in tasks)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with tasks and settings as ordered categories, in the order of tables, however they were run."""
    for name, order in (("task", TASKS), ("setting", ORDER)):
        values = set(rows[name])
        known = [value for value in order if value in values]
        rows[name] = pd.Categorical(rows[name], [*known, *sorted(values - set(known))], ordered=True)
    return rows
