"""llama.cpp with a restored state: every answer is a sequence that shares the state and its query with the others."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
from clock import Row, Score, Scores, main, read_rows
from llama import CONTEXT, SEQUENCES, Llama, Token

TOGETHER = 4  # rows of one pass


def load(folder: Path, weights: str, state: str) -> Score:
    """The model, with the state as the beginning of every sequence."""
    llama = Llama(weights)
    ids, length = (llama_cpp.llama_token * CONTEXT)(), ctypes.c_size_t()
    name = str(folder / state).encode()
    if not llama_cpp.llama_state_seq_load_file(llama.context, name, 0, ids, CONTEXT, ctypes.byref(length)):
        sys.exit(f"{state}: not restored")
    for sequence in range(1, SEQUENCES):
        llama_cpp.llama_memory_seq_cp(llama.memory, 0, sequence, -1, -1)

    def score(path: Path) -> Scores:
        rows = read_rows(path)
        parts = (rows[start : start + TOGETHER] for start in range(0, len(rows), TOGETHER))
        return [scores for part in parts for scores in _scored(llama, length.value, part)]

    return score


def _scored(llama: Llama, length: int, rows: Sequence[Row]) -> Scores:
    """The scores of rows in one pass after the first `length` tokens."""
    tokens: list[Token] = []
    asked: list[list[list[tuple[int, int]]]] = []  # for each answer: places of tokens, and those that follow them
    first = 1
    for row in rows:
        prompt, answers = llama.encode(row.prompt), [llama.encode(answer) for answer in row.answers]
        sequences, end = range(first, first + len(answers)), length + len(prompt)
        tokens += [Token(token, position, sequences) for position, token in enumerate(prompt, length)]
        last = len(tokens) - 1
        asked.append([])
        for sequence, answer in zip(sequences, answers, strict=True):
            places = [last, *range(len(tokens), len(tokens) + len(answer) - 1)]
            tokens += [Token(token, position, [sequence]) for position, token in enumerate(answer[:-1], end)]
            asked[-1].append(list(zip(places, answer, strict=True)))
        first = sequences.stop
    found = llama.read(tokens, {place for row in asked for answer in row for place, _ in answer})
    for sequence in range(1, first):
        llama_cpp.llama_memory_seq_rm(llama.memory, sequence, length, -1)
    return [[float(sum(found[place][token] for place, token in answer)) for answer in row] for row in asked]


if __name__ == "__main__":
    main(load)
