"""Generation of tokens after a memory, by plain steps of the network, for every network that continues a cache.

The rows of a batch advance together, a token a step, without padding. So every row attends only to its own tokens at
its own positions, whatever the architecture does with masks and positions. The first pass reads as many tokens of every
prompt as the shortest prompt has. The rest of a longer prompt is then fed to its row in place of new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from deepthink_cli.engine.budget import rows_over
from deepthink_cli.engine.decoding import Decoding, Finish, NewToken, Prompt
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.errors import DeepThinkError, ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import check_continuation

if TYPE_CHECKING:
    from torch import Tensor

SPREAD = 16  # prompts of a batch differ by at most this many tokens, each of which costs a step


@dataclass(eq=False)
class _Row:
    """A prompt with the tokens generated so far."""

    place: int
    ids: list[int]
    prompt: int  # tokens of the prompt
    generator: torch.Generator = field(repr=False)
    finished: bool = False


def generate(
    model: LanguageModel, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding, most: int, free: int
) -> Iterator[NewToken]:
    """Yield the new tokens of all prompts after a memory, in the order in which they are generated.

    A batch has at most `most` tokens of prompts, and takes at most `free` bytes. A batch that does not fit the device
    continues as two smaller batches. Raises InputError, before the first token, for a prompt without tokens, with
    unknown tokens, or too long together with its new tokens.
    """
    if memory is not None:
        model.check_memory(memory)
    length = 0 if memory is None else memory.length
    for prompt in prompts:
        where = prompt.where or "a prompt"
        check_continuation(model.limits, model.identity.id, length, prompt.ids, decoding.max_new_tokens, where)
        model.check_ids(prompt.ids, where)
    placed = None if memory is None else memory.to(model.layer_devices, model.dtype)
    waiting = [
        _Row(place, list(prompt.ids), len(prompt.ids), torch.Generator().manual_seed(prompt.seed))
        for place, prompt in enumerate(prompts)
    ]
    while waiting:
        waiting.sort(key=lambda row: -len(row.ids))
        bounding = model.one_token if memory is None else memory
        width = len(waiting[0].ids)
        fitting = rows_over(model, bounding, width + decoding.max_new_tokens, free)
        batch = [row for row in waiting[: max(1, min(most // width, fitting))] if len(row.ids) >= width - SPREAD]
        try:
            yield from _Batch(model, placed, decoding, batch)
        except Exception as error:
            if len(batch) == 1 or not ran_out_of_memory(error):
                raise
            most = len(batch) * max(len(row.ids) for row in batch) // 2
        waiting = [row for row in waiting if not row.finished]


class _Batch:
    """Rows that advance together from one copy of the memory each."""

    def __init__(self, model: LanguageModel, memory: Memory | None, decoding: Decoding, rows: Sequence[_Row]) -> None:
        self.model, self.decoding, self.rows = model, decoding, list(rows)
        self.past = DynamicCache() if memory is None else memory.as_cache(model.dtype, len(rows))
        self.position = 0 if memory is None else memory.length
        # Whether the network can compute the logits of the last token only.
        self.takes_kept = "logits_to_keep" in signature(model.network.forward).parameters
        # The tokens with which the model ends a text, by its generation configuration and its tokenizer.
        configuration: Any = model.network.generation_config
        ends = getattr(configuration, "eos_token_id", None)
        self.ends = {*(ends if isinstance(ends, list) else [ends]), model.tokenizer.eos_token_id} - {None}

    @torch.inference_mode()
    def __iter__(self) -> Iterator[NewToken]:
        """The new tokens, until every row has finished."""
        read, width = 0, min(len(row.ids) for row in self.rows)
        while self.rows:
            ids_RS = torch.tensor([row.ids[read : read + width] for row in self.rows], device=self.model.device)
            arguments = self.model.inputs(ids_RS, self.past, self.position)
            if self.takes_kept:
                arguments["logits_to_keep"] = 1
            with self.model.lock:
                logits_RSV = self.model.network(**arguments).logits
            logits_RV = logits_RSV[:, -1].float()
            self.position, read, width = self.position + width, read + width, 1
            for number, row in enumerate(self.rows):
                if len(row.ids) == read:
                    yield self._next(row, logits_RV[number])
            kept = [number for number, row in enumerate(self.rows) if not row.finished]
            if 0 < len(kept) < len(self.rows):
                layers: Any = self.past.layers
                for layer in layers:
                    if layer.keys is not None:
                        layer.batch_select_indices(torch.tensor(kept, device=layer.keys.device))
            self.rows = [self.rows[number] for number in kept]

    def _next(self, row: _Row, logits_V: Tensor) -> NewToken:
        """Choose the next token of a row and add it."""
        token = choose(logits_V, self.decoding, row.generator)
        if token is None:
            architecture = self.model.identity.architecture
            raise DeepThinkError(f"{architecture}: logits are NaN or infinite: {self.model.identity.overflow}")
        row.ids.append(token)
        finish = self._finish(row)
        row.finished = finish is not None
        return NewToken(row.place, token, finish)

    def _finish(self, row: _Row) -> Finish | None:
        new = row.ids[row.prompt :]
        if new[-1] in self.ends:
            return "end"
        if self.decoding.stop:
            text = self.model.tokenizer.decode(new, clean_up_tokenization_spaces=False)
            if any(stop in text for stop in self.decoding.stop):
                return "stop"
        return "length" if len(new) == self.decoding.max_new_tokens else None


def choose(logits_V: Tensor, decoding: Decoding, generator: torch.Generator) -> int | None:
    """The next token by its logits in float32: the most likely token, or a sample; None if they are not finite.

    A sample is drawn as transformers does, with the generator's random numbers: from softmax of logits / temperature
    over the most likely tokens whose probabilities sum up to `top_p`.
    """
    if not logits_V.max().isfinite():
        return None
    if decoding.temperature == 0:
        return int(logits_V.argmax())
    no_ids: Any = None  # these processors use only the scores
    scores_1V: Tensor = TemperatureLogitsWarper(decoding.temperature)(no_ids, logits_V[None].cpu())
    if decoding.top_p < 1:
        scores_1V = TopPLogitsWarper(decoding.top_p)(no_ids, scores_1V)
    return int(torch.multinomial(scores_1V.softmax(-1), 1, generator=generator))
