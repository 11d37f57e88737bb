"""A loaded network with its tokenizer, identity and limits, and the basic passes that engines use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from deepthink_cli.engine.logits import Head, HeadKind, float32_head
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.memory import Memory, from_cache
from deepthink_cli.model.families import cache_argument
from deepthink_cli.model.limits import Limits, check_pass
from deepthink_cli.model.tokens import check_known, ordinary_ids
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_locks: WeakKeyDictionary[PreTrainedModel, RLock] = WeakKeyDictionary()
_making = Lock()


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model in evaluation mode, its tokenizer, its identity and its limits.

    `batch_tokens` is the most tokens of a scoring pass; None is the fastest number. A single input always runs.
    `head_kind` is the kind of the float32 head; None: to be found. `choose_engine` finds the head and reads one token
    before other threads use the model.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: ModelIdentity
    limits: Limits
    batch_tokens: int | None = None
    head_kind: HeadKind | None = None

    @property
    def device(self) -> torch.device:
        """The device of the token ids."""
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype of the network."""
        return self.network.dtype

    @property
    def lock(self) -> RLock:
        """The lock of every pass, shared by all models with this network: one thread at a time reads or scores.

        Hold it to run `network` directly while other threads use this model.
        """
        with _making:
            return _locks.setdefault(self.network, RLock())

    @torch.inference_mode()
    def read(self, token_ids: Sequence[int], history: Memory | None = None, start: int = 0) -> Memory:
        """One pass over the tokens; returns their keys and values, the present (Eq. 2).

        With a history every layer attends to [history ; present] (Eq. 3): to all L tokens of the history, and causally
        to the present, which has positions `start` onward. The vocabulary projection is not computed. Raises InputError
        if the pass is too long for the model or has unknown tokens, and DeepThinkError for values that are not finite.
        """
        self.check_reading(token_ids, history, start)
        ids_1L = torch.tensor([token_ids], device=self.device)
        past = history.as_cache(self.dtype) if history is not None else DynamicCache()
        body: Any = self.network.base_model
        with self.lock:
            body(**self.inputs(ids_1L, past, start))
        return self.checked_present(from_cache(past, len(token_ids)), len(token_ids))

    def check_reading(self, token_ids: Sequence[int], history: Memory | None, start: int) -> None:
        """Raise InputError for a reading from position `start` on that is too long for the model or has unknown ids."""
        check_pass(self.limits, len(token_ids), history.length if history else 0, start, self.identity.id)
        self.check_ids(token_ids, "a reading")

    def checked_present(self, present: Memory, tokens: int) -> Memory:
        """Return the present if it has finite keys and values of every token; raises as `read` does."""
        if not present.keys or present.length != tokens:
            raise InputError(
                f"{self.identity.architecture} does not cache the keys and values of all tokens: Deep-Thinking is "
                "undefined there; choose a model with attention only"
            )
        if place := present.not_finite():
            architecture = self.identity.architecture
            raise DeepThinkError(f"{architecture}: {place} are NaN or infinite: {self.identity.overflow}")
        return present

    def check_memory(self, memory: Memory, name: str = "this memory") -> None:
        """Raise InputError unless the memory has this model's layers, heads and sizes, and ids of its vocabulary."""
        advice = "give the model that made it, or run deepthink think again"
        if _sizes(memory) != _sizes(self.one_token):
            raise InputError(
                f"{name}: has {_layers(memory)}, {self.identity.id} has {_layers(self.one_token)}: {advice}"
            )
        ids = memory.provenance.demonstrations.token_ids if memory.provenance else ()
        known = self.known_tokens
        if ids and not 0 <= min(ids) <= max(ids) < known:
            raise InputError(
                f"{name}: holds token ids from {min(ids)} to {max(ids)}, {self.identity.id} knows {known}: {advice}"
            )

    def inputs(self, ids_RS: Tensor, past: DynamicCache, start: int) -> dict[str, Any]:
        """The network's arguments for a pass over `ids_RS` at positions `start` onward; `past` grows by S."""
        arguments: dict[str, Any] = {"input_ids": ids_RS, self.cache_argument: past, "use_cache": True}
        if self.takes_positions:
            rows, width = ids_RS.shape
            arguments["position_ids"] = torch.arange(start, start + width, device=ids_RS.device).expand(rows, -1)
        return arguments

    def log_probabilities(
        self, inputs: Mapping[str, Any], places_M: Tensor, asked_N: Tensor, tokens_N: Tensor
    ) -> Tensor:
        """Float32 log-probabilities (N,) of the next tokens `tokens_N`, in one pass of the network.

        `places_M` are indices of tokens in the pass, counted row by row. `tokens_N[n]` follows token
        `places_M[asked_N[n]]`. Arguments and result may be on any device: a network can use several.
        """
        with self.lock:
            if self.head is None:
                return _chosen(_read_off(self.network(**inputs).logits, places_M).float(), asked_N, tokens_N)
            body: Any = self.network.base_model
            return self.head.log_probabilities(_read_off(body(**inputs).last_hidden_state, places_M), asked_N, tokens_N)

    def observed(
        self,
        inputs: Mapping[str, Any],
        places_M: Tensor,
        asked_N: Tensor,
        tokens_N: Tensor,
        layers: Sequence[int] = (),
        greedy: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The input of the output embedding (M, W) at the tokens `places_M`, and the result of `log_probabilities`.

        With `layers`, numbered from 1, the states (M, L, W) after each of them are in its place. With `greedy`, also
        whether each of `tokens_N` is not the most probable next token (N,), else None.
        """
        embedding: Any = self.network.get_output_embeddings()  # type: ignore[no-untyped-call]
        if embedding is None:
            raise InputError(f"{self.identity.architecture} has no output embedding, whose input is its hidden states")
        last = list[torch.Tensor]()
        with self.lock, embedding.register_forward_pre_hook(lambda _, arguments: last.append(arguments[0])):
            network: Any = self.network if self.head is None else self.network.base_model
            out = network(**inputs, output_hidden_states=bool(layers))
        if self.head is None:
            last_MW, logits_MV = _read_off(last[0], places_M), _read_off(out.logits, places_M).float()
            log_probabilities_N = _chosen(logits_MV, asked_N, tokens_N)
            likeliest_M = logits_MV.argmax(-1) if greedy else None
        else:
            last_MW = _read_off(out.last_hidden_state, places_M)
            log_probabilities_N = self.head.log_probabilities(last_MW, asked_N, tokens_N)
            likeliest_M = self.head.likeliest(last_MW) if greedy else None
        unlikely_N = None if likeliest_M is None else likeliest_M.cpu()[asked_N.cpu()] != tokens_N.cpu()
        if not layers:
            return last_MW, log_probabilities_N, unlikely_N
        depth = len(self.one_token.keys)
        after = [last_MW if layer == depth else _read_off(out.hidden_states[layer], places_M) for layer in layers]
        width = max(each.shape[-1] for each in after)  # OPT 350M projects its last states to half the width
        padded = [pad(each.to(last_MW.device), (0, width - each.shape[-1])) for each in after]
        return torch.stack(padded, dim=1), log_probabilities_N, unlikely_N

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError, prefixed with `where`, for a token id beyond the model's embedding."""
        check_known(self.tokenizer, ids, self.known_tokens, self.identity.id, where)

    @cached_property
    def known_tokens(self) -> int:
        """The number of tokens in the model's embedding."""
        embedding: Any = self.network.get_input_embeddings()
        return len(embedding.weight)  # not always a parameter: accelerate replaces it

    @cached_property
    def head(self) -> Head | None:
        """The float32 head; None if the network computes the logits of every token."""
        return float32_head(self.network, ordinary_ids(self.tokenizer, self.known_tokens, 8), self.head_kind)

    @property
    def layer_devices(self) -> tuple[torch.device, ...]:
        """The device of every layer's keys and values, found by reading one token."""
        return tuple(tensor.device for tensor in self.one_token.keys)

    @cached_property
    def one_token(self) -> Memory:
        """A reading of one token, which has the shapes of memories."""
        return self.read(ordinary_ids(self.tokenizer, self.known_tokens, 1))

    @cached_property
    def cache_argument(self) -> str:
        """The name of the network's argument for the keys and values of earlier tokens."""
        return cache_argument(self.network.base_model.forward) or "past_key_values"

    @cached_property
    def takes_positions(self) -> bool:
        """Whether the network accepts `position_ids`; otherwise positions follow from the number of keys."""
        return "position_ids" in signature(self.network.base_model.forward).parameters


def _read_off(out_RSn: Tensor, places_M: Tensor) -> Tensor:
    """The rows (M, n) of a pass's output (R, S, n) that belong to the tokens at `places_M`."""
    return out_RSn.flatten(0, 1)[places_M.to(out_RSn.device)]


def _chosen(logits_MV: Tensor, asked_N: Tensor, tokens_N: Tensor) -> Tensor:
    """Log-probabilities (N,) of `tokens_N` by the logits `asked_N`."""
    asked_N, tokens_N = asked_N.to(logits_MV.device), tokens_N.to(logits_MV.device)
    return logits_MV[asked_N, tokens_N] - logits_MV.logsumexp(-1)[asked_N]


def _sizes(memory: Memory) -> list[tuple[int, int]]:
    """Heads and head_dim of every layer's keys and values."""
    return [(tensor.shape[0], tensor.shape[2]) for tensor in (*memory.keys, *memory.values)]


def _layers(memory: Memory) -> str:
    heads, _, size = memory.keys[0].shape
    return f"{len(memory.keys)} layers of keys {heads} x {size}"
