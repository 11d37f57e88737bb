"""Measure what pocket learns in context, with deepthink itself; prints the tables of README.md.

Sixteen demonstrations, eight a class, come from SST-2's training split, once from what pocket was trained on and once
from sentences kept out of its training; queries are the validation split. Words: (a) the task's own, (b) those words
swapped between the classes, (c) two words drawn anew per seed from words that were never labels in training.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

from corpus import SOURCES, Corpus, load_corpus, rows, words
from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    load_model,
    predict,
    think,
    tokenize_demonstrations,
)
from vocabulary import label_words

TEMPLATE = "Review: {text}\nSentiment: {label}"
OWN = ("negative", "positive")
ETAS, MOMENTA, MAX_ITERATIONS = (0.001, 0.01, 0.1), (0.0, 0.9), 15


def words_for(kind: str, seed: int, fresh: Sequence[str]) -> tuple[str, ...]:
    """The two label words, of class 0 and class 1."""
    chosen = {"own": OWN, "swapped": OWN[::-1], "fresh": random.Random(seed).sample(list(fresh), 2)}[kind]
    return tuple(chosen)


def demonstrations(corpus: Corpus, seed: int, chosen: Sequence[str], unseen: bool = False) -> DemonstrationSet:
    """Sixteen balanced demonstrations in random order: the same texts for every kind of words."""
    rng = random.Random(seed)
    classes = [0, 1] * 8
    rng.shuffle(classes)
    trained = [[text for text in texts if len(text.split()) >= 8] for texts in corpus.texts["sst2"]]
    pools = [[text for text, label in corpus.dev if label == c] for c in (0, 1)] if unseen else trained
    examples = [Example(rng.choice(pools[c]), chosen[c]) for c in classes]
    return DemonstrationSet.of(examples, TEMPLATE, chosen)


def readings(
    engine: Engine, given: DemonstrationSet, iterations: int = 1, gate: Gate | None = None
) -> Iterator[Memory]:
    """The memory after every reading."""
    method = Method(iterations, gate or Gate())
    return think(engine, tokenize_demonstrations(engine.tokenizer, given), method)


def accuracy(
    engine: Engine, memories: Sequence[Memory], queries: Sequence[tuple[str, int]], chosen: Sequence[str]
) -> list[float]:
    """Share of right answers, a figure for every memory."""
    asked = [Query(text, tuple(chosen), gold=chosen[label]) for text, label in queries]
    right = {memory.iteration: 0 for memory in memories}
    for row in predict(engine, memories, asked):
        right[row.iteration] += row.label == row.query.gold
    return [count / len(asked) for count in right.values()]


def in_context(
    engine: Engine, corpus: Corpus, queries: list[tuple[str, int]], fresh: list[str], seeds: int
) -> dict[str, list[float]]:
    """Accuracy at T = 1 by kind of words and of demonstrations, a figure for every seed."""
    found: dict[str, list[float]] = {}
    for unseen in (False, True):
        for kind in ("own", "swapped", "fresh"):
            shares = found[f"{kind} | {'unseen' if unseen else 'trained on'}"] = []
            for seed in range(seeds):
                chosen = words_for(kind, seed, fresh)
                memory = next(readings(engine, demonstrations(corpus, seed, chosen, unseen)))
                shares += accuracy(engine, [memory], queries, chosen)
    return found


def thinking(engine: Engine, corpus: Corpus, queries: list[tuple[str, int]], seeds: int) -> dict[str, list[float]]:
    """Mean accuracy over the seeds at T = 1 .. 15, own words, by eta and momentum."""
    found: dict[str, list[float]] = {}
    for momentum in MOMENTA:
        for eta in ETAS:
            curves = []
            for seed in range(seeds):
                memories = list(
                    readings(engine, demonstrations(corpus, seed, OWN), MAX_ITERATIONS, Gate(eta, momentum))
                )
                curves.append(accuracy(engine, memories, queries, OWN))
            found[f"eta {eta}, momentum {momentum}"] = [mean(column) for column in zip(*curves, strict=True)]
    return found


def naive_bayes(corpus: Corpus, queries: Sequence[tuple[str, int]]) -> float:
    """What can be read off the same texts without a network: words and word pairs, asked for the class directly."""

    def pieces(text: str) -> set[object]:
        tokens = words(text)
        return {*tokens, *pairwise(tokens)}

    counts = [Counter(piece for text in texts for piece in pieces(text)) for texts in corpus.texts["sst2"]]
    known = set(counts[0]) | set(counts[1])
    totals = [sum(count.values()) + len(known) for count in counts]
    right = 0
    for text, label in queries:
        found = [piece for piece in pieces(text) if piece in known]
        score = [sum(math.log((counts[c][piece] + 1) / totals[c]) for piece in found) for c in (0, 1)]
        right += (score[1] > score[0]) == label
    return right / len(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket", help="pocket or a directory")
    parser.add_argument("--data-dir", type=Path, help="local copies of the data sets; default: the hub")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=872, help="queries at T = 1, a seeded sample")
    parser.add_argument("--curves", type=int, default=0, metavar="N", help="also T = 1..15 on a sample of N queries")
    args = parser.parse_args()
    engine = load_model(args.model)
    corpus = load_corpus(args.data_dir)
    fresh = [engine.tokenizer.decode([token]).strip() for token in label_words(engine.tokenizer)[1]]
    queries = list(rows(SOURCES[0], "validation", args.data_dir))
    queries = random.Random(0).sample(queries, min(args.limit, len(queries)))
    found = in_context(engine, corpus, queries, fresh, args.seeds)
    print(f"| words | demonstrations | mean over {args.seeds} seeds | deviation | each seed |\n|---|---|--:|--:|---|")
    for kind, shares in found.items():
        each = ", ".join(f"{share:.1%}" for share in shares)
        print(f"| {kind} | {mean(shares):.1%} | {stdev(shares):.1%} | {each} |", flush=True)
    print(f"\nnaive Bayes on the same training texts: {naive_bayes(corpus, queries):.1%}")
    if args.curves:
        print(
            "\n| T |" + "".join(f" {t} |" for t in range(1, MAX_ITERATIONS + 1)) + "\n|---|" + "--:|" * MAX_ITERATIONS
        )
        for name, curve in thinking(engine, corpus, queries[: args.curves], args.seeds).items():
            print(f"| {name} |" + "".join(f" {100 * share:.1f} |" for share in curve), flush=True)
    print(json.dumps({"queries": len(queries), **found}))


if __name__ == "__main__":
    main()
