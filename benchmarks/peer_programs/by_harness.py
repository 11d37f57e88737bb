"""lm-evaluation-harness: the whole prompt again for every answer.

It gets ids: those of the whole text, as `deepthink predict` reads it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

from clock import DEMONSTRATIONS, Score, Scores, main, read_rows
from lm_eval.models.huggingface import HFLM


def load(folder: Path, model: str, most: str) -> Score:
    """The harness's own model of transformers; only the first `most` rows of a file are scored."""
    inner = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=1)
    encode = partial(inner.tok_encode, add_special_tokens=False)
    text = (folder / DEMONSTRATIONS).read_text(encoding="utf-8")

    def score(path: Path) -> Scores:
        rows = read_rows(path)[: int(most)]
        prompts = [inner.tok_encode(text + row.prompt, add_special_tokens=True) for row in rows]
        asked = [
            ((row.prompt, answer), prompt, encode(answer))
            for row, prompt in zip(rows, prompts, strict=True)
            for answer in row.answers
        ]
        found = iter(inner._loglikelihood_tokens(asked, disable_tqdm=True))
        return [[value for value, _ in islice(found, len(row.answers))] for row in rows]

    return score


if __name__ == "__main__":
    main(load)
