"""What a memory saves on a GPU, and how far that is from the goals: the ways to score after it, in one process.

    python benchmarks/gpu.py --shapes gpt2 smollm2-135m-instruct --dtypes float32 bfloat16
    python benchmarks/gpu.py --shapes smollm2-135m-instruct llama-3.2-1b llama-2-7b --dtypes bfloat16 --data-dir DIR

Scores `--inputs` inputs with candidates of one token, after a memory that is the plain reading of L tokens: by the
engine that `load_model` chooses; with one sequence a row; and by transformers alone, after a cache of the L tokens and
with whole prompts, each in padded batches in which an input is read once for all its candidates. With `--data-dir`,
`predict` also labels AG News' rows from file to file with each model that has trained weights.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TypeVar

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.utils import logging

from cells import Sums, difference
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.model.tokens import TokenizedQuery
from real_model import REAL
from record import Table, parser
from shapes import CANDIDATES, QUERY_TOKENS, build_engine, memory_ids, weights_of, workload
from timed import measured
from trec import words_of

Result = TypeVar("Result")
SHAPES = ["gpt2", "pythia-160m", REAL]
WAYS = ("deepthink", "one a row", "transformers, cache", "whole prompts")
COLUMNS = ("model", "dtype", "L", "reading ms", *WAYS, "from whole prompts", "from the processor")
NOTE = (
    f"Inputs per second, of {QUERY_TOKENS[0]} to {QUERY_TOKENS[1]} tokens with {CANDIDATES} candidates of one token, "
    "the best of the rounds, and milliseconds of a second reading. Weights are random but for SmolLM2's. Differences "
    "are the largest of a score in nats: from whole prompts, and for a model with trained weights from float32 on the "
    "processor, over the first inputs (`--compared`, 64)."
)
GOALS = {REAL: (10, 30_000), "llama-3.2-1b": (None, 7_600), "llama-2-7b": (None, 1_170)}  # ms of a reading, inputs/s


def best(run: Callable[[], Result], rounds: int) -> tuple[float, Result]:
    """The least seconds of one call, after one that warms up, and what it returned."""
    seconds = []
    for _ in range(rounds + 1):
        _wait()
        started = time.perf_counter()
        found = run()
        _wait()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:]), found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@torch.inference_mode()
def by_transformers(
    engine: BatchedEngine, ids: Sequence[int], queries: Sequence[TokenizedQuery], batch: int, cached: bool
) -> Sums:
    """Log-probabilities of one-token candidates by transformers' own forward, the rows of a batch padded on the right.

    A row is a whole prompt, or with `cached` an input alone, after a copy of a cache of the demonstrations.
    """
    network, device = engine.model.network, engine.model.device
    before = () if cached else tuple(ids)
    cache = (
        network.base_model(torch.tensor([[*ids]], device=device), use_cache=True).past_key_values if cached else None
    )
    order = sorted(range(len(queries)), key=lambda place: len(queries[place].prefix))
    sums: Sums = [[]] * len(queries)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        rows = [torch.tensor([*before, *queries[place].prefix]) for place in places]
        ends = torch.tensor([len(row) - 1 for row in rows], device=device)
        past = copy.deepcopy(cache)
        if past is not None:
            past.batch_repeat_interleave(len(places))
        padded_BS = pad_sequence(rows, batch_first=True).to(device)
        hidden_BSW = network.base_model(padded_BS, past_key_values=past).last_hidden_state
        last_BW = hidden_BSW[torch.arange(len(places), device=device), ends]
        logprobs_BV = network.get_output_embeddings()(last_BW).float().log_softmax(-1)
        candidates = torch.tensor([[ids[0] for ids in queries[place].answers] for place in places], device=device)
        for place, of_row in zip(places, logprobs_BV.gather(1, candidates).tolist(), strict=True):
            sums[place] = of_row
    return sums


def row(shape: str, dtype: str, length: int, args: argparse.Namespace) -> list[float | None]:
    """The figures of one model, dtype and memory length."""
    engine = build_engine(shape, getattr(torch, dtype), args.device)
    ids, queries = _given(shape, engine, length, args.inputs)
    (memory,) = engine.read([Reading(ids)])
    again = Reading(ids, memory, length)
    reading, _ = best(lambda: engine.read([again]), args.rounds)
    plan, single = engine.plan(queries), PaddedEngine(engine.model)
    queries_of_one = single.plan(queries)
    ways: list[Callable[[], Sums]] = [
        lambda: engine.score([engine.place(memory)], plan)[0],
        lambda: single.score([single.place(memory)], queries_of_one)[0],
        lambda: by_transformers(engine, ids, queries, args.batch, cached=True),
        lambda: by_transformers(engine, ids, queries, args.batch, cached=False),
    ]
    found = dict(zip(WAYS, (best(way, args.rounds) for way in ways), strict=True))
    ours, whole = found[WAYS[0]], found[WAYS[-1]]
    rates = [len(queries) / seconds for seconds, _ in found.values()]
    return [reading * 1e3, *rates, difference(ours[1], whole[1]), _from_processor(shape, length, args, ours[1])]


def labelled(source: str, dtype: str, args: argparse.Namespace) -> float:
    """Inputs per second of `predict` from file to file, after the model is loaded."""
    options = ["--dtype", dtype, "--device", args.device, "-q", "-o"]
    task = ["--task", "agnews", "--data-dir", str(args.data_dir), "-T", "1"]
    with tempfile.TemporaryDirectory() as folder:
        memory, inputs, out = (Path(folder) / name for name in ("mem.safetensors", "rows.jsonl", "labels.jsonl"))
        measured(["think", "-m", source, *task, *options, str(memory)])
        with (args.data_dir / "ag_news" / "test.jsonl").open(encoding="utf-8") as rows:
            lines = rows.readlines()
        inputs.write_text("".join(islice(cycle(lines), args.rows)), encoding="utf-8")
        _, cost = measured(["predict", str(memory), str(inputs), *options, str(out)])
    if cost.loaded is None:
        raise SystemExit("predict loaded no model: the clock stands in the wrong place")
    return float(args.rows / cost.loaded)


def _given(shape: str, engine: BatchedEngine, length: int, inputs: int) -> tuple[tuple[int, ...], list[TokenizedQuery]]:
    words = words_of(shape, engine.model)
    return tuple(memory_ids(words, length)), workload(words, inputs, candidate_tokens=1)


def _from_processor(shape: str, length: int, args: argparse.Namespace, sums: Sums) -> float | None:
    """The largest difference from float32 on the processor, over the first inputs."""
    if weights_of(shape) is None:
        return None
    engine = build_engine(shape)
    ids, queries = _given(shape, engine, length, args.inputs)
    (memory,) = engine.read([Reading(ids)])
    few = queries[: args.compared]
    return difference(engine.score([memory], engine.plan(few))[0], sums[: args.compared])


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--shapes", nargs="+", default=SHAPES, help="as in speed.py")
    options.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    options.add_argument("--lengths", type=int, nargs="+", default=[512], help="L")
    options.add_argument("--inputs", type=int, default=2048, help="N")
    options.add_argument("--batch", type=int, default=64, help="inputs in a batch of transformers alone")
    options.add_argument("--compared", type=int, default=64, help="inputs that are also scored on the processor")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--data-dir", type=Path, help="label AG News from file to file as well")
    options.add_argument("--rows", type=int, default=100_000, help="rows of that file")
    args = options.parse_args()
    logging.set_verbosity_error()
    title = "On a GPU" if args.shapes == SHAPES else f"{', '.join(args.shapes)} on a GPU"
    table = Table(args, title, COLUMNS, ("deepthink / whole prompts",), NOTE)
    for shape in args.shapes:
        for dtype in args.dtypes:
            for length in args.lengths:
                table.add(Path(shape).name, dtype, length, *row(shape, dtype, length, args))
    print("\nGoals for an H200 in bfloat16 with L = 512:\n")
    print("| model | reading ms | inputs/s | `predict` from file to file |\n|---|--:|--:|--:|")
    for shape, (reading, rate) in GOALS.items():
        print(f"| {shape} | {reading or ''} | {rate:,} | {0.8 * rate:,.0f} |")
    if args.data_dir is not None:
        columns, note = ("model", "dtype", "rows", "inputs/s"), "AG News from file to file, after loading."
        table = Table(args, "predict on a GPU", columns, note=note, part="predict")
        for shape in args.shapes:
            if source := weights_of(shape):
                for dtype in args.dtypes:
                    table.add(Path(shape).name, dtype, args.rows, labelled(source, dtype, args))


if __name__ == "__main__":
    main()
