"""A probe that compares the packed engine with the padded engine, and the difference that it allows.

Its verdicts are kept in the user's cache folder, so that a model is tried once and not at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from torch import Tensor

from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.logits import MASKED, HeadKind
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.reach import UnsupportedAttention, narrowed
from deepthink_cli.errors import InputError, Problem, ran_out_of_memory
from deepthink_cli.io.cache import read_cached, write_cached
from deepthink_cli.io.hub import library_errors
from deepthink_cli.io.text import json_sha256
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery, ordinary_ids

_COMPARED = 64  # tokens of the vocabulary whose log-probabilities are compared


@torch.inference_mode()
def check_plain_pass(model: LanguageModel, text_ids: Sequence[int], query_ids: Sequence[int]) -> None:
    """Raise InputError, naming the architecture, unless a query after a memory scores as in one pass over both.

    The text is read, then the query runs with the memory as its past. After every token of the query, the next-token
    log-probabilities are compared with a pass without cache and without explicit positions. They may differ by twice
    the effect of one rounding of the results of every layer.
    """
    name, hint = model.identity.architecture, "choose a model of another architecture"
    whole, start = [*text_ids, *query_ids], len(text_ids)
    # A second row of other tokens changes the first one only by rounding.
    pair_2S = torch.tensor([whole, whole[::-1]], device=model.device)
    expected_SN = _compared_tokens(model, {"input_ids": pair_2S[:1], "use_cache": False}, start, len(query_ids))
    with off_by_one_rounding(model):
        rounded_SN = _compared_tokens(model, {"input_ids": pair_2S, "use_cache": False}, start, len(query_ids))
    with library_errors(Problem(f"{name} cannot continue from a memory"), hint):
        query_2S = torch.tensor([query_ids, query_ids[::-1]], device=model.device)
        past = model.read(text_ids).as_cache(model.dtype, rows=2)
        actual_SN = _compared_tokens(model, model.inputs(query_2S, past, start), 0, len(query_ids))
    # In 8 bits, a token's rounding depends on the other tokens of the pass.
    least = 0.1 if model.identity.quantize else 1e-3
    if _relative_difference(actual_SN, expected_SN) > max(
        least, 2 * _relative_difference(rounded_SN, expected_SN)
    ):  # scoring reports NaN
        raise InputError(
            f"{name} scores a query after a memory differently than after the same text, by up to "
            f"{float((actual_SN - expected_SN).abs().max()):.2g} nats: T = 1 would not be in-context learning; "
            f"{hint}"
        )


def _compared_tokens(model: LanguageModel, inputs: dict[str, Any], start: int, length: int) -> Tensor:
    """Log-probabilities (S, N) of some tokens after S = `length` tokens from `start` on, in the first row of a pass."""
    tokens_N = torch.arange(0, model.known_tokens, max(1, model.known_tokens // _COMPARED), device=model.device)
    places_S = torch.arange(length, device=model.device)
    rows, tokens = places_S.repeat_interleave(len(tokens_N)), tokens_N.repeat(length)
    return model.log_probabilities(inputs, places_S + start, rows, tokens).view(length, -1).cpu()


@contextmanager
def off_by_one_rounding(model: LanguageModel) -> Iterator[None]:
    """Inside the block the output of every innermost module differs by about one rounding."""
    leaves = (module for module in model.network.modules() if not any(module.children()))
    with ExitStack() as hooks:
        for number, leaf in enumerate(leaves, start=1):
            hooks.callback(leaf.register_forward_hook(partial(_disturbed, number)).remove)
        yield


def _disturbed(number: int, _: torch.nn.Module, __: Any, out: Any) -> Any:
    if not isinstance(out, Tensor) or not out.is_floating_point() or not out.dim():
        return out
    noise = torch.cos(torch.arange(out.shape[-1], device=out.device) * number)
    return out * (1 + torch.finfo(out.dtype).eps * noise).to(out.dtype)


def _relative_difference(actual_SN: Tensor, expected_SN: Tensor) -> float:
    """Norm of the difference relative to the spread of the log-probabilities; the median over the query's tokens."""
    # A masked vocabulary row (-1e9, -inf) would outweigh all other rows.
    floor_S1 = expected_SN.amax(-1, keepdim=True) - MASKED
    actual_SN, expected_SN = actual_SN.maximum(floor_S1), expected_SN.maximum(floor_S1)
    spread_S = torch.linalg.vector_norm(expected_SN - expected_SN.mean(-1, keepdim=True), dim=-1)
    return float((torch.linalg.vector_norm(actual_SN - expected_SN, dim=-1) / spread_S.clamp(min=1e-6)).median())


_LENGTH = 16  # tokens of the probe's memory
_WINDOW = 8  # tokens of an attention window during the probe, so that its text is longer
_TOLERANCE = 2  # packed and padded results may differ by this multiple of the rounding of padded results


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Verdict:
    """The result of the probe; `reason` is the reason against packing, None if packed and padded results are the same.

    `failure` names an error that the network's attention did not cause: a missing or changed kernel, or an error of the
    device. `difference` is the root mean square difference in nats between packed and padded scores, and `rounding`
    between padded scores with different rounding; both are None if the packed pass did not run. `head` is the kind of
    the model's float32 head, of a kept verdict.
    """

    reason: str | None = None
    failure: str | None = None
    difference: float | None = None
    rounding: float | None = None
    head: HeadKind | None = None


_VERDICT = TypeAdapter(Verdict)


def check_padded(model: LanguageModel) -> None:
    """Raise InputError, naming the architecture, unless a query after a memory scores as in one pass over both."""
    text, queries = _texts(model)
    with narrowed(model.network, _WINDOW):
        check_plain_pass(model, text, queries[0].prefix)


def try_packed(model: LanguageModel) -> Verdict:
    """Read and score a short text padded and packed, and compare.

    Raises as `check_padded` does, and the device's error if even this short text does not fit its memory.
    """
    check_padded(model)
    text, queries = _texts(model)
    try:
        with narrowed(model.network, _WINDOW):
            return _compared(model, text, queries)
    except UnsupportedAttention as unsupported:
        return Verdict(reason=str(unsupported))
    except Exception as error:
        if ran_out_of_memory(error):
            raise
        first_line = str(error).strip().partition("\n")[0]
        failure = f"{type(error).__name__}: {first_line}"
        return Verdict(reason=f"a packed pass failed ({failure})", failure=failure)


def _compared(model: LanguageModel, text: tuple[int, ...], queries: Sequence[TokenizedQuery]) -> Verdict:
    first, packed, padded = model.read(text), PackedEngine(model), PaddedEngine(model)
    packed_scores = _scores(packed, first, queries)
    # Two readings in one pass, as in a run.
    packed_reading = _numbers(packed.read_pass([Reading(text), Reading(text, first, first.length)])[1])
    padded_scores, padded_reading = _padded_results(padded, text, first, queries)
    with off_by_one_rounding(model):
        rounded_scores, rounded_reading = _padded_results(padded, text, first, queries)
    if packed_reading.shape != padded_reading.shape:
        return Verdict(reason="only some of its layers use the attention interface of transformers")
    # Matrix products of another batch size round differently.
    other = _scores(padded, first, queries[:1])
    rounding = max(_rms(rounded_scores - padded_scores), _rms(other - padded_scores[: len(other)]))
    difference = _rms(packed_scores - padded_scores)
    reading_difference = _rms(packed_reading - padded_reading)
    reading_rounding = _rms(rounded_reading - padded_reading)
    eps = torch.finfo(torch.float32).eps  # the dtype of scores and memories
    scores_agree = difference <= _TOLERANCE * rounding + 4 * eps * float(padded_scores.abs().max())
    if scores_agree and reading_difference <= _TOLERANCE * reading_rounding + 4 * eps * _rms(padded_reading):
        return Verdict(difference=difference, rounding=rounding)
    reason = f"packed and padded scores differ by {difference:.1e} nats, rounding alone by {rounding:.1e}"
    if scores_agree:
        reason = (
            f"packed and padded readings differ by {reading_difference:.1e}, rounding alone by {reading_rounding:.1e}"
        )
    return Verdict(reason=reason, difference=difference, rounding=rounding)


def _scores(engine: BatchedEngine, first: Memory, queries: Sequence[TokenizedQuery]) -> Tensor:
    """The scores of queries after a memory, in the order of (query, candidate): (N,) in float64."""
    rows = [row for number, query in enumerate(queries) for row in engine.rows_of(number, query)]
    scores = next(engine.score_pass([(first,)], rows))()
    return torch.tensor([scores[place] for place in sorted(scores)], dtype=torch.float64)


def _padded_results(
    engine: PaddedEngine, text: tuple[int, ...], first: Memory, queries: Sequence[TokenizedQuery]
) -> tuple[Tensor, Tensor]:
    """The scores of queries after a memory, and the keys and values of a reading of its text after it."""
    return _scores(engine, first, queries), _numbers(engine.read_pass([Reading(text, first, first.length)])[0])


def _numbers(memory: Memory) -> Tensor:
    """All keys and values in one vector."""
    return torch.cat([tensor.flatten().cpu() for tensor in (*memory.keys, *memory.values)])


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def _texts(model: LanguageModel) -> tuple[tuple[int, ...], tuple[TokenizedQuery, ...]]:
    """The tokens of the probe's memory, and queries with shared, nested and unequal candidates, of ordinary text."""
    ids = ordinary_ids(model.tokenizer, model.known_tokens, 37)
    most = model.limits.max_tokens()
    length = _LENGTH if most is None else max(1, min(_LENGTH, (most - 8) // 2))
    a, b, c, d, e = ids[32:37]
    return tuple(ids[:length]), (
        TokenizedQuery(tuple(ids[16:20]), ((a,), (b, c), (b, d, e), (b, d))),
        TokenizedQuery(tuple(ids[20:22]), ((a, d, e), (b, c), (a,))),
        TokenizedQuery(tuple(ids[22:24]), ((d,), (e,))),
    )


_SMALL = 2**24  # bytes; smaller models are probed in a fraction of a second


def found_before(model: LanguageModel) -> Verdict | None:
    """The verdict of an earlier start; None if there is none, or if its file is damaged."""
    text = None if (name := _name(model)) is None else read_cached(name)
    try:
        found = _VERDICT.validate_json(text or "")
    except ValidationError:
        return None
    return None if found.head is None else found


def keep(model: LanguageModel, verdict: Verdict) -> None:
    """Keep a verdict for later starts, with the kind of the head, unless an error has failed the probe."""
    if (name := _name(model)) is not None and verdict.failure is None:
        head: HeadKind = "none" if model.head is None else "half" if model.head.in_half else "float32"
        write_cached(name, _VERDICT.dump_json(replace(verdict, head=head)).decode())


def _name(model: LanguageModel) -> str | None:
    """The name of the file of a verdict, a digest of all that it depends on; None for a model without such a file.

    Not kept are verdicts of small models, of weights without a digest, and of code from outside transformers.
    """
    identity, network = model.identity, model.network
    small = sum(each.nbytes for each in network.parameters()) < _SMALL
    if small or not identity.weights_sha256 or not type(network).__module__.startswith("transformers."):
        return None
    devices = {each.device for each in network.parameters()}
    names = {torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices}
    depends_on = {
        "configuration": identity.config_sha256,
        "weights": identity.weights_sha256,
        "tokenizer": identity.tokenizer_sha256,
        "quantize": identity.quantize,
        "dtype": identity.dtype,
        "attention": str(network.config._attn_implementation),
        "devices": ", ".join(sorted(names)),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "engine": _engine_sha256(),
    }
    return f"probes/{json_sha256(depends_on)}"


@cache
def _engine_sha256() -> str:
    """Digest of the code of the engines."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
