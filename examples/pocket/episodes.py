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
    ("Review", "Sentiment"),
    ("Text", "Label"),
    ("Input", "Output"),
    ("Question", "Type"),
    ("Article", "Category"),
    ("Sentence", "Class"),
    ("Q", "A"),
    ("Comment", "Rating"),
    ("Message", "Topic"),
    ("X", "Y"),
)
WORDS = "words"  # the artificial task: every class is a single word, so there is nothing to read
PRACTICE = "practice"  # sentences of SST-2 that were never read for their class
MAX_CLASSES = 6


@dataclass(frozen=True)
class Mixture:
    """How long a row is in tokens, how often each task comes up, and how much of a text is left out.

    `drop` is the share of a text's tokens that are left out, so that no text is learned by heart; `own` the
    share of sentiment episodes that use the task's own two words, either way round equally often.
    """

    tokens: int
    shares: dict[str, float]
    drop: float
    own: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Rows of token ids with what is asked at each position.

    `ids` [B, S]; `asked` [M, 2] (row, position of the token before a label), `answer` [M] the label
    token's id, `right` [M] its place among the `options` [M, 6], the ids of the episode's label words
    (-1 where there are fewer); `told` [M] is true where the class was shown before; `name` [M] is the
    token that names the class.
    """

    ids: Tensor
    asked: Tensor
    answer: Tensor
    right: Tensor
    told: Tensor
    name: Tensor
    options: Tensor


class Episodes:
    """Draws batches of episodes; the same seed draws the same batch."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, labels: list[int]) -> None:
        self.labels, self.bos = labels, tokenizer.bos_token_id
        self.names = class_names(tokenizer)
        self.names[PRACTICE] = self.names["sst2"]

        def encode(texts: list[str]) -> list[list[int]]:
            return list(tokenizer(texts, add_special_tokens=False)["input_ids"])

        self.texts = {
            name: [encode([f" {text}" for text in texts]) for texts in classes]
            for name, classes in {**corpus.texts, PRACTICE: corpus.practice}.items()
        }
        # SST-2's rows are mostly phrases; whole sentences come up as often as all rows together.
        self.long = [[ids for ids in texts if len(ids) >= 12] for texts in self.texts["sst2"]]
        self.formats = [(encode([f"{a}:"])[0], encode([f"\n{b}:"])[0]) for a, b in FORMATS]
        self.line = encode(["\n"])[0][0]
        self.own = [encode([f" {word}"])[0][0] for word in ("negative", "positive")]

    def batch(self, seed: int, rows: int, mixture: Mixture) -> Batch:
        """A batch of `rows` episodes."""
        rng = random.Random(seed)
        ids = torch.full((rows, mixture.tokens), self.line)
        asked: list[tuple[int, ...]] = []
        for row in range(rows):
            tokens, questions = self._episode(rng, mixture)
            ids[row, : len(tokens)] = torch.tensor(tokens)
            asked += [(row, *question) for question in questions]
        table = torch.tensor(asked)
        answer, right, told, name = table[:, 2:6].T
        return Batch(ids, table[:, :2], answer, right, told.bool(), name, table[:, 6:])

    def _episode(self, rng: random.Random, mixture: Mixture) -> tuple[list[int], list[tuple[int, ...]]]:
        name = rng.choices(list(mixture.shares), list(mixture.shares.values()))[0]
        classes = self._classes(rng, name)
        options = rng.sample(self.labels, len(classes))
        if mixture.own and name in ("sst2", PRACTICE) and rng.random() < mixture.own:
            options = rng.sample(self.own, 2)
        padded = options + [-1] * (MAX_CLASSES - len(options))
        before, after = rng.choice(self.formats)
        tokens, questions, shown = [self.bos], [], set()
        while True:
            place = rng.randrange(len(classes))
            text = self._text(rng, name, classes[place], mixture.drop)
            piece = [*before, *text, *after, options[place], self.line, self.line]
            if len(tokens) + len(piece) > mixture.tokens:
                return tokens, questions
            tokens += piece
            own = classes[place] if name == WORDS else self.names[name][classes[place]]
            questions.append((len(tokens) - 4, options[place], place, place in shown, own, *padded))
            shown.add(place)

    def _classes(self, rng: random.Random, name: str) -> list[int]:
        if name == WORDS:
            return rng.sample(self.labels, rng.choice((2, 2, 2, 3, 4)))
        available = len(self.texts[name])
        return rng.sample(range(available), min(available, rng.choice((2, 2, 3, available))))

    def _text(self, rng: random.Random, name: str, chosen: int, drop: float) -> list[int]:
        if name == WORDS:
            return [chosen]
        rows = self.long if name == "sst2" and rng.random() < 0.5 else self.texts[name]
        text = rng.choice(rows[chosen])
        return [token for token in text if rng.random() >= drop] if len(text) > 2 else text
