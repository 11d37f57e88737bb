"""Whether a network may be packed: found by reading and scoring a short text both ways, not from a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepthink_cli.agreement import check_plain_pass, off_by_one_rounding
from deepthink_cli.attention import UnsupportedAttention
from deepthink_cli.errors import ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model import LanguageModel
from deepthink_cli.packing import Row, lines, tree
from deepthink_cli.passes import score_rows
from deepthink_cli.reading import Reading, read_packed
from deepthink_cli.tokens import TokenizedQuery, encode

# Ordinary words: ids picked by number may be tokens that were never trained, whose activations are extreme.
_TEXT = (
    "It was late in the evening when the two friends came home from the theatre. They had seen a play about a small "
    "town by the sea, and they still talked about it: the first act was slow, but the end was warm, clever and very "
    "funny. One of them wanted to see it again, and the other one had already bought the book."
)
_LENGTH = 16  # tokens of the probe's memory
_TOLERANCE = 2  # how much further than its own rounding the padded way and the packed one may be apart


@dataclass(frozen=True)
class Verdict:
    """Whether a network gives the same packed as padded; `reason` says why not, None where it does.

    `failure` names an error that is not the network's way of attending: a kernel that is missing or has changed,
    or the device's own. `difference` is the root mean square between the scores of both ways in nats, `rounding` that
    between the padded way and itself with other rounding; None where the packed way did not run.
    """

    reason: str | None = None
    failure: str | None = None
    difference: float | None = None
    rounding: float | None = None


def try_packed(model: LanguageModel) -> Verdict:
    """Read and score a short text padded and packed, and compare.

    Raises InputError, naming the architecture, for a network that gives something else after a memory than in one
    pass over the whole prompt, and the device's own error where not even this fits its memory.
    """
    text, queries = _texts(model)
    check_plain_pass(model, text, queries[0].prefix)
    try:
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
    padded_rows = [row for number, query in enumerate(queries) for row in lines(number, query)]
    readings = [Reading(text), Reading(text, first, first.length)]
    packed = _Found(
        _scores(model, first, [tree(number, query) for number, query in enumerate(queries)], packed=True),
        _tensors(read_packed(model, readings)),
    )
    padded = _padded(model, first, padded_rows, text)
    with off_by_one_rounding(model):
        rounded = _padded(model, first, padded_rows, text)
    alone = torch.cat([_scores(model, first, rows, packed=False) for rows in _alone(padded_rows)])
    if packed.readings.shape != padded.readings.shape:
        return Verdict(reason="only some of its layers use the attention interface of transformers")
    own = max(_rms(rounded.scores - padded.scores), _rms(alone - padded.scores))
    difference = _rms(packed.scores - padded.scores)
    eps = torch.finfo(torch.float32).eps  # what scores are computed in
    scores_agree = difference <= _TOLERANCE * own + 4 * eps * float(padded.scores.abs().max())
    apart = _rms(packed.readings - padded.readings)
    readings_agree = apart <= _TOLERANCE * _rms(rounded.readings - padded.readings) + 4 * eps * _rms(padded.readings)
    if scores_agree and readings_agree:
        return Verdict(difference=difference, rounding=own)
    reason = f"packed scores are {difference:.1e} nats from padded ones, whose own rounding is {own:.1e}"
    return Verdict(reason=reason, difference=difference, rounding=own)


@dataclass(frozen=True, eq=False)
class _Found:
    """What one way gives: scores (N,) and all numbers of two readings in one line."""

    scores: Tensor
    readings: Tensor


def _padded(model: LanguageModel, first: Memory, rows: Sequence[Row], text: tuple[int, ...]) -> _Found:
    readings = [model.read(text), model.read(text, first, first.length)]
    return _Found(_scores(model, first, rows, packed=False), _tensors(readings))


def _scores(model: LanguageModel, memory: Memory, rows: Sequence[Row], packed: bool) -> Tensor:
    """Scores in the order of (query, candidate), (N,) in float64."""
    found = next(score_rows(model, [(memory,)], rows, packed))
    return torch.tensor([found[one] for one in sorted(found)], dtype=torch.float64)


def _alone(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each query by themselves: another batch, whose products round in another way."""
    return [[row for row in rows if row.query == number] for number in sorted({row.query for row in rows})]


def _tensors(readings: Sequence[Memory]) -> Tensor:
    return torch.cat([tensor.flatten().cpu() for one in readings for tensor in (*one.keys, *one.values)])


def _rms(numbers: Tensor) -> float:
    return float(numbers.double().square().mean().sqrt())


def _texts(model: LanguageModel) -> tuple[tuple[int, ...], tuple[TokenizedQuery, ...]]:
    """The tokens of the probe's memory, and queries with shared, nested and unequal candidates, of ordinary text."""
    ids = encode(model.tokenizer, [_TEXT], special=True)[0]
    ids = (ids * (48 // len(ids) + 1))[:48]
    most = model.limits.most_tokens()
    length = _LENGTH if most is None else max(1, min(_LENGTH, (most - 8) // 2))
    a, b, c, d, e = ids[32:37]
    return tuple(ids[:length]), (
        TokenizedQuery(tuple(ids[16:20]), ((a,), (b, c), (b, d, e), (b, d))),
        TokenizedQuery(tuple(ids[20:22]), ((a, d, e), (b, c), (a,))),
        TokenizedQuery(tuple(ids[22:24]), ((d,), (e,))),
    )
