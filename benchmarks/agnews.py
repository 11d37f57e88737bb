"""AG News with its own lengths: the first test inputs, demonstrations of the task, a tokenizer.

The official code pads every row to the longest of the whole test set, so the width is that of all test inputs
however few of them are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_demonstrations, tokenize_queries
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

MAX_TOKENS = 480  # with it the longest test input fits a context of 1,024
SEED = 0


@dataclass(frozen=True)
class AgNews:
    """Demonstration ids [L], the inputs that are scored, and the longest row of the whole test set in tokens."""

    ids: tuple[int, ...]
    queries: Sequence[TokenizedQuery]
    width: int
    rows: int


def read_agnews(data_dir: str, tokenizer: PreTrainedTokenizerBase, inputs: int) -> AgNews:
    """Tokenise the task's demonstrations of seed 0 and its test rows; the first demonstrations go if L is too large."""
    task = find_task("agnews")
    evaluated = evaluation_set(task, "paper", Source(Path(data_dir)))
    given = draw_demonstrations(task, evaluated, seed=SEED).demonstrations
    queries = tokenize_queries(tokenizer, task.prompt, list(evaluated))
    width = max(query.longest for query in queries)
    return AgNews(_fitting(tokenizer, given), queries[:inputs], width, len(queries))


def _fitting(tokenizer: PreTrainedTokenizerBase, given: DemonstrationSet) -> tuple[int, ...]:
    for first in range(len(given.examples)):
        ids = tokenize_demonstrations(tokenizer, replace(given, examples=given.examples[first:])).token_ids
        if len(ids) <= MAX_TOKENS:
            return ids
    raise SystemExit(f"not one demonstration of AG News has at most {MAX_TOKENS} tokens")
