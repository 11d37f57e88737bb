"""What a memory saves on a GPU: reading it, scoring after it, and reading whole prompts instead, in one process.

    python benchmarks/gpu.py --shapes gpt2 smollm2-135m-instruct --dtypes float32 bfloat16

Scores `--inputs` inputs with four candidates of one token, after a memory that is the plain reading of L tokens: by the
engine that `load_model` chooses, by the engine with one sequence a row, and by transformers alone, which reads whole
prompts in padded batches, each once for its candidates. Prints a Markdown table: milliseconds of a second reading,
inputs per second (best of the rounds), and the largest difference of a score in nats: from whole prompts, and for a
model with trained weights from float32 on the processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
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
from shapes import build_engine, memory_ids, weights_of, workload
from trec import words_of

Result = TypeVar("Result")


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
def whole_prompts(engine: BatchedEngine, ids: Sequence[int], queries: Sequence[TokenizedQuery], batch: int) -> Sums:
    """Log-probabilities of one-token candidates by transformers' own forward, the prompts padded on the right."""
    network, device = engine.model.network, engine.model.device
    order = sorted(range(len(queries)), key=lambda place: len(queries[place].prefix))
    sums: Sums = [[]] * len(queries)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        prompts = [torch.tensor([*ids, *queries[place].prefix]) for place in places]
        ends = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        hidden_BSW = network.base_model(pad_sequence(prompts, batch_first=True).to(device)).last_hidden_state
        last_BW = hidden_BSW[torch.arange(len(places), device=device), ends]
        logprobs_BV = network.get_output_embeddings()(last_BW).float().log_softmax(-1)
        candidates = torch.tensor([[ids[0] for ids in queries[place].answers] for place in places], device=device)
        for place, row in zip(places, logprobs_BV.gather(1, candidates).tolist(), strict=True):
            sums[place] = row
    return sums


def row(shape: str, dtype: str, length: int, args: argparse.Namespace) -> str:
    """The cells of one model, dtype and memory length."""
    engine = build_engine(shape, getattr(torch, dtype), args.device)
    ids, queries = _given(shape, engine, length, args.inputs)
    (memory,) = engine.read([Reading(ids)])
    again = Reading(ids, memory, length)
    reading, _ = best(lambda: engine.read([again]), args.rounds)
    plan, single = engine.plan(queries), PaddedEngine(engine.model)
    ways = {
        "memory": lambda: engine.score([engine.place(memory)], plan)[0],
        "one a row": lambda: single.score([single.place(memory)], single.plan(queries))[0],
        "whole": lambda: whole_prompts(engine, ids, queries, args.batch),
    }
    found = {name: best(way, args.rounds) for name, way in ways.items()}
    rates = [f"{len(queries) / seconds:,.0f}" for seconds, _ in found.values()]
    cells = [f"{reading * 1e3:.1f}", *rates, f"{found['whole'][0] / found['memory'][0]:.0f}"]
    cells += [f"{difference(found['memory'][1], found['whole'][1]):.1e}"]
    return " | ".join([*cells, _from_processor(shape, length, args, found["memory"][1])])


def _given(shape: str, engine: BatchedEngine, length: int, inputs: int) -> tuple[tuple[int, ...], list[TokenizedQuery]]:
    words = words_of(shape, engine.model)
    return tuple(memory_ids(words, length)), workload(words, inputs, candidate_tokens=1)


def _from_processor(shape: str, length: int, args: argparse.Namespace, sums: Sums) -> str:
    """The largest difference from float32 on the processor, over the first inputs."""
    if weights_of(shape) is None:
        return ""
    engine = build_engine(shape)
    ids, queries = _given(shape, engine, length, args.inputs)
    (memory,) = engine.read([Reading(ids)])
    few = queries[: args.compared]
    return f"{difference(engine.score([memory], engine.plan(few))[0], sums[: args.compared]):.1e}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="+", default=["gpt2", "pythia-160m", REAL], help="as in speed.py")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512], help="L")
    parser.add_argument("--inputs", type=int, default=2048, help="N")
    parser.add_argument("--batch", type=int, default=64, help="whole prompts in a batch")
    parser.add_argument("--compared", type=int, default=64, help="inputs that are also scored on the processor")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    logging.set_verbosity_error()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else args.device
    print(f"{device}, torch {torch.__version__}\n")
    print("| model | dtype | L | reading ms | inputs/s | one a row | whole prompts | gain | from whole | from CPU |")
    print("|---|---|" + "--:|" * 8)
    for shape in args.shapes:
        for dtype in args.dtypes:
            for length in args.lengths:
                print(f"| {Path(shape).name} | {dtype} | {length} | {row(shape, dtype, length, args)} |", flush=True)


if __name__ == "__main__":
    main()
