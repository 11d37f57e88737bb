"""How fast inputs are scored after a memory, beside other ways to get the same scores, and beside what is possible.

    python benchmarks/speed.py

Prints a Markdown table of seconds for each part. The systems:

    harness     lm-evaluation-harness: the whole prompt again for every candidate
    official    the official Deep-Thinking code's way: the memory copied for every row, padding, full logits
    padded      this package with one sequence a row, as for a model that cannot be packed
    deepthink   this package, packed where the model allows it
    no-memory   deepthink on the same tokens with nothing before them
    products    the matrix products of those tokens alone

The parts: `speed` is a grid over L and c; `trec` has questions of TREC with all labels, after demonstrations of a
given length; `agnews` has AG News's own lengths; `peak` is memory, as measured by `peak.py`. With `--record`, a part
other than `speed` has a file of its own, whose name ends with the part's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

import harness
from agnews import read_agnews
from cells import COLUMNS, HARNESS, OFFICIAL, PADDED, RATIOS, SYSTEMS, Rounds, Work, measure, read_work
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.tokens import TokenizedQuery
from peak import add_peaks
from record import Table, parser
from shapes import NAMES, build_engine, config_of, memory_ids, weights_of, workload
from trec import read_trec, words_of

PARTS = ("speed", "trec", "agnews", "peak")
# Where the slow systems run: every c at this L, and every L at this c.
REFERENCE_LENGTH, REFERENCE_TOKENS = 512, 2
LONGEST_INPUT = 64  # a query with its longest candidate, which must fit behind the memory


def main() -> None:
    """Measure what is asked for."""
    args = _arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    for shape in args.shapes:
        config_of(shape)  # reports a missing model before anything is measured
    rounds = Rounds(args.rounds, args.official_rounds, args.harness_rounds, args.harness_inputs)
    if "speed" in args.parts:
        _speed(args, rounds)
    if "trec" in args.parts:
        _trec(args, rounds)
    if "agnews" in args.parts:
        _agnews(args, rounds)
    if "peak" in args.parts:
        longest = {shape: [*filter(None, sorted(_lengths(args, shape)))][-1:] for shape in args.shapes}
        add_peaks(args, longest, part="peak")


def _speed(args: argparse.Namespace, rounds: Rounds) -> None:
    """Inputs of drawn lengths on every shape, after memories of every length."""
    trained = any(map(weights_of, args.shapes))
    note = (
        f"Seconds for {args.inputs} inputs in {args.dtype}: queries of 16 to 48 tokens with four candidates of c "
        f"tokens each, after L demonstration tokens; {_text(args, trained)}. {_best_of(rounds)}"
    )
    table = Table(args, _title(args.dtype, trained), COLUMNS, RATIOS, note)
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
                systems = _systems(args.systems, length, tokens)
                _cell(table, rounds, work, systems, {"shape": shape, "c": tokens, "reading": reading})


def _trec(args: argparse.Namespace, rounds: Rounds) -> None:
    """Questions with their labels, on every shape with weights; the harness chooses its batch size on a few."""
    note = (
        f"Seconds for {args.trec_inputs} questions ({_source(args)}) in {args.dtype} with all six labels of the task "
        f"TREC, of up to c tokens, after solved ones. {_best_of(rounds)}"
    )
    table = Table(args, "TREC with all six labels", COLUMNS, RATIOS, note, part="trec")
    given_rounds = replace(rounds, harness_inputs=args.trec_inputs, harness_tries=min(4, args.trec_inputs))
    for shape in filter(weights_of, args.shapes):
        engine = build_engine(shape, getattr(torch, args.dtype))
        given = read_trec(engine.tokenizer, args.data_dir, args.trec_inputs, args.trec_tokens)
        memory, reading = read_work(engine, given.ids)
        about = {"shape": shape, "c": _longest(given.queries), "reading": reading}
        _cell(table, given_rounds, Work(engine, given.ids, memory, given.queries), args.systems, about)


def _agnews(args: argparse.Namespace, rounds: Rounds) -> None:
    """Real lengths, on every shape with weights, and on GPT-2's shape if its tokenizer is given."""
    # Rows as wide as the longest of the test set take minutes: every batch size once.
    once = replace(rounds, official=1)
    note = (
        f"Seconds for the first {args.inputs} test rows of AG News in {args.dtype} with the task's template and "
        f"labels. The official way pads every row to the longest of all test rows, with its label. {_best_of(once)}"
    )
    table = Table(args, "AG News with its own lengths", (*COLUMNS, "official width"), RATIOS, note, part="agnews")
    systems = [name for name in args.systems if name != HARNESS]
    for shape in args.shapes:
        if not weights_of(shape) and not (shape == "gpt2" and args.tokenizer):
            continue
        engine = build_engine(shape, getattr(torch, args.dtype))
        tokenizer = engine.tokenizer if weights_of(shape) else AutoTokenizer.from_pretrained(args.tokenizer)
        given = read_agnews(args.data_dir, tokenizer, args.inputs)
        memory, reading = read_work(engine, given.ids)
        about = {"shape": shape, "c": _longest(given.queries), "reading": reading, "official width": given.width}
        _cell(table, once, Work(engine, given.ids, memory, given.queries, given.width), systems, about)


def _cell(table: Table, rounds: Rounds, work: Work, systems: list[str], about: dict[str, str | float]) -> None:
    """Measure and add a row."""
    _say(f"{about['shape']}, L = {len(work.ids)}, c = {about['c']}: {', '.join(systems)}")
    found = measure(work, systems, rounds) | about | {"shape": Path(str(about["shape"])).name}
    table.add(*map(found.get, table.content["columns"]))


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


def _title(dtype: str, trained: bool) -> str:
    """The title of the part `speed`, by its dtype and whether any model has trained weights; each is a section."""
    if dtype != "float32":
        return f"Scoring in {dtype}"
    return "Scoring beside other systems" if trained else "Scoring random weights"


def _text(args: argparse.Namespace, trained: bool) -> str:
    """What is scored."""
    if not trained:
        return "random ids"
    return f"text of questions ({_source(args)}) for models with weights, and random ids for shapes without"


def _source(args: argparse.Namespace) -> str:
    return "TREC" if args.data_dir else "written for the benchmark"


def _best_of(rounds: Rounds) -> str:
    return (
        f"The best of {rounds.all} rounds (official and padded {rounds.official}, harness {rounds.harness}), the "
        "systems in turns; a system with several batch sizes tries all in its first round and keeps the fastest."
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    options = parser(__doc__)
    add = options.add_argument
    add("--parts", nargs="+", choices=PARTS, help="default: all that can run")
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
    args = options.parse_args()
    if args.parts is None:
        args.parts = [part for part in PARTS if part != "agnews" or args.data_dir]
    if "agnews" in args.parts and not args.data_dir:
        options.error("--parts agnews: needs --data-dir")
    if {"speed", "trec"} & set(args.parts) and HARNESS in args.systems and not harness.installed():
        options.error(f"--systems harness: {harness.MISSING}")
    return args


if __name__ == "__main__":
    main()
