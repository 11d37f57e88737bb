"""How fast inputs are scored after a memory, beside other ways to get the same scores, and beside what is possible.

    python benchmarks/speed.py --out DIR

Writes DIR/speed.json (after every measurement), DIR/speed.md and DIR/speed.png. The systems:

    harness     lm-evaluation-harness: the whole prompt again for every candidate
    official    the official Deep-Thinking code's way: the memory copied for every row, padding, full logits
    deepthink   this package
    no-memory   deepthink on the same tokens with nothing before them
    products    the matrix products of those tokens alone

A run into a folder that has a speed.json keeps the cells that it does not measure again.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils import logging

import harness
from agnews import read_agnews
from cells import HARNESS, OFFICIAL, SYSTEMS, Rounds, Work, measure, read_work
from deepthink_cli.limits import limits_of
from deepthink_cli.model import LanguageModel
from peak import measure_peak
from record import Record
from report import draw, markdown
from shapes import SHAPES, build_model, config_of, memory_ids, workload

PARTS = ("speed", "agnews", "peak")
# Where the two slow systems run: every c at this L, and every L at this c.
REFERENCE_LENGTH, REFERENCE_TOKENS = 512, 2
LONGEST_INPUT = 64  # a query with its longest candidate, which must fit behind the memory


def main() -> None:
    """Measure what is asked for, and write the three files."""
    args = _arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    record = Record(args.out)
    rounds = Rounds(args.rounds, args.official_rounds, args.harness_rounds, args.harness_inputs)
    try:
        if "speed" in args.parts:
            _speed(args, rounds, record)
        if "agnews" in args.parts:
            _agnews(args, rounds, record)
        if "peak" in args.parts:
            _peak(args, record)
    finally:  # an interrupted run shows what it has
        (args.out / "speed.md").write_text(markdown(record.content), encoding="utf-8")
        if record.content["cells"]:
            draw(record.content["cells"], args.out / "speed.png")
    _say(f"wrote {args.out / 'speed.md'}")


def _speed(args: argparse.Namespace, rounds: Rounds, record: Record) -> None:
    """The synthetic inputs on every shape, after memories of every length."""
    for shape in args.shapes:
        _say(f"{shape}: building")
        model = build_model(shape, getattr(torch, args.dtype))
        for length in _lengths(args, shape):
            _say(f"{shape}, L = {length}: reading")
            ids = tuple(memory_ids(model.network.config.vocab_size, length))
            memory, reading = read_work(model, ids)
            for tokens in args.candidate_tokens:
                queries = workload(model.network.config.vocab_size, args.inputs, tokens)
                work = Work(model, ids, memory, queries)
                _cell(args, rounds, record, work, _systems(args.systems, length, tokens), {
                    "shape": shape, "candidate_tokens": tokens, "reading_seconds": reading,
                })  # fmt: skip


def _agnews(args: argparse.Namespace, rounds: Rounds, record: Record) -> None:
    """Real lengths, on the shape that the tokenizer is of."""
    given = read_agnews(args.agnews, args.tokenizer, args.inputs)
    model: LanguageModel = build_model("gpt2", getattr(torch, args.dtype))
    memory, reading = read_work(model, given.ids)
    # Rows as wide as the longest of the test set take minutes: every batch size once.
    once = Rounds(rounds.all, 1, rounds.harness, rounds.harness_inputs)
    systems = [name for name in args.systems if name != HARNESS]
    tokens = max(len(answer) for query in given.queries for answer in query.answers)
    _cell(args, once, record, Work(model, given.ids, memory, given.queries, given.width), systems, {
        "shape": "gpt2", "candidate_tokens": tokens, "reading_seconds": reading, "width": given.width, "rows": given.rows,
    }, part="agnews")  # fmt: skip


def _cell(
    args: argparse.Namespace, rounds: Rounds, record: Record, work: Work, systems: list[str],
    about: dict[str, object], part: str = "cells",
) -> None:  # fmt: skip
    """Measure, record and say it."""
    started = time.perf_counter()
    _say(f"{about['shape']}, L = {len(work.ids)}, c = {about['candidate_tokens']}: {', '.join(systems)}")
    found = {**about, "dtype": args.dtype, "threads": args.threads, "rounds_asked": asdict(rounds)}
    found |= measure(work, systems, rounds)
    record.add(part, found)
    seconds = ", ".join(f"{name} {value:.3g} s" for name, value in found["seconds"].items())
    _say(f"{found['shape']}, L = {found['length']}, c = {found['candidate_tokens']}: {seconds} "
         f"({time.perf_counter() - started:.0f} s)")  # fmt: skip


def _peak(args: argparse.Namespace, record: Record) -> None:
    """The longest memory of each shape."""
    for shape in args.shapes:
        length = max(_lengths(args, shape), default=0)
        if length:
            _say(f"{shape}, L = {length}: peak memory")
            record.add("peak", measure_peak(shape, length, args.inputs, args.dtype, args.threads))


def _lengths(args: argparse.Namespace, shape: str) -> list[int]:
    """The lengths that fit the shape's context with an input behind them."""
    most = limits_of(config_of(shape)).most_tokens() or sys.maxsize
    return [length for length in args.lengths if length + LONGEST_INPUT <= most]


def _systems(names: list[str], length: int, tokens: int) -> list[str]:
    slow = length == REFERENCE_LENGTH or tokens == REFERENCE_TOKENS
    return [name for name in names if slow or name not in (HARNESS, OFFICIAL)]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for speed.json, speed.md and speed.png")
    add(
        "--parts",
        nargs="*",
        help=f"of {', '.join(PARTS)}; default: all that can run; with none, only speed.md and speed.png are written",
    )
    add("--shapes", nargs="+", default=list(SHAPES), help=f"{', '.join(SHAPES)}, or folders with a config.json")
    add(
        "--lengths",
        type=int,
        nargs="+",
        default=[0, 128, 512, 1536],
        help="L; those over a shape's context are left out",
    )
    add("--candidate-tokens", type=int, nargs="+", default=[1, 2, 4], help="c")
    add("--inputs", type=int, default=64, help="N")
    add("--rounds", type=int, default=5, help="rounds of deepthink, no-memory and products")
    add("--official-rounds", type=int, default=2)
    add("--harness-rounds", type=int, default=2)
    add("--harness-inputs", type=int, default=8, help="inputs that the harness scores; its time is scaled to N")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--threads", type=int, default=2)
    add("--agnews", metavar="DIR", help="folder with ag_news/train.jsonl and ag_news/test.jsonl")
    add("--tokenizer", metavar="DIR", help="GPT-2's tokenizer, for --agnews")
    args = parser.parse_args()
    real = args.agnews and args.tokenizer
    if args.parts is None:
        args.parts = [part for part in PARTS if part != "agnews" or real]
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"--parts {' '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    if "agnews" in args.parts and not real:
        parser.error("--parts agnews: needs --agnews and --tokenizer")
    if "speed" in args.parts and HARNESS in args.systems and not harness.installed():
        parser.error(f"--systems harness: {harness.MISSING}")
    return args


if __name__ == "__main__":
    main()
