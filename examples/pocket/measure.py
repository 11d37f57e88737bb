"""Measure what pocket learns in context, with deepthink itself; prints the tables of docs/pocket.md.

Demonstrations come from SST-2's training split, sixteen of them, eight a class; queries are its
validation split. Words: (a) the task's own, (b) those words swapped between the classes, (c) two words
drawn anew per seed from words that were never labels in training.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

from corpus import SOURCES, Corpus, load_corpus, rows
from deepthink_cli import DemonstrationSet, Example, Memory, Query, load_model, predict, think, tokenize_demonstrations
from deepthink_cli.model import LanguageModel
from vocabulary import label_words

TEMPLATE = "Review: {text}\nSentiment: {label}"
OWN = ("negative", "positive")
ETAS, MOMENTA, MOST = (0.001, 0.01, 0.1), (0.0, 0.9), 15


def words_for(kind: str, seed: int, fresh: Sequence[str]) -> tuple[str, ...]:
    """The two label words, of class 0 and class 1."""
    chosen = {"own": OWN, "swapped": OWN[::-1], "fresh": random.Random(seed).sample(list(fresh), 2)}[kind]
    return tuple(chosen)


def demonstrations(corpus: Corpus, seed: int, words: Sequence[str], shots: int = 16) -> DemonstrationSet:
    """Balanced demonstrations in random order: the same texts for every kind of words."""
    rng = random.Random(seed)
    classes = [0, 1] * (shots // 2)
    rng.shuffle(classes)
    long = [[text for text in texts if len(text.split()) >= 8] for texts in corpus.texts["sst2"]]
    examples = [Example(rng.choice(long[c]), words[c]) for c in classes]
    return DemonstrationSet.of(examples, TEMPLATE, words)


def readings(
    model: LanguageModel, given: DemonstrationSet, iterations: int = 1, eta: float = 0.01, momentum: float = 0.0
) -> Iterator[Memory]:
    """The memory after every reading."""
    return think(model, tokenize_demonstrations(model.tokenizer, given), iterations, eta, momentum)


def accuracy(
    model: LanguageModel, memories: Sequence[Memory], queries: Sequence[tuple[str, int]], words: Sequence[str]
) -> list[float]:
    """Share of right answers, a figure for every memory."""
    asked = [Query(text, tuple(words), gold=words[label]) for text, label in queries]
    right = {memory.iteration: 0 for memory in memories}
    for row in predict(model, memories, asked):
        right[row.iteration] += row.label == row.query.gold
    return [count / len(asked) for count in right.values()]


def in_context(
    model: LanguageModel, corpus: Corpus, queries: list[tuple[str, int]], fresh: list[str], seeds: int
) -> dict[str, list[float]]:
    """Accuracy at T = 1 by kind of words, a figure for every seed."""
    found: dict[str, list[float]] = {}
    for kind in ("own", "swapped", "fresh"):
        found[kind] = []
        for seed in range(seeds):
            words = words_for(kind, seed, fresh)
            memory = next(readings(model, demonstrations(corpus, seed, words)))
            found[kind] += accuracy(model, [memory], queries, words)
    return found


def thinking(
    model: LanguageModel, corpus: Corpus, queries: list[tuple[str, int]], seeds: int
) -> dict[str, list[float]]:
    """Mean accuracy over the seeds at T = 1 .. 15, own words, by eta and momentum."""
    found: dict[str, list[float]] = {}
    for momentum in MOMENTA:
        for eta in ETAS:
            curves = []
            for seed in range(seeds):
                memories = list(readings(model, demonstrations(corpus, seed, OWN), MOST, eta, momentum))
                curves.append(accuracy(model, memories, queries, OWN))
            found[f"eta {eta}, momentum {momentum}"] = [mean(column) for column in zip(*curves, strict=True)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket", help="pocket or a directory")
    parser.add_argument("--data-dir", type=Path, help="local copies of the data sets; default: the hub")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=0, help="queries, a seeded sample; 0 is all 872")
    parser.add_argument("--curves", action="store_true", help="also T = 1..15 by eta and momentum")
    args = parser.parse_args()
    model = load_model(args.model)
    corpus = load_corpus(args.data_dir)
    fresh = [model.tokenizer.decode([token]).strip() for token in label_words(model.tokenizer)[1]]
    queries = list(rows(SOURCES[0], "validation", args.data_dir))
    if args.limit:
        queries = random.Random(0).sample(queries, args.limit)
    found = in_context(model, corpus, queries, fresh, args.seeds)
    print(f"| words | mean over {args.seeds} seeds | standard deviation | each seed |\n|---|--:|--:|---|")
    for kind, shares in found.items():
        each = ", ".join(f"{share:.1%}" for share in shares)
        print(f"| {kind} | {mean(shares):.1%} | {stdev(shares):.1%} | {each} |", flush=True)
    if args.curves:
        print("\n| T |" + "".join(f" {t} |" for t in range(1, MOST + 1)) + "\n|---|" + "--:|" * MOST)
        for name, curve in thinking(model, corpus, queries, args.seeds).items():
            print(f"| {name} |" + "".join(f" {100 * share:.1f} |" for share in curve), flush=True)
    print(json.dumps({"queries": len(queries), **found}))


if __name__ == "__main__":
    main()
