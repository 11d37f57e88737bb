"""What `predict` does beside the network: rows a second of one core, in each of its stages.

    python benchmarks/tokenizing.py --data-dir DIR --tokenizer DIR [--tokenizer DIR ...]

The rows are AG News' test rows with four candidates, after one demonstration. No network is run: every score is 0.
Seconds are the processor's, of all threads. The tokenizer divides its own part of tokenising among threads: Python does
the rest, one thread at a time.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from deepthink_cli.artifact.opening import opened
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import ScoringPlan, Sums
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.events import silent
from deepthink_cli.memory import Memory
from deepthink_cli.model.boundary import encode
from deepthink_cli.prediction.files import write_labels
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.predict import Labelling
from deepthink_cli.prediction.rows import output_rows
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.inputs import check_rows
from deepthink_cli.scoring.pipeline import Part, planned, scored
from deepthink_cli.tasks.rows import in_columns
from record import Table, parser

Result = TypeVar("Result")
COLUMNS = ("tokenizer", "checking", "reading", "tokenising", "its own part", "predictions", "writing", "predict")
NOTE = (
    "Rows a second of one core, for the test rows of AG News with four candidates, every score 0. Its own part is the "
    "tokenizer's part of tokenising; predict goes from file to file."
)


class NoNetwork(PackedEngine):
    """An engine whose scores are all 0."""

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """Zeros in the shape of the scores."""
        return [[[0.0] * len(query.answers) for query in plan.queries] for _ in memories]


def write_model(folder: Path, tokenizer: str) -> str:
    """A Llama of one layer of 8 numbers beside a tokenizer."""
    logging.disable_progress_bar()
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    config = LlamaConfig(
        vocab_size=len(loaded), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    loaded.save_pretrained(folder)
    return str(folder)


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """The processor's seconds of some work, and its result."""
    started = process_time()
    result = work()
    return process_time() - started, result


def stages(folder: Path, inputs: str, data_dir: str, tokenizer: str) -> tuple[float, ...]:
    """Seconds of each stage for all rows, as `COLUMNS` has them."""
    model, path = write_model(folder / "model", tokenizer), folder / "mem.safetensors"
    words = f"think --task agnews --shots 1 -T 1 -q --data-dir {data_dir} -m {model} -o {path}"
    assert run(words.split()) == 0
    memory, source = opened(path), RowSource(inputs)
    demonstrations = memory.provenance.demonstrations
    scorer = Scorer.open(memory)
    loaded = scorer.load(scorer.find(None, silent), silent)
    loaded.engine = engine = NoNetwork(loaded.engine.model)
    checking, checked = timed(lambda: check_rows(demonstrations, source))
    reading, queries = timed(lambda: list(read_queries(source, demonstrations.template, demonstrations.labels)))
    texts = [demonstrations.template.query(query.text) for query in queries]
    tokenizer_alone, _ = timed(lambda: encode(engine.tokenizer, texts, special=False))
    tokenising, chunks = timed(lambda: list(planned(engine, demonstrations, queries)))
    predicting, parts = timed(lambda: [scored(engine, loaded.members, chunk) for chunk in chunks])
    form = output_rows(scorer, checked, False, LabelOptions.checked(), ErrorOptions.checked())
    writing, _ = timed(lambda: write_labels(lambda **_: iter(parts), folder / "labels.jsonl", form, silent))

    def labelled(**_: Any) -> Iterator[Part]:
        rows = in_columns(memory, source)
        return Labelling(scorer, rows, check_rows(demonstrations, rows))(silent, loaded)

    whole, _ = timed(lambda: write_labels(labelled, folder / "labels.jsonl", form, silent))
    return checking, reading, tokenising, tokenizer_alone, predicting, writing, whole


def main() -> None:
    """Measure and show a row for each tokenizer."""
    options = parser(__doc__)
    options.add_argument("--data-dir", required=True, help="folder that holds ag_news/")
    options.add_argument("--tokenizer", required=True, action="append", help="folder with a tokenizer; may be repeated")
    arguments = options.parse_args()
    gc.disable()  # each stage holds all rows here, which `predict` never does
    inputs = str(Path(arguments.data_dir) / "ag_news" / "test.jsonl")
    with open(inputs, "rb") as file:
        rows = sum(1 for _ in file)
    table = Table(arguments, "Beside the network", COLUMNS, note=NOTE)
    for tokenizer in arguments.tokenizer:
        with tempfile.TemporaryDirectory() as folder:
            seconds = stages(Path(folder), inputs, arguments.data_dir, tokenizer)
        table.add(Path(tokenizer).name, *(rows / each for each in seconds))


if __name__ == "__main__":
    main()
