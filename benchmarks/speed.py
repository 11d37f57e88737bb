"""How fast inputs are scored after a memory, beside other ways to get the same scores, and beside what is possible.

    python benchmarks/speed.py -o DIR

Writes DIR/speed.json (after every measurement), DIR/speed.md and DIR/speed.png. The systems:

    harness     lm-evaluation-harness: the whole prompt again for every candidate
    official    the official Deep-Thinking code's way: the memory copied for every row, padding, full logits
    padded      this package with one sequence a row, as for a model that cannot be packed
    deepthink   this package, packed where the model allows it
    no-memory   deepthink on the same tokens with nothing before them
    products    the matrix products of those tokens alone

The parts: `speed` is a grid over L and c; `trec` has questions of TREC with all labels, after demonstrations of a
given length; `agnews` has AG News's own lengths; `peak` is memory. A run into a folder that has a speed.json keeps the
cells that it does not measure again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

import harness
from agnews import read_agnews
from cells import HARNESS, OFFICIAL, PADDED, SYSTEMS, Rounds, Work, measure, read_work
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.tokens import TokenizedQuery
from peak import measure_peak
from record import Record
from report import draw, markdown
from shapes import NAMES, build_engine, config_of, memory_ids, weights_of, workload
from trec import read_trec, words_of

PARTS = ("speed", "trec", "agnews", "peak")
# Where the slow systems run: every c at this L, and every L at this c.
REFERENCE_LENGTH, REFERENCE_TOKENS = 512, 2
LONGEST_INPUT = 64  # a query with its longest candidate, which must fit behind the memory


def main() -> None:
    """Measure what is asked for, and write the three files."""
    args = _arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    for shape in args.shapes:
        config_of(shape)  # reports a missing model before anything is measured
    record = Record(args.out)
    rounds = Rounds(args.rounds, args.official_rounds, args.harness_rounds, args.harness_inputs)
    try:
        if "speed" in args.parts:
            _speed(args, rounds, record)
        if "trec" in args.parts:
            _trec(args, rounds, record)
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
    """Inputs of drawn lengths on every shape, after memories of every length."""
    for shape in args.shapes:
        _say(f"{shape}: building")
        engine = build_engine(shape, getattr(torch, args.dtype))
        words = words_of(shape, engine.model, args.data_dir)
        for length in _lengths(args, shape):
            _say(f"{shape}, L = {length}: reading")
            ids = tuple(memory_ids(words, length))
            memory, reading = read_work(engine, ids)
            for tokens in args.candidate_tokens:
                work = Work(engine, ids, memory, workload(words, args.inputs, tokens))
                _cell(
                    args,
                    rounds,
                    record,
                    work,
                    _systems(args.systems, length, tokens),
                    {
                        "shape": shape,
                        "candidate_tokens": tokens,
                        "reading_seconds": reading,
                        "text": _text(args, shape),
                    },
                )


def _trec(args: argparse.Namespace, rounds: Rounds, record: Record) -> None:
    """Questions with their labels, on every shape with weights; the harness chooses its batch size on a few."""
    given_rounds = replace(rounds, harness_inputs=args.trec_inputs, harness_tries=min(4, args.trec_inputs))
    for shape in filter(weights_of, args.shapes):
        engine = build_engine(shape, getattr(torch, args.dtype))
        given = read_trec(engine.tokenizer, args.data_dir, args.trec_inputs, args.trec_tokens)
        memory, reading = read_work(engine, given.ids)
        _cell(
            args,
            given_rounds,
            record,
            Work(engine, given.ids, memory, given.queries),
            args.systems,
            {
                "shape": shape,
                "candidate_tokens": _longest(given.queries),
                "reading_seconds": reading,
                "text": _text(args, shape),
                "shots": given.shots,
            },
            part="trec",
        )


def _agnews(args: argparse.Namespace, rounds: Rounds, record: Record) -> None:
    """Real lengths, on every shape with weights, and on GPT-2's shape if its tokenizer is given."""
    # Rows as wide as the longest of the test set take minutes: every batch size once.
    once = replace(rounds, official=1)
    systems = [name for name in args.systems if name != HARNESS]
    for shape in args.shapes:
        if not weights_of(shape) and not (shape == "gpt2" and args.tokenizer):
            continue
        engine = build_engine(shape, getattr(torch, args.dtype))
        tokenizer = engine.tokenizer if weights_of(shape) else AutoTokenizer.from_pretrained(args.tokenizer)
        given = read_agnews(args.data_dir, tokenizer, args.inputs)
        memory, reading = read_work(engine, given.ids)
        _cell(
            args,
            once,
            record,
            Work(engine, given.ids, memory, given.queries, given.width),
            systems,
            {
                "shape": shape,
                "candidate_tokens": _longest(given.queries),
                "reading_seconds": reading,
                "width": given.width,
                "rows": given.rows,
            },
            part="agnews",
        )


def _cell(
    args: argparse.Namespace,
    rounds: Rounds,
    record: Record,
    work: Work,
    systems: list[str],
    about: dict[str, object],
    part: str = "cells",
) -> None:
    """Measure, record and say it."""
    started = time.perf_counter()
    _say(f"{about['shape']}, L = {len(work.ids)}, c = {about['candidate_tokens']}: {', '.join(systems)}")
    found = {**about, "dtype": args.dtype, "threads": args.threads, "rounds_asked": asdict(rounds)}
    found |= measure(work, systems, rounds)
    record.add(part, found)
    seconds = ", ".join(f"{name} {value:.3g} s" for name, value in found["seconds"].items())
    engine = "packed" if found["packed"] else "padded"
    _say(
        f"{found['shape']}, L = {found['length']}, c = {found['candidate_tokens']}, {engine}: {seconds} "
        f"({time.perf_counter() - started:.0f} s)"
    )


def _peak(args: argparse.Namespace, record: Record) -> None:
    """The longest memory of each shape."""
    for shape in args.shapes:
        length = max(_lengths(args, shape), default=0)
        if length:
            _say(f"{shape}, L = {length}: peak memory")
            record.add("peak", measure_peak(shape, length, args.inputs, args.dtype, args.threads))


def _lengths(args: argparse.Namespace, shape: str) -> list[int]:
    """The lengths that fit the shape's context with an input behind them."""
    most = limits_of(config_of(shape)).max_tokens() or sys.maxsize
    return [length for length in args.lengths if length + LONGEST_INPUT <= most]


def _systems(names: list[str], length: int, tokens: int) -> list[str]:
    slow = length == REFERENCE_LENGTH or tokens == REFERENCE_TOKENS
    return [name for name in names if slow or name not in (HARNESS, OFFICIAL, PADDED)]


def _longest(queries: Sequence[TokenizedQuery]) -> int:
    """Tokens of the longest candidate."""
    return max(len(answer) for query in queries for answer in query.answers)


def _text(args: argparse.Namespace, shape: str) -> str | None:
    """The source of the questions for a shape with weights; None where ids are random."""
    return None if weights_of(shape) is None else "TREC" if args.data_dir else "written for the benchmark"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-o", "--out", type=Path, required=True, help="folder for speed.json, speed.md and speed.png")
    add(
        "--parts",
        nargs="*",
        help=f"of {', '.join(PARTS)}; default: all that can run; with none, only speed.md and speed.png are written",
    )
    add(
        "--shapes",
        nargs="+",
        default=list(NAMES),
        help=f"{', '.join(NAMES)}, or folders: one with a config.json alone has random weights",
    )
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
    add("--data-dir", metavar="DIR", help="folder with trec/ and ag_news/, each with train.jsonl and test.jsonl")
    add("--tokenizer", metavar="DIR", help="GPT-2's tokenizer, for its row of AG News")
    add("--trec-tokens", type=int, default=666, help="L of the part trec, as nearly as whole demonstrations allow")
    add("--trec-inputs", type=int, default=24, help="N of the part trec, also for the harness")
    args = parser.parse_args()
    if args.parts is None:
        args.parts = [part for part in PARTS if part != "agnews" or args.data_dir]
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"--parts {' '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    if "agnews" in args.parts and not args.data_dir:
        parser.error("--parts agnews: needs --data-dir")
    if {"speed", "trec"} & set(args.parts) and HARNESS in args.systems and not harness.installed():
        parser.error(f"--systems harness: {harness.MISSING}")
    return args


if __name__ == "__main__":
    main()
