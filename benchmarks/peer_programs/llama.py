"""llama.cpp through the functions of llama-cpp-python: one model, with one state for all that is scored.

As a program, it reads the demonstrations and saves the state after them: PYTHON llama.py FOLDER WEIGHTS STATE.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy
from clock import DEMONSTRATIONS

F32 = 0  # ggml's number of the type
CONTEXT = 2048  # tokens of all sequences
SEQUENCES = 64


@dataclass(frozen=True)
class Token:
    """A token at a position of one or more sequences."""

    id: int
    position: int
    sequences: Sequence[int]


class Llama:
    """A model on one thread, whose keys and values are in float32; its sequences may share tokens."""

    def __init__(self, weights: str) -> None:
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = CONTEXT
        settings.n_seq_max, settings.kv_unified = SEQUENCES, True
        settings.n_threads = settings.n_threads_batch = 1
        settings.type_k = settings.type_v = F32
        settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it computes in float16
        self.model = llama_cpp.llama_model_load_from_file(weights.encode(), llama_cpp.llama_model_default_params())
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.words = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.batch = llama_cpp.llama_batch_init(CONTEXT, 0, SEQUENCES)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The token ids of a text, after the model's special tokens with `special`."""
        data = text.encode()
        found = (llama_cpp.llama_token * (len(data) + 1))()
        number = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), found, len(found), special, False)
        return list(found[:number])

    def read(self, tokens: Sequence[Token], wanted: Collection[int] = ()) -> dict[int, Any]:
        """Read tokens in one pass; the log-probabilities of all tokens after those at the places `wanted`."""
        self.batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            self.batch.token[place], self.batch.pos[place] = token.id, token.position
            self.batch.logits[place] = place in wanted
            self.batch.n_seq_id[place] = len(token.sequences)
            for number, sequence in enumerate(token.sequences):
                self.batch.seq_id[place][number] = sequence
        if code := llama_cpp.llama_decode(self.context, self.batch):
            sys.exit(f"llama_decode: {code}")
        return {place: self._after(place) for place in wanted}

    def _after(self, place: int) -> Any:
        logits = llama_cpp.llama_get_logits_ith(self.context, place)
        values = numpy.ctypeslib.as_array(logits, (self.words,)).astype(numpy.float64)
        return values - numpy.logaddexp.reduce(values)


def main() -> None:
    """Save the state after the demonstrations."""
    folder, weights, state = sys.argv[1:]
    llama = Llama(weights)
    ids = llama.encode(Path(folder, DEMONSTRATIONS).read_text(encoding="utf-8"), special=True)
    llama.read([Token(token, position, [0]) for position, token in enumerate(ids)])
    array = (llama_cpp.llama_token * len(ids))(*ids)
    if not llama_cpp.llama_state_seq_save_file(llama.context, state.encode(), 0, array, len(ids)):
        sys.exit(f"{state}: not saved")


if __name__ == "__main__":
    main()
