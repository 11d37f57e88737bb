"""Run every causal language model of transformers, small and random, and write docs/models.md.

Each architecture is opened, loaded, read twice and scored, as `deepthink think` and `predict` do, in a process of its
own. Its memories and scores are compared with those of `plain_reference.py`. Exits with 1 if one of them is wrong or
ends with another error than a refusal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES
from transformers.utils import logging

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.errors import InputError
from deepthink_cli.model.families import window_sizes
from deepthink_cli.model.limits import check_demonstrations
from deepthink_cli.model.opening import open_model
from deepthink_cli.options import ModelOptions
from plain_reference import PlainReference
from small_models import WINDOW, build_tokenizer, random_network, small_config

TEMPLATE = "Review: {text}\nKind: {kind}"
REVIEWS = [("a warm film", "good"), ("a dull mess", "bad"), ("tender and wise", "good"), ("far too long", "bad")]
QUERIES = [Query("a quiet joy", ("good", "bad", "good and bad")), Query("so so", ("bad", "badly made"))]
LENGTHS = (2, 12)  # demonstrations: two readings and a query within a window, and one reading beyond it
POSITIONS = ("continued", "restarted")
ETA = 0.5
TOLERANCE = 1e-3  # of scores in nats; of keys and values, relative to the largest


@dataclass(frozen=True)
class Row:
    """What became of one architecture: `packed`, `padded`, `refused`, or `wrong` and `failed`, which are defects."""

    model_type: str
    form: str
    kind: str
    verdict: str
    reason: str = ""
    window: bool = False
    difference: float = 0.0


class Wrong(Exception):
    """A memory or a score differs from the reference."""


def examine(model_type: str, form: str = "") -> Row:
    """Build, load, read and score one architecture."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _examined(model_type, form, Path(folder))
        except InputError as refusal:
            verdict, reason = "refused", str(refusal).replace(str(Path(folder).resolve()), "MODEL")
        except Wrong as wrong:
            verdict, reason = "wrong", str(wrong)
        except Exception as error:
            verdict = "failed"
            reason = f"{type(error).__name__}: {error}; {traceback.format_tb(error.__traceback__)[-1]}"
        return Row(model_type, form, CLASSES[model_type], verdict, " ".join(reason.split()))


def _examined(model_type: str, form: str, folder: Path) -> Row:
    tokenizer = build_tokenizer([_demonstrations(4).template.demonstrations(REVIEWS)] * 3)
    config = small_config(model_type, len(tokenizer), **FORMS.get(form, {}))
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    spec = open_model(ModelOptions.checked(model=str(folder)))
    random_network(config).save_pretrained(folder)
    config.save_pretrained(folder)  # a network of the text part alone saves that part's configuration
    engine = load_model(spec)
    reference = PlainReference(AutoModelForCausalLM.from_pretrained(folder).eval())
    engines = [engine] if engine.name == "padded" else [engine, load_model(str(folder), engine="padded")]
    notes, differences = {}, [0.0]
    for count in LENGTHS:
        for positions in POSITIONS:
            for each in engines:
                try:
                    differences.append(_checked(each, reference, count, positions, spec.memory_bytes))
                except InputError as refusal:
                    notes.setdefault(f"{positions} {count}", str(refusal))
    return Row(
        model_type, form, CLASSES[model_type], engine.name, str(notes) if notes else engine.reason, bool(window_sizes(config.get_text_config(decoder=True))), max(differences)
    )


def _demonstrations(count: int) -> DemonstrationSet:
    return DemonstrationSet.of([Example(*REVIEWS[number % len(REVIEWS)]) for number in range(count)], TEMPLATE)


def _checked(engine: Engine, reference: PlainReference, count: int, positions: str, spec_bytes) -> float:
    """The largest difference of two readings and their scores from the reference; raises Wrong beyond TOLERANCE."""
    demos = tokenize_demonstrations(engine.tokenizer, _demonstrations(count))
    check_demonstrations(engine.limits, [len(demos.token_ids)], 2, positions, "MODEL")
    width = spec_bytes(len(demos.token_ids))
    memories = list(think(engine, demos, Method(2, Gate(ETA), positions)))
    expected = reference.think(demos.token_ids, ETA, positions == "restarted")
    largest = 0.0
    if memories[0].nbytes != width:
        raise Wrong(f"{memories[0].nbytes} bytes of memory, {width} announced")
    queries = tokenize_queries(engine.tokenizer, demos.template, QUERIES)
    for iteration, (memory, layers) in enumerate(zip(memories, expected, strict=True), start=1):
        where = f"{engine.name}, {positions}, L = {memory.length}, iteration {iteration}"
        difference = _memory_difference(memory, layers)
        if not difference < TOLERANCE:
            raise Wrong(f"{where}: memory differs by {difference:.2g}")
        largest = max(largest, difference)
        for query, scores in zip(queries, score(engine, memory, queries), strict=True):
            right = (
                reference.whole_scores([*demos.token_ids, *query.prefix], query.answers)
                if iteration == 1
                else reference.scores_after(layers, query.prefix, query.answers)
            )
            difference = float(np.abs(np.subtract(scores.sums, right)).max())
            if not difference < TOLERANCE:
                raise Wrong(f"{where}: scores differ by {difference:.2g}: {scores.sums} {right}")
            largest = max(largest, difference)
    return largest


def _memory_difference(memory: Memory, layers) -> float:
    pairs = [pair for pair in layers if pair is not None]
    if len(pairs) != len(memory.keys):
        raise Wrong(f"{len(memory.keys)} layers of memory, {len(pairs)} expected")
    tensors = zip((*memory.keys, *memory.values), (*(k for k, _ in pairs), *(v for _, v in pairs)), strict=True)
    return max(float(np.abs(actual.numpy() - right).max() / np.abs(right).max()) for actual, right in tensors)

FORMS = {}

def main():
    logging.set_verbosity_error(); logging.disable_progress_bar(); warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import time
    out = Path(sys.argv[1]); out.mkdir(exist_ok=True)
    todo = sys.argv[2:] or list(CLASSES)
    running = {}
    ctx = multiprocessing.get_context("fork")
    def child(t):
        import contextlib
        with open(out / f"{t}.log", "w") as log:
            os.dup2(log.fileno(), 1); os.dup2(log.fileno(), 2)
            t0 = time.time()
            r = examine(t)
            (out / f"{t}.json").write_text(json.dumps(asdict(r) | {"s": time.time() - t0}))
    todo = [t for t in todo]
    while todo or running:
        while todo and len(running) < 2:
            t = todo.pop(0); p = ctx.Process(target=child, args=(t,)); p.start(); running[t] = (p, time.time())
        wait([p.sentinel for p, _ in running.values()], timeout=1)
        for t, (p, t0) in list(running.items()):
            if not p.is_alive():
                del running[t]
                f = out / f"{t}.json"
                print(f.read_text() if f.exists() else f"{t} EXIT {p.exitcode}", flush=True)
            elif time.time() - t0 > 90:
                p.kill(); print(t, "TIMEOUT"); 

if __name__ == "__main__":
    main()
