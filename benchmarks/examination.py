"""Run one architecture through both stages, and compare its memories and scores with transformers' own forward pass.

Demonstrations are read twice, with `continued` and `restarted` positions, once shorter and once longer than an
attention window; queries are scored packed and padded. The reference of one reading is one pass over the whole text
without a cache; of two, one pass over the text twice (for `restarted`, one with a cache), with the gate computed in
NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb
from typing import cast, get_args

import numpy as np
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Gate,
    Memory,
    Method,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.opening import choose_engine
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.method import Positions
from deepthink_cli.model.families import window_sizes
from deepthink_cli.model.limits import check_fit
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from plain_reference import Array, Layer, PlainReference
from small_models import FORMS, QUERIES, random_network, reviews, small_config, tokenizer_of_reviews

_SHORT, _LONG = 2, 12  # demonstrations: two readings and a query are shorter than a window, one reading is two windows
_ETA = 0.5
_TOLERANCE = 1e-3  # of scores in nats; of keys and values, relative to the largest


@dataclass(frozen=True)
class Row:
    """What became of one architecture, in one form of its configuration.

    `verdict` is `packed`, `padded` or `refused`, or for a defect `wrong` (another result than the model's own forward
    pass) or `failed` (another error than a refusal). `difference` is the largest difference from the reference.
    """

    model_type: str
    form: str
    verdict: str
    reason: str = ""
    window: bool = False
    difference: float = 0.0

    @property
    def architecture(self) -> str:
        """The name of the model's class."""
        return CLASSES[self.model_type]


class Wrong(Exception):
    """A result differs from the reference."""


def examine(model_type: str, form: str = "") -> Row:
    """Build, open, load, read and score one architecture; every error becomes a row."""
    row = Row(model_type, form, "failed")
    with TemporaryDirectory() as folder:
        try:
            return _examined(row, Path(folder))
        except InputError as refusal:
            reason = str(refusal).replace(str(Path(folder).resolve()), "MODEL")
            named = any(name in reason for name in (row.architecture, "-m MODEL"))
            return replace(row, verdict="refused" if named and "\n" not in reason else "failed", reason=reason)
        except Wrong as wrong:
            return replace(row, verdict="wrong", reason=str(wrong))
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
            return replace(row, reason=" ".join(reason.split()))


def _examined(row: Row, folder: Path) -> Row:
    tokenizer = tokenizer_of_reviews()
    config = small_config(row.model_type, len(tokenizer), **FORMS.get((row.model_type, row.form), {}))
    config.architectures = [row.architecture]
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    spec = open_model(ModelOptions.checked(model=str(folder)))
    _write_weights(config, folder)
    engine = cast("BatchedEngine", load_model(spec))
    padded = choose_engine(engine.model, "padded")
    packed = isinstance(engine, PackedEngine)
    reference = PlainReference(AutoModelForCausalLM.from_pretrained(folder).eval())
    differences, notes = [0.0], dict[str, None]()  # notes in order, each once
    engines = [engine, padded] if packed else [padded]
    for count, positions, each in product((_SHORT, _LONG), get_args(Positions), engines):
        try:
            differences.append(_difference(each, reference, reviews(count), positions))
        except InputError as refusal:
            notes[_note(str(refusal), positions)] = None
    return replace(
        row,
        verdict="packed" if packed else "padded",
        reason="; ".join([*([] if packed else [_because(engine.description.removeprefix("padded engine: "))]), *notes]),
        window=bool(window_sizes(config.get_text_config(decoder=True))),
        difference=max(differences),
    )


def _write_weights(config: PretrainedConfig, folder: Path) -> None:
    try:
        random_network(config).save_pretrained(folder)
    except ImportError:  # loading them fails in the same way
        save_file({}, folder / "model.safetensors")
    config.save_pretrained(folder)  # a network that is only the text part of the model saves only that part's


def _because(reason: str) -> str:
    """An engine's reason without its cost and without measured differences."""
    return re.sub(r" by \d.*", "", reason.partition(";")[0])


def _note(refusal: str, positions: str) -> str:
    """What a refusal of some readings means for a user."""
    if positions == "restarted" and "no positions to restart" in refusal:
        return "`continued` positions only"
    if "too long" in refusal:
        return "no more tokens than its window"
    raise Wrong(f"refused to read: {refusal}")


def _difference(
    engine: Engine, reference: PlainReference, demonstrations: DemonstrationSet, positions: Positions
) -> float:
    """The largest difference of two readings and their scores from the reference; raises Wrong beyond the tolerance."""
    demos = tokenize_demonstrations(engine.tokenizer, demonstrations)
    ids, queries = demos.token_ids, tokenize_queries(engine.tokenizer, demos.template, QUERIES)
    check_fit(engine.limits, engine.tokenizer, demonstrations, 2, positions, "MODEL")
    memories = list(think(engine, demos, Method(2, Gate(_ETA), positions)))
    continued, expected = (reference.think(ids, _ETA, restarted) for restarted in (False, positions == "restarted"))
    if positions == "restarted" and _memory_difference(memories[1], continued[1]) <= _TOLERANCE:
        raise Wrong("restarted positions change nothing")
    differences = []
    for memory, layers in zip(memories, expected, strict=True):
        differences.append(_memory_difference(memory, layers))
        for query, scores in zip(queries, score(engine, memory, queries), strict=True):
            sums = reference.scores_after(layers, query.prefix, query.answers)
            differences.append(_largest(np.subtract(scores.sums, sums)))
            if memory.iteration == 1:
                sums = reference.whole_scores([*ids, *query.prefix], query.answers)
                differences.append(_largest(np.subtract(scores.sums, sums)))
    if not _largest(np.array(differences)) <= _TOLERANCE:  # NaN is wrong too
        listed = ", ".join(f"{difference:.1e}" for difference in differences)
        raise Wrong(f"{type(engine).__name__}, {positions}, L = {len(ids)}: memory and scores differ by {listed}")
    return max(differences)


def _memory_difference(memory: Memory, layers: Sequence[Layer]) -> float:
    """The largest difference of a memory's keys and values, relative to the largest of each tensor."""
    keys, values = zip(*(layer for layer in layers if layer is not None), strict=True)
    tensors = zip((*memory.keys, *memory.values), (*keys, *values), strict=True)
    return max(_largest(actual.numpy() - right) / _largest(right) for actual, right in tensors)


def _largest(values: Array) -> float:
    return float(np.abs(values).max())
