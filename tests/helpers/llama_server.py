"""The server of the real llama.cpp, from the package xllamacpp, asked over the loopback."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepthink_cli.model.tokens import TokenizedQuery

F32, F16 = 0, 1  # ggml's numbers of the types of caches


class LlamaServer:
    """A llama-server with one slot, and a folder for its states; `cache` is a type of ggml."""

    def __init__(self, model: Path, slots: Path, cache: int = F32, flash_attention: bool = False) -> None:
        import xllamacpp

        slots.mkdir(exist_ok=True)
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.slot_save_path = str(model), f"{slots}/"
        settings.n_ctx, settings.n_parallel, settings.warmup, settings.cache_ram_mib = 2048, 1, False, 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_type_k = settings.cache_type_v = cache
        settings.flash_attn_type = int(flash_attention)
        self.server = xllamacpp.Server(settings)

    def ask(self, path: str, **body: Any) -> Any:
        """Send one request."""
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def save(self, tokens: Sequence[int], name: str) -> None:
        """Read tokens, and save the state after them."""
        self.ask("/completion", prompt=list(tokens), n_predict=0, cache_prompt=True)
        assert self.ask("/slots/0?action=save", filename=name)["n_saved"] == len(tokens)

    def restore(self, name: str) -> None:
        """Restore a state."""
        self.ask("/slots/0?action=erase")
        self.ask("/slots/0?action=restore", filename=name)

    def scores(self, tokens: Sequence[int], query: TokenizedQuery, known: int) -> list[float]:
        """The log-probability of each candidate, in nats, after tokens in the slot; `known` is the vocabulary size."""
        sums = []
        for answer in query.answers:
            places = range(len(answer))
            sums.append(
                math.fsum(self._next([*tokens, *query.prefix, *answer[:end]], answer[end], known) for end in places)
            )
        return sums

    def _next(self, prompt: list[int], token: int, known: int) -> float:
        """The log-probability of a token after a prompt.

        Normalised again: the server's own sum over the vocabulary, in float32, is off by up to 1e-4. The bias makes the
        server choose this token and leaves the numbers as they are; it gives none where it chooses the end or a part of
        a character.
        """
        asked = {"prompt": prompt, "n_predict": 1, "n_probs": known, "logit_bias": [[token, 1e4]], "cache_prompt": True}
        answer = self.ask("/completion", **asked)
        logs = {each["id"]: each["logprob"] for each in answer["completion_probabilities"][0]["top_logprobs"]}
        return float(logs[token]) - math.log(math.fsum(map(math.exp, logs.values())))
