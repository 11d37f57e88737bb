"""The scores of all runs, found by folder, iteration and method."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet

from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.experiments.samples import find_samples
from deepthink_cli.scoring.softmax import log_softmax
from research.encoding import SCORES

from .measures import Parts, Scores
from .runs import HEADS, TASKS

Cell = tuple[str, int]  # a task and a seed
Line = Mapping[Cell, Parts]  # the scores of a method in every cell that has them
TASK_NAMES = {"sst2": "SST-2", "sst5": "SST-5", "mr": "MR", "agnews": "AG News", "trec": "TREC"}
CORRECTION = "correction"  # the column of what turned the scores of T = 1 into others


@dataclass(frozen=True, eq=False)
class Evidence:
    """A row for each part of a cell that was scored, with columns as in a setting, and `scores`.

    `heads` has what corrections of hidden states give the test rows of T = 1, by their name.
    """

    rows: pd.DataFrame
    heads: Mapping[str, Line] = field(default_factory=dict)
    models: Collection[str] = ()

    def line(self, folder: str, **fields: Any) -> Line:
        """The scores of the rows of a folder whose columns have these values, in cells with test rows and dev rows."""
        rows = self.rows[self.rows["folder"] == folder]
        for name, value in fields.items():
            rows = rows[rows[name] == value]
        found: dict[Cell, dict[Any, Scores]] = {}
        for task, seed, part, scores in zip(*(rows[name] for name in ("task", "seed", "part", "scores")), strict=True):
            of_cell = found.setdefault((task, int(seed)), {})
            assert part not in of_cell, (folder, fields, task, seed, part)
            of_cell[part] = scores
        return {cell: parts for cell, parts in found.items() if {"test", "dev"} <= set(parts)}


def read_evidence(folder: Path) -> Evidence:
    """Read every run below a folder; a folder that is missing or has no rows yet contributes nothing."""
    lines, models = list[dict[str, Any]](), set[str]()
    for path in sorted(folder.glob(f"*/{FILE}")):
        for result in read_results(path.parent):
            setting, samples = result.setting, find_samples(path.parent, result)
            models.add(PurePath(setting.model).name)
            if samples is not None:
                lines.append(
                    {
                        "folder": path.parent.name,
                        "task": setting.task,
                        "seed": setting.seed,
                        "part": setting.part,
                        "eta": setting.eta,
                        "t": setting.iteration,
                        "technique": (setting.technique or "").partition(" ")[0],
                        "sampling": setting.sampling,
                        "scores": stored_scores(pyarrow.parquet.read_table(samples)),
                    }
                )
    heads: dict[str, dict[Cell, Parts]] = {}
    for cell, name, scores in _heads(folder / HEADS):
        heads.setdefault(name, {})[cell] = {"test": scores}
    columns = ("folder", "task", "seed", "part", "eta", "t", "technique", "sampling", "scores")
    lines.sort(key=lambda line: (TASKS.index(line["task"]), line["seed"]))
    return Evidence(pd.DataFrame(lines, columns=columns), heads, sorted(models))


def _heads(folder: Path) -> Iterator[tuple[Cell, str, Scores]]:
    for path in sorted(folder.glob("*.parquet")):
        task, _, seed = path.stem.rpartition("-")
        table = pyarrow.parquet.read_table(path)
        for name in dict.fromkeys(table[CORRECTION].to_pylist()):
            rows = table.filter(pyarrow.compute.equal(table[CORRECTION], name))
            yield (task, int(seed)), name, stored_scores(rows)


def stored_scores(table: pyarrow.Table) -> Scores:
    """The scores of samples; all their inputs have the same candidates."""
    labels = tuple(table["candidates"][0].as_py())
    flat = table[SCORES].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    gold = np.array([labels.index(label) for label in table["gold"].to_pylist()], dtype=np.int64)
    return Scores(labels, log_softmax(flat.astype(np.float64).reshape(len(gold), len(labels))), gold)


def in_order(tasks: Collection[str]) -> list[str]:
    """Tasks in the order of tables."""
    return [task for task in TASKS if task in tasks]
