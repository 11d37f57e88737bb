"""lm-evaluation-harness: the whole prompt again for every answer."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from clock import DEMONSTRATIONS, Score, Scores, main, read_rows
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM


def load(folder: Path, model: str) -> Score:
    """The harness's own model of transformers."""
    inner = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=1)
    shown = (folder / DEMONSTRATIONS).read_text(encoding="utf-8")

    def score(path: Path) -> Scores:
        rows = read_rows(path)
        asked = [
            Instance("loglikelihood", {}, (shown + row.prompt, answer), place)
            for row in rows
            for place, answer in enumerate(row.answers)
        ]
        found = iter(inner.loglikelihood(asked, disable_tqdm=True))
        return [[value for value, _ in islice(found, len(row.answers))] for row in rows]

    return score


if __name__ == "__main__":
    main(load)
