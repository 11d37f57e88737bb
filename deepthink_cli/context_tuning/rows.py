"""The demonstrations as training rows: each as a query with its answer, and which tokens of the memory are its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import TrainingRow
from deepthink_cli.errors import InputError
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.provenance import TokenizedDemonstrations

FEWEST = 4  # demonstrations from which on each row is left out of the memory that it is trained on (Context Tuning)


@dataclass(frozen=True, eq=False)
class Rows:
    """The demonstrations as queries, before anything is hidden from them.

    `ids[i]` are the tokens of demonstration i as a query with its answer, the last `answers[i]` of which are the
    answer's. `own_RL` (R, L) is True at the tokens of the memory that row i must not attend to: those of demonstration
    i, or none if there are fewer than four demonstrations.
    """

    ids: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    own_RL: Tensor

    def hiding(self, dropped_RL: Tensor) -> list[TrainingRow]:
        """The training rows, from which the tokens `dropped_RL` are hidden as well as their own."""
        hidden_RL = self.own_RL | dropped_RL
        return [TrainingRow(*row) for row in zip(self.ids, self.answers, hidden_RL, strict=True)]


def check_trainable(spec: ModelSpec, demonstrations: TokenizedDemonstrations) -> None:
    """Raise InputError if the model or the demonstrations cannot be trained on; needs no weights."""
    if spec.options.quantize is not None:
        raise InputError(
            f"--quantize {spec.options.quantize}: --method ct-kv needs gradients, which quantized weights do not give "
            "exactly; use --dtype bfloat16, or another method"
        )
    own_tokens(spec.tokenizer, demonstrations)


def training_rows(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> Rows:
    """The rows of these demonstrations; raises InputError as `own_tokens` does."""
    ids, answers = [], []
    for number, example in enumerate(demonstrations.examples, start=1):
        candidates = demonstrations.labels or (example.label,)
        query = Query(example.text, candidates, where=f"demonstration {number}")
        (tokenized,) = tokenize_queries(tokenizer, demonstrations, [query])
        answer = tokenized.answers[candidates.index(example.label)]
        ids.append(tokenized.prefix + answer)
        answers.append(len(answer))
    own_RL = own_tokens(tokenizer, demonstrations)
    return Rows(tuple(ids), tuple(answers), own_RL if len(ids) >= FEWEST else torch.zeros_like(own_RL))


def own_tokens(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> Tensor:
    """Which tokens (R, L) hold a character of demonstration r or of the separator after it.

    A token that the tokenizer joins across the end of a demonstration belongs to both. Raises InputError for turns of a
    conversation, for a tokenizer that does not say which characters its tokens stand for, and for one that writes
    the demonstrations in another way than when they were tokenised.
    """
    if demonstrations.chat is not None:
        raise InputError(
            "--method ct-kv: a chat template does not say which tokens are whose; omit --chat, or use another method"
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"--method ct-kv: {type(tokenizer).__name__} does not say which characters a token stands for; use a model "
            "with a fast tokenizer (tokenizer.json)"
        )
    template = demonstrations.template
    texts = [
        template.demonstrations([(each.text, demonstrations.word(each.label))]) for each in demonstrations.examples
    ]
    encoded = tokenizer(
        "".join(texts), add_special_tokens=True, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    length = len(demonstrations.token_ids)
    if tuple(encoded["input_ids"][:length]) != demonstrations.token_ids:
        raise InputError("--method ct-kv: the tokenizer writes the demonstrations in another way now; think again")
    first_L, stop_L = torch.tensor(encoded["offset_mapping"][:length]).T
    ends_R1 = torch.tensor(list(accumulate(map(len, texts))))[:, None]
    starts_R1 = ends_R1 - torch.tensor(list(map(len, texts)))[:, None]
    own_RL: Tensor = (first_L < ends_R1) & (stop_L > starts_R1)
    if not own_RL.any(1).all():
        raise InputError("--method ct-kv: the tokenizer gives no tokens for a demonstration; use another model")
    # Some tokenizers give whitespace no characters, as in the separator: it belongs to the demonstration before it.
    begins_R, places_L = own_RL.int().argmax(1), torch.arange(length)
    next_R = torch.cat([begins_R[1:], torch.tensor([length])])
    return own_RL | ((places_L >= begins_R[:, None]) & (places_L < next_R[:, None]))
