"""Questions of TREC's layout: the demonstrations and inputs of one cell, and text for memories of any length.

They come from a data directory, as for the built-in tasks, or from `questions`, rows written for the benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.model.tokens import TokenizedQuery, encode, tokenize_demonstrations, tokenize_queries
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import EvaluationSet, draw_demonstrations, evaluation_set
from shapes import Words, weights_of

QUESTIONS = Path(__file__).resolve().parent / "questions"
SHOTS = 48  # drawn; the first ones that come nearest to the requested length are read
SEED = 0


@dataclass(frozen=True)
class Trec:
    """Demonstration ids [L] of `shots` questions, and the questions that are scored, each with all six labels."""

    ids: tuple[int, ...]
    shots: int
    queries: Sequence[TokenizedQuery]


def read_trec(tokenizer: PreTrainedTokenizerBase, data_dir: str | None, inputs: int, tokens: int) -> Trec:
    """Tokenise a sample of the test questions, and as many demonstrations of seed 0 as come nearest to `tokens`."""
    evaluated, drawn = _rows(data_dir, inputs)
    starts = [replace(drawn, examples=drawn.examples[: number + 1]) for number in range(len(drawn.examples))]
    every = [tokenize_demonstrations(tokenizer, start).token_ids for start in starts]
    ids = min(every, key=lambda one: abs(len(one) - tokens))
    return Trec(ids, 1 + every.index(ids), tokenize_queries(tokenizer, drawn.template, list(evaluated)))


def words_of(shape: str, model: LanguageModel, data_dir: str | None = None) -> Words:
    """The source of ids: the text of solved questions for a model with weights, otherwise the whole vocabulary."""
    if weights_of(shape) is None:
        return int(model.network.config.vocab_size)
    _, drawn = _rows(data_dir, None)
    text = drawn.template.demonstrations((example.text, example.label) for example in drawn.examples)
    return encode(model.tokenizer, [text], special=False)[0]


def _rows(data_dir: str | None, inputs: int | None) -> tuple[EvaluationSet, DemonstrationSet]:
    task = find_task("trec")
    evaluated = evaluation_set(task, "paper", Source(Path(data_dir or QUESTIONS)), inputs)
    return evaluated, draw_demonstrations(task, evaluated, SHOTS, SEED).demonstrations
