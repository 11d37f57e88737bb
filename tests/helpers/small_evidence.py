"""Result folders of `deepthink run --samples`, written with made-up scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deepthink_cli.data.examples import Query
from deepthink_cli.experiments.results import FILE, Part, Result
from deepthink_cli.experiments.samples import write_samples
from deepthink_cli.scoring.prediction import Prediction
from helpers.synthetic import row

LABELS = ("negative", "positive")
ITERATIONS = (1, 2, 5)
PARTS: dict[Part, int] = {"test": 40, "dev": 20}


def write_evidence(folder: Path, seeds: Sequence[int]) -> None:
    """Runs of two tasks with the stages of docs/evidence.md; more readings lean more toward one label."""
    stages: dict[str, dict[str, Any]] = {
        "thinking": {"t": (1, 2, 5, 12), "eta": (0.01,)},
        "restarted": {"t": (2, 5, 12), "eta": (0.01, 0.1), "positions": "restarted"},
        "large": {"t": (12,), "eta": (0.1,)},
        "techniques": {"t": (1,), "eta": (0.01,), "technique": "composed"},
        "valid": {"t": (1, 5), "eta": (0.01,), "sampling": "random-valid"},
        "choices": {"t": (1,), "eta": (0.01,), "sampling": "graph-cut"},
    }
    for (name, stage), task, seed in product(stages.items(), ("sst2", "mr"), seeds):
        more = {key: value for key, value in stage.items() if key not in ("t", "eta")}
        for t, eta, (part, number) in product(stage["t"], stage["eta"], PARTS.items()):
            scores = made_up_scores(number, f"{name} {task} {seed} {t} {eta} {part}", bias=1.5 - 0.4 * t * seed)
            write_row(folder / name, scores, task=task, seed=seed, eta=eta, t=t, part=part, **more)


def write_grid(folder: Path, positions: str, seeds: Sequence[int], etas: Sequence[float] = (0.01, 0.1)) -> None:
    """A run of two tasks with test and dev rows, every seed, eta and T."""
    for task, seed, eta, t, (part, number) in product(("sst2", "mr"), seeds, etas, ITERATIONS, PARTS.items()):
        place = (task, seed, eta if t > 1 else 0.0, t, part, positions)
        scores = made_up_scores(number, str(place), bias=1.5 - 0.4 * t * seed)
        write_row(folder, scores, task=task, seed=seed, eta=eta, t=t, part=part, positions=positions)


def made_up_scores(number: int, name: str, bias: float) -> np.ndarray:
    """Scores [number, 2] that lean toward the true label, which alternates, and toward the second label by `bias`."""
    generator = np.random.default_rng(sum(map(ord, name)))
    scores = generator.normal(-3, 1, size=(number, 2))
    scores[np.arange(number), np.arange(number) % 2] += 1
    scores[:, 1] += bias
    return scores


def write_row(
    folder: Path,
    scores: np.ndarray,
    *,
    task: str = "sst2",
    seed: int = 0,
    eta: float = 0.1,
    t: int = 1,
    part: Part = "test",
    positions: str = "continued",
    momentum: float = 0.0,
    shots: int = 8,
    sampling: str = "random",
    technique: str | None = None,
    order: int | None = None,
    update: str | None = None,
    groups: Sequence[str] = ("classic",),
    rows: str = "",
) -> Result:
    """Append one row to a run and write its samples; true labels alternate."""
    gold = [LABELS[place % 2] for place in range(len(scores))]
    labels = [LABELS[place] for place in scores.argmax(axis=1)]
    right = [label == true for label, true in zip(labels, gold, strict=True)]
    measured = {"groups": [*groups], "length": 100 + seed, "accuracy_mean_per_token": 0.5, "macro_f1": None}
    made = row(
        right,
        measured | {"drift": None if t == 1 else (0.1 * eta * t, 0.2 * eta + 0.01 * seed)},
        model="dir/tiny.gguf",
        task_sha256=task,
        protocol="official",
        limit=len(scores),
        sampling=sampling,
        shots=shots,
        task=task,
        part=part,
        seed=seed,
        order_seed=order,
        eta=eta,
        momentum=momentum,
        positions=positions,
        iteration=t,
        demonstrations_sha256=f"{seed}",
        rows_sha256=f"{task} {part}{rows}",
        update=update,
        technique=technique,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / FILE, "a", encoding="utf-8") as file:
        file.write(made.line())
    predictions = [
        Prediction(Query("text", LABELS, true, f"rows:{place}"), t, label, 0.5, sums, label, False, means=sums)
        for place, (true, label, line) in enumerate(zip(gold, labels, scores.tolist(), strict=True))
        for sums in [dict(zip(LABELS, line, strict=True))]
    ]
    write_samples(folder, made, predictions)
    return made
