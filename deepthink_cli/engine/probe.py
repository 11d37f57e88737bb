"""A probe that compares the packed engine with the padded engine, and the difference that it allows.

Its findings are kept in the user's cache folder, so that a model is tried once and not at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.logits import MASKED, HeadKind
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.reach import UnsupportedAttention, narrowed
from deepthink_cli.errors import DeepThinkError, InputError, ran_out_of_memory
from deepthink_cli.io.cache import read_cached, write_cached
from deepthink_cli.io.text import json_sha256
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery, ordinary_ids

_COMPARED = 64  # tokens of the vocabulary whose log-probabilities are compared


def check_plain_pass(model: LanguageModel, text_ids: Sequence[int], query_ids: Sequence[int]) -> None:
    """Raise InputError, naming the architecture, unless a query after a memory scores as in one pass over both.

    The text is read, then the query runs with the memory as its past. After every token of the query, the next-token
    log-probabilities are compared with a pass without cache and without explicit positions. They may differ by twice
    the effect of one rounding of the results of every layer.
    """
    name, hint = model.identity.architecture, "choose a model of another architecture"
    compared = _Compared(model, len(query_ids))
    expected_SN, rounded_SN = _plain(model, compared, [*text_ids, *query_ids])
    try:
        actual_SN = _after_memory(model, compared, text_ids, query_ids)
    except Exception as error:  # an unsupported past can fail in any way
        if isinstance(error, DeepThinkError) or ran_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InputError(f"{name} cannot continue from a memory ({reason}); {hint}") from error
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


class _Compared:
    """Computes the log-probabilities to compare: of N tokens after each of S tokens of a row."""

    def __init__(self, model: LanguageModel, length: int) -> None:
        known = model.known_tokens
        self.model, self.length = model, length
        self.tokens_N = torch.arange(0, known, max(1, known // _COMPARED), device=model.device)

    def of(self, inputs: dict[str, Any], start: int) -> Tensor:
        """Log-probabilities (S, N) after tokens `start` onward of the first row of a pass."""
        places_S = torch.arange(self.length, device=self.model.device)
        rows, tokens = places_S.repeat_interleave(len(self.tokens_N)), self.tokens_N.repeat(self.length)
        return self.model.log_probabilities(inputs, places_S + start, rows, tokens).view(self.length, -1).cpu()


@torch.inference_mode()
def _plain(model: LanguageModel, compared: _Compared, ids: list[int]) -> tuple[Tensor, Tensor]:
    """Log-probabilities (S, N) from one pass over all ids, and from another pass with different rounding."""
    # A second row of other tokens changes the first one only by rounding.
    pair_2S, start = torch.tensor([ids, ids[::-1]], device=model.device), len(ids) - compared.length
    expected_SN = compared.of({"input_ids": pair_2S[:1], "use_cache": False}, start)
    with off_by_one_rounding(model):
        return expected_SN, compared.of({"input_ids": pair_2S, "use_cache": False}, start)


@torch.inference_mode()
def _after_memory(
    model: LanguageModel, compared: _Compared, text_ids: Sequence[int], query_ids: Sequence[int]
) -> Tensor:
    """Log-probabilities (S, N) from a pass over the query, with the memory of the text as its past."""
    query_2S = torch.tensor([query_ids, query_ids[::-1]], device=model.device)
    return compared.of(model.inputs(query_2S, model.read(text_ids).as_cache(model.dtype, rows=2), len(text_ids)), 0)


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


@dataclass(frozen=True)
class Verdict:
    """The result of the probe; `reason` is the reason against packing, None if packed and padded results are the same.

    `failure` names an error that the network's attention did not cause: a missing or changed kernel, or an error of the
    device. `difference` is the root mean square difference in nats between packed and padded scores, and `rounding`
    between padded scores with different rounding; both are None if the packed pass did not run.
    """

    reason: str | None = None
    failure: str | None = None
    difference: float | None = None
    rounding: float | None = None


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
    first = model.read(text)
    packed = _Trial(PackedEngine(model), first, queries)
    padded = _Trial(PaddedEngine(model), first, queries)
    packed_scores = packed.scores()
    packed_reading = _numbers(packed.engine.read_pass([Reading(text), Reading(text, first, first.length)])[1])
    padded_scores, padded_reading = padded.scores(), padded.second_reading(text)
    with off_by_one_rounding(model):
        rounded_scores, rounded_reading = padded.scores(), padded.second_reading(text)
    if packed_reading.shape != padded_reading.shape:
        return Verdict(reason="only some of its layers use the attention interface of transformers")
    # Matrix products of another batch size round differently.
    other = padded.scores(of_query=0)
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


class _Trial:
    """The probe's queries on one engine, after the first reading of its text."""

    def __init__(self, engine: BatchedEngine, first: Memory, queries: Sequence[TokenizedQuery]) -> None:
        self.engine, self.first = engine, first
        self.rows = [row for number, query in enumerate(queries) for row in engine.rows_of(number, query)]

    def scores(self, of_query: int | None = None) -> Tensor:
        """The scores of all queries, or of query `of_query`, in the order of (query, candidate): (N,) in float64."""
        rows = [row for row in self.rows if of_query in (None, row.query)]
        scores = next(self.engine.score_pass([(self.first,)], rows)).summed()
        return torch.tensor([scores[place] for place in sorted(scores)], dtype=torch.float64)

    def second_reading(self, text: tuple[int, ...]) -> Tensor:
        """The keys and values of a reading of the text after the first one."""
        return _numbers(self.engine.read_pass([Reading(text, self.first, self.first.length)])[0])


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


class Findings(BaseModel):
    """The findings of trying a model: the verdict of the probe and the kind of its head, with all they depend on."""

    model_config = ConfigDict(extra="forbid")

    depends_on: dict[str, str | None]
    head: HeadKind
    verdict: Verdict


def found_before(model: LanguageModel) -> Findings | None:
    """The findings of an earlier start; None if there are none, or if the entry is damaged or of another model."""
    depends_on = _dependencies(model)
    text = None if depends_on is None else read_cached(_name(depends_on))
    try:
        found = None if text is None else Findings.model_validate_json(text)
    except ValidationError:
        return None
    return found if found is not None and found.depends_on == depends_on else None


def keep(model: LanguageModel, verdict: Verdict) -> None:
    """Keep the findings for later starts, unless an error has failed the probe."""
    depends_on = _dependencies(model)
    if depends_on is not None and verdict.failure is None:
        found = Findings(depends_on=depends_on, head=model.head_kind, verdict=verdict)
        write_cached(_name(depends_on), found.model_dump_json())


def _name(depends_on: Mapping[str, str | None]) -> str:
    return f"probes/{json_sha256(depends_on)}"


def _dependencies(model: LanguageModel) -> dict[str, str | None] | None:
    """All that the findings depend on; None for a model whose findings are not kept.

    The findings of a small model, of weights without a digest, and of code from outside transformers are not kept.
    """
    identity, network = model.identity, model.network
    small = sum(each.nbytes for each in network.parameters()) < _SMALL
    if small or not identity.weights_sha256 or not type(network).__module__.startswith("transformers."):
        return None
    devices = {each.device for each in network.parameters()}
    names = {torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices}
    return {
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


@cache
def _engine_sha256() -> str:
    """Digest of the code of the engines."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
