"""Episodes: one task, words drawn anew for its classes, and as many demonstrations as fit in a row.

No word ever means a class for longer than one episode, so the only way to be right is to read the
demonstrations. An episode knows token ids; it does not know the model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from corpus import Corpus
from vocabulary import class_names

FORMATS = (
    ("Review", "Sentiment"), ("Text", "Label"), ("Input", "Output"), ("Question", "Type"), ("Article", "Category"),
    ("Sentence", "Class"), ("Q", "A"), ("Comment", "Rating"), ("Message", "Topic"), ("X", "Y"),
)  # fmt: skip


@dataclass(frozen=True)
class Mixture:
    """How often each kind of task comes up, and how long a row is."""

    tokens: int = 384
    sst2: float = 0.65
    trec: float = 0.12
    ag_news: float = 0.08
    words: float = 0.15  # every class is a single word: the binding alone, nothing to read
    drop: float = 0.0  # share of a text's tokens that are left out, so that no text is learned by heart

    def draw(self, rng: random.Random) -> str:
        names = ["sst2", "trec", "ag_news", "words"]
        return rng.choices(names, [getattr(self, name) for name in names])[0]


@dataclass(frozen=True)
class Batch:
    """Rows of token ids with what is asked at each position.

    `ids` [B, S]; `asked` [M, 2] (row, position of the token before a label), `answer` [M] the label
    token's id, `options` [M, 6] the ids of the episode's label words (-1 where there are fewer),
    `right` [M] the answer's place among them, `told` [M] true where the class was shown before,
    `source` [M] the source's place in the list (-1: words) and `name` [M] the token that names the class.
    """

    ids: Tensor
    asked: Tensor
    answer: Tensor
    options: Tensor
    right: Tensor
    told: Tensor
    source: Tensor
    name: Tensor


class Episodes:
    """Draws batches of episodes; the same seed draws the same batch."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, labels: list[int]) -> None:
        self.labels, self.bos = labels, tokenizer.bos_token_id
        self.sources = list(corpus.texts)
        encode = lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"]  # noqa: E731
        self.texts = {
            name: [[ids for ids in encode([f" {t}" for t in texts])] for texts in classes]
            for name, classes in corpus.texts.items()
        }
        # Whole sentences and phrases come up equally often in SST-2, whose rows are mostly phrases.
        self.long = [[ids for ids in texts if len(ids) >= 12] for texts in self.texts["sst2"]]
        self.formats = [(encode([f"{a}:"])[0], encode([f"\n{b}:"])[0]) for a, b in FORMATS]
        self.names = class_names(tokenizer)
        self.line = encode(["\n"])[0][0]

    def batch(self, seed: int, rows: int, mixture: Mixture) -> Batch:
        rng = random.Random(seed)
        ids = torch.full((rows, mixture.tokens), self.line)
        asked: list[tuple[int, ...]] = []
        for row in range(rows):
            tokens, questions = self.episode(rng, mixture)
            ids[row, : len(tokens)] = torch.tensor(tokens)
            asked += [(row, *question) for question in questions]
        table = torch.tensor(asked)
        return self._pack(ids, table)

    @staticmethod
    def _pack(ids: Tensor, table: Tensor) -> Batch:
        row_position, answer, right, told, source, name = (
            table[:, :2], table[:, 2], table[:, 3], table[:, 4].bool(), table[:, 5], table[:, 6]
        )  # fmt: skip
        return Batch(ids, row_position, answer, table[:, 7:], right, told, source, name)

    def episode(self, rng: random.Random, mixture: Mixture) -> tuple[list[int], list[tuple[int, ...]]]:
        name = mixture.draw(rng)
        classes = self._classes(rng, name)
        options = rng.sample(self.labels, len(classes))
        before, after = rng.choice(self.formats)
        tokens, questions, shown = [self.bos], [], set()
        while True:
            place = rng.randrange(len(classes))
            text = self._text(rng, name, classes[place])
            if len(text) > 2:
                text = [token for token in text if rng.random() >= mixture.drop]
            piece = [*before, *text, *after, options[place], self.line, self.line]
            if len(tokens) + len(piece) > mixture.tokens:
                return tokens, questions
            tokens += piece
            source = self.sources.index(name) if name in self.sources else -1
            own = self.names[name][classes[place]] if source >= 0 else classes[place]
            padded = options + [-1] * (6 - len(options))
            questions.append((len(tokens) - 4, options[place], place, place in shown, source, own, *padded))
            shown.add(place)

    def _classes(self, rng: random.Random, name: str) -> list[int]:
        if name == "words":
            return rng.sample(self.labels, rng.choice((2, 2, 2, 3, 4)))
        available = len(self.texts[name])
        return rng.sample(range(available), min(available, rng.choice((2, 2, 3, available))))

    def _text(self, rng: random.Random, name: str, chosen: int) -> list[int]:
        if name == "words":
            return [chosen]
        if name == "sst2" and rng.random() < 0.5:
            return rng.choice(self.long[chosen])
        return rng.choice(self.texts[name][chosen])
