"""The texts without content whose scores estimate a bias.

Zhao et al. (2021) average over 'N/A', '[MASK]' and an empty text. Fei et al. (2023) take 20 texts of random words from
the task's texts, of the mean length of these texts; here the words are from the demonstrations, whose texts a memory
knows. Holtzman et al. (2021) omit the input: the end of the template follows the demonstrations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import CALIBRATIONS, HEAD, NONE, STORED, Basis, calibration, from_texts
from deepthink_cli.data.examples import Query, Text
from deepthink_cli.errors import InputError, option
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import (
    QueryTokenizer,
    TokenizedQuery,
    after_label,
    end_of_demonstrations,
    query_tokenizer,
)
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import check_fits
from deepthink_cli.scoring.scoring import PLAIN, Scoring

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTENT_FREE = ("N/A", "[MASK]", "")
TEXTS, SEED = 20, 0  # the number of texts of random words, and the seed of their words


def check_calibrations(names: Sequence[str], demonstrations: TokenizedDemonstrations, memory: str) -> None:
    """Raise InputError, naming the memory, for a calibration that its demonstrations do not support."""
    for name in names:
        if name in (NONE, STORED):
            continue
        method, where = calibration(name), f"{option('calibrate')} {name}: {memory}"
        if demonstrations.template.label_separator is not None:
            raise InputError(
                f"{where} is of rows with several labels; store thresholds, or a head with thresholds: deepthink "
                f"calibrate {memory} ROWS, or with {option('calibrate')} {HEAD}"
            )
        if not method.own_candidates and not demonstrations.labels:
            usable = ", ".join(other for other, each in CALIBRATIONS.items() if each.own_candidates)
            raise InputError(f"{where} has no label words, every row has candidates of its own; use one of {usable}")
        if method.basis == "premise" and demonstrations.chat is not None:
            raise InputError(f"{where} is a chat, whose label does not follow the template; use contextual or domain")
        if method.basis == "premise" and not _premise(demonstrations).rstrip(" "):
            raise InputError(f"{where} has a template without text before the label; use domain or batch")


def check_inputs(
    names: Sequence[str], demonstrations: TokenizedDemonstrations, spec: ModelSpec, scoring: Scoring = PLAIN
) -> None:
    """Tokenise the texts of calibrations with the label words, before the weights are loaded.

    Raises InputError, naming the calibration, for texts that do not fit the tokenizer or the model's context.
    """
    for name in from_texts(names) if demonstrations.labels else ():
        _, tokenized = BasisInputs(name, spec.tokenizer, demonstrations, scoring)([demonstrations.labels])
        for query in tokenized:
            check_fits(spec.limits, spec.id, demonstrations, query)


def basis_texts(basis: Basis, demonstrations: TokenizedDemonstrations) -> list[Text]:
    """The texts of a calibration's inputs; every text field of the template has a text.

    Random texts have words of the demonstrations, drawn uniformly, with replacement, and their mean number of words.
    """
    fields = demonstrations.template.text_fields
    if basis == "premise":
        return [_filled(fields, [""] * len(fields))]
    if basis == "content-free":
        return [_filled(fields, [text] * len(fields)) for text in CONTENT_FREE]
    draw, rows = random.Random(SEED), [demonstrations.template.values(each.text) for each in demonstrations.examples]
    drawn = []
    for name in fields:
        words = [word for row in rows for word in row[name].split()]
        length = max(1, round(len(words) / len(rows)))
        drawn.append([" ".join(draw.choices(words, k=length)) for _ in range(TEXTS)])
    return [_filled(fields, texts) for texts in zip(*drawn, strict=True)]


class BasisInputs:
    """The inputs of one calibration, for any candidates; they are tokenised as rows are."""

    def __init__(
        self,
        name: str,
        tokenizer: PreTrainedTokenizerBase,
        demonstrations: TokenizedDemonstrations,
        scoring: Scoring = PLAIN,
    ) -> None:
        basis = calibration(name).basis
        self.name, self.texts = name, basis_texts(basis, demonstrations)
        self._tokenize: Callable[[Sequence[Query]], list[TokenizedQuery]]
        if basis == "premise":
            start, end = _premise(demonstrations), end_of_demonstrations(tokenizer, demonstrations)

            def ids(texts: Sequence[str]) -> list[list[int]]:
                return end.after(tokenizer, texts)

            self._tokenize = QueryTokenizer(
                lambda query: (start, [start + candidate for candidate in query.candidates]),
                ids,
                ended=scoring.ended(lambda: after_label(tokenizer, demonstrations.template, ids)),
            )
        else:
            self._tokenize = query_tokenizer(tokenizer, demonstrations, scoring)

    def __call__(self, candidates: Iterable[tuple[str, ...]]) -> tuple[list[Query], list[TokenizedQuery]]:
        """The queries and their tokens: all texts with the first candidates, then all with the next candidates.

        Raises InputError, naming the calibration, for a text after which a candidate has no tokens of its own.
        """
        queries = [
            Query(text, each, where=f"{option('calibrate')} {self.name}") for each in candidates for text in self.texts
        ]
        return queries, self._tokenize(queries)


def _premise(demonstrations: TokenizedDemonstrations) -> str:
    """The end of the template, between the last text and the label."""
    return demonstrations.template.words[-2]


def _filled(fields: Sequence[str], texts: Sequence[str]) -> Text:
    return texts[0] if len(fields) == 1 else dict(zip(fields, texts, strict=True))
