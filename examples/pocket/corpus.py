"""The texts pocket is trained on, and the rule that keeps every evaluation text out of them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

RUN_OF_WORDS = 8  # a training text that shares this many words in a row with an evaluation text is left out
SHORT_TEXT = 3  # shorter texts may stand inside an evaluation text: "very funny" gives nothing away


@dataclass(frozen=True)
class Source:
    """One labelled set: where its rows are, and which of their columns hold text and class."""

    name: str
    hub: tuple[str, ...]
    text: str
    label: str
    classes: int
    held_out: tuple[str, ...]


SOURCES = (
    Source("sst2", ("glue", "sst2"), "sentence", "label", 2, ("validation",)),
    Source("trec", ("trec",), "text", "coarse_label", 6, ("test",)),
    Source("ag_news", ("ag_news",), "text", "label", 4, ("test",)),
)
ONLY_HELD_OUT = (
    Source("sst5", ("SetFit/sst5",), "text", "label", 5, ("validation", "test")),
    Source("rotten_tomatoes", ("rotten_tomatoes",), "text", "label", 2, ("validation", "test")),
)


@dataclass(frozen=True)
class Corpus:
    """Training texts by source and class, and whole sentences of SST-2 kept apart from them.

    `practice` sentences are never read for their class, only bound to words, so that binding is learned on
    texts as unknown as those it will meet; `dev` sentences are used for nothing but looking.
    """

    texts: dict[str, list[list[str]]]
    practice: list[list[str]]
    dev: list[tuple[str, int]]
    left_out: dict[str, int]


def rows(source: Source, split: str, data_dir: Path | None) -> Iterator[tuple[str, int]]:
    """Yield (text, class) of one split, from a local directory of JSON Lines or from the hub."""
    if data_dir is not None:
        with (data_dir / source.name / f"{split}.jsonl").open() as lines:
            for line in lines:
                row = json.loads(line)
                yield row[source.text].strip(), row[source.label]
        return
    from datasets import load_dataset

    for row in load_dataset(*source.hub, split=split):
        yield row[source.text].strip(), row[source.label]


def load_corpus(data_dir: Path | None, dev_size: int = 400, practice_size: int = 600, seed: int = 0) -> Corpus:
    """Read every training split without the texts that overlap an evaluation split or a sentence kept apart."""
    held_out = [
        text
        for source in (*SOURCES, *ONLY_HELD_OUT)
        for split in source.held_out
        for text, _ in rows(source, split, data_dir)
    ]
    train = {source.name: list(rows(source, "train", data_dir)) for source in SOURCES}
    sentences = sorted({row for row in train["sst2"] if len(words(row[0])) >= 12})
    kept_apart = random.Random(seed).sample(sentences, dev_size + practice_size)
    overlap = Overlap([*held_out, *(text for text, _ in kept_apart)])
    # A sentence that is itself an evaluation text is used for nothing.
    evaluated = Overlap(held_out)
    kept_apart = [row for row in kept_apart if not evaluated.with_text(row[0])]
    dev, rest = kept_apart[: dev_size // 2], kept_apart[dev_size // 2 :]
    practice = [[text for text, label in rest if label == c] for c in (0, 1)]

    texts: dict[str, list[list[str]]] = {}
    left_out: dict[str, int] = {}
    for source in SOURCES:
        kept = [row for row in train[source.name] if not overlap.with_text(row[0])]
        left_out[source.name] = len(train[source.name]) - len(kept)
        texts[source.name] = [sorted({t for t, c in kept if c == label}) for label in range(source.classes)]
    return Corpus(texts, practice, dev, left_out)


def words(text: str) -> list[str]:
    """The lower-case words of a text, without punctuation."""
    return re.findall(r"[a-z0-9]+", text.lower())


class Overlap:
    """Answers whether a text stands in, or shares a long run of words with, any of the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.pieces: set[tuple[str, ...]] = set()
        for text in texts:
            tokens = words(text)
            for length in range(1, RUN_OF_WORDS + 1):
                if length < SHORT_TEXT and length != len(tokens):
                    continue
                self.pieces.update(tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1))

    def with_text(self, text: str) -> bool:
        tokens = words(text)
        if len(tokens) <= RUN_OF_WORDS:
            return tuple(tokens) in self.pieces
        return any(tuple(tokens[i : i + RUN_OF_WORDS]) in self.pieces for i in range(len(tokens) - RUN_OF_WORDS + 1))
