"""Result folders of `deepthink run --samples`, written with made-up scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepthink_cli.data.examples import Query
from deepthink_cli.experiments.results import FILE, Part, Result, Setting, bits
from deepthink_cli.experiments.samples import write_samples
from deepthink_cli.scoring.prediction import Prediction
from research import techniques

LABELS = ("negative", "positive")
ITERATIONS = (1, 2, 5)


def write_grid(folder: Path, positions: str, seeds: Sequence[int], etas: Sequence[float] = (0.01, 0.1)) -> None:
    """A run of two tasks with test and dev rows, every seed, eta and T."""
    for task in ("sst2", "mr"):
        for seed in seeds:
            for eta in etas:
                for t in ITERATIONS:
                    for part, number in (("test", 40), ("dev", 20)):
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
    setting = Setting(
        model="dir/tiny.gguf",
        model_sha256="m",
        dtype="float32",
        quantize=None,
        task_sha256=task,
        protocol="official",
        split="validation",
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
        weights_sha256="w",
        update=update,
        technique=technique,
    )
    row = Result(
        key=setting.key,
        setting=setting,
        groups=[*groups],
        shots_used=shots,
        length=100 + seed,
        demonstrations_sha256=f"{seed}",
        n=len(right),
        right=sum(right),
        accuracy=sum(right) / len(right),
        accuracy_mean_per_token=0.5,
        macro_f1=None,
        ties=0,
        majority=0.5,
        chance=0.5,
        correct=bits(right),
        drift=None if t == 1 else (0.1 * eta * t, 0.2 * eta + 0.01 * seed),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / FILE, "a", encoding="utf-8") as file:
        file.write(row.line())
    predictions = [
        Prediction(Query("text", LABELS, true, f"rows:{place}"), t, label, 0.5, sums, label, False, means=sums)
        for place, (true, label, line) in enumerate(zip(gold, labels, scores.tolist(), strict=True))
        for sums in [dict(zip(LABELS, line, strict=True))]
    ]
    write_samples(folder, row, predictions)
    return row


def write_arm(folder: Path, arm: str, scores: np.ndarray, task: str = "sst2", seed: int = 0, dev: bool = True) -> None:
    """The samples of an arm of `research/techniques.py`; its dev rows have the scores of the first test rows."""
    gold, half = [place % 2 for place in range(len(scores))], len(scores) // 2
    part = (scores[:half], gold[:half]) if dev else None
    outcome = techniques.Outcome("none", scores, gold, 8, 100, techniques.Cost(), techniques.Cost(), part)
    path = techniques.samples_path(folder / "arms" / "techniques.jsonl", arm, task, seed)
    techniques.write_samples(path, LABELS, [outcome])
