"""`deepthink predict` from start to end: how much of its time is spent in the network's passes.

    python benchmarks/predicting.py --data-dir DIR --tokenizer DIR
    python benchmarks/predicting.py --data-dir DIR --task trec --rows 1000 100000 --shapes pocket smollm2-135m-instruct

The rows are those of AG News, or the short questions of TREC, repeated. Three models: the built-in one, GPT-2's shape
with random weights and its own tokenizer, and the real model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from deepthink_cli.model.options import POCKET
from real_model import REAL
from record import Table, parser
from timed import measured

FLOOR_ROWS = 256
TASKS = {"agnews": "ag_news", "trec": "trec"}  # and the folder of their rows
COLUMNS = (
    *("model", "engine", "rows", "wall", "after loading", "in passes", "inputs/s", "floor, inputs/s", "peak"),
    *("products, %", "attention, %"),
)
PRODUCTS = ("linear", "mm")  # what the names of matrix products contain
NOTE = (
    "Wall seconds of labelling rows from file to file, those after the model is loaded, and those in its passes. The "
    "floor is the rate of the matrix products of the first rows alone. The last columns are the shares of the time of "
    "scoring these rows that products and attention take, by torch's profiler. Peak memory in MiB."
)


def write_gpt2(folder: Path, tokenizer: str) -> str:
    """Save GPT-2's shape with random weights beside its tokenizer."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    from shapes import config_of, random_network

    logging.disable_progress_bar()
    random_network(config_of("gpt2")).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    return str(folder)


def first_rows(args: argparse.Namespace, rows: int, folder: Path) -> str:
    """A file with the first test rows, which are repeated if they are fewer."""
    path = folder / f"{rows}.jsonl"
    lines = (
        (Path(args.data_dir) / TASKS[args.task] / "test.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    path.write_text("".join(islice(cycle(lines), rows)), encoding="utf-8")
    return str(path)


def floor_rate(model_name: str, memory_file: str, inputs: str) -> tuple[str, float, float, float]:
    """The engine, inputs a second of the first rows' products alone, and the percentages of products and attention."""
    from torch.profiler import ProfilerActivity, profile

    from deepthink_cli import load_memory, load_model, score, tokenize_queries
    from deepthink_cli.data.examples import read_queries
    from deepthink_cli.engine.batches import BatchedEngine
    from floor import products_of

    engine, memory = load_model(model_name), load_memory(memory_file)
    assert memory.provenance is not None
    assert isinstance(engine, BatchedEngine)
    read = memory.provenance.demonstrations
    first = list(islice(read_queries(inputs, read.template, read.labels), FLOOR_ROWS))
    queries = tokenize_queries(engine.tokenizer, read.template, first)
    products = products_of(engine, memory, queries)
    rate = len(first) / min(products.seconds() for _ in range(3))
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        score(engine, memory, queries)
    spent = {each.key.split("::")[-1]: each.self_cpu_time_total for each in profiled.key_averages()}
    parts = [
        sum(time for name, time in spent.items() if any(word in name for word in words))
        for words in (PRODUCTS, ("attention",))
    ]
    return engine.name, rate, *(100 * part / sum(spent.values()) for part in parts)


def row(model: str, args: argparse.Namespace, rows: int, folder: Path) -> tuple[str | float, ...]:
    """Think once, predict under the clock, and return a row of the table without its title."""
    memory, out = str(folder / "mem.safetensors"), folder / "out.jsonl"
    measured(["think", "-m", model, "--task", args.task, "--data-dir", args.data_dir, "-T", "1", "-q", "-o", memory])
    inputs = first_rows(args, rows, folder)
    _, cost = measured(["predict", memory, inputs, "-q", "-o", str(out)])
    done = sum(1 for _ in out.open(encoding="utf-8"))
    if cost.loaded is None:
        sys.exit("predict loaded no model: the clock stands in the wrong place")
    engine, floor, *shares = floor_rate(model, memory, inputs)
    rates = (done / cost.loaded, floor)
    return engine, done, cost.wall, cost.loaded, cost.passes, *rates, cost.peak / 2**20, *shares


def models(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """The title and the model of every row."""
    for shape in args.shapes:
        if shape == "gpt2" and args.tokenizer:
            yield "GPT-2 124M, random weights", write_gpt2(folder / "gpt2", args.tokenizer)
        elif shape != "gpt2":
            from shapes import weights_of

            source = weights_of(shape) or sys.exit(f"--shapes {shape}: needs weights and a tokenizer in its folder")
            yield Path(shape).name, source


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument(
        "--data-dir", required=True, help="directory with train.jsonl and test.jsonl in ag_news/ or trec/"
    )
    options.add_argument("--task", choices=TASKS, default="agnews")
    options.add_argument("--tokenizer", help="directory with GPT-2's tokenizer; without it gpt2 does not run")
    options.add_argument("--shapes", nargs="+", default=[POCKET, "gpt2", REAL], help="of these, or folders of models")
    options.add_argument("--rows", type=int, nargs="+", help="default: 7600 of the built-in model, 256 of others")
    args = options.parse_args()
    title = "predict from start to end" + (", short rows" if args.task == "trec" else "")
    table = Table(args, title, COLUMNS, ("in passes / after loading",), NOTE)
    with tempfile.TemporaryDirectory() as name:
        for title, model in models(args, Path(name)):
            for rows in args.rows or [7600 if title == POCKET else 256]:
                table.add(title, *row(model, args, rows, Path(name)))


if __name__ == "__main__":
    main()
