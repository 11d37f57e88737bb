"""Determine whether a network can be packed, by reading and scoring a short text packed and padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepthink_cli.engine.agreement import check_plain_pass, off_by_one_rounding
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.windows import UnsupportedAttention, narrowed
from deepthink_cli.errors import ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery, ordinary_ids

_LENGTH = 16  # tokens of the probe's memory
_WINDOW = 8  # tokens of an attention window during the probe, so that its text is longer
_TOLERANCE = 2  # packed and padded results may differ by this multiple of the rounding of padded ones


@dataclass(frozen=True)
class Verdict:
    """Whether a network gives the same results packed and padded; `reason` says why not, or is None.

    `failure` names an error that the network's attention did not cause: a missing or changed kernel, or an error of
    the device. `difference` is the root mean square difference between packed and padded scores in nats, `rounding`
    that between padded scores with different rounding; None if the packed pass did not run.
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
    packed, padded = _Trial(PackedEngine(model), first, queries), _Trial(PaddedEngine(model), first, queries)
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
        """Scores of all queries or of one, in the order of (query, candidate): (N,) in float64."""
        rows = [row for row in self.rows if of_query in (None, row.query)]
        scores = next(self.engine.score_pass([(self.first,)], rows))
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
    most = model.limits.most_tokens()
    length = _LENGTH if most is None else max(1, min(_LENGTH, (most - 8) // 2))
    a, b, c, d, e = ids[32:37]
    return tuple(ids[:length]), (
        TokenizedQuery(tuple(ids[16:20]), ((a,), (b, c), (b, d, e), (b, d))),
        TokenizedQuery(tuple(ids[20:22]), ((a, d, e), (b, c), (a,))),
        TokenizedQuery(tuple(ids[22:24]), ((d,), (e,))),
    )
