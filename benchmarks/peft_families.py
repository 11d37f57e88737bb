"""Score every architecture through an exported prefix adapter in PEFT, and compare with our own scores.

    python benchmarks/peft_families.py [TYPE ...] [--processes N]

Each architecture is small and random, and runs in a process of its own, as in architectures.py. Memories of one and of
three readings, shorter and longer than an attention window, are exported and scored through `PeftModel`. Prints a line
for each architecture that `deepthink` supports, and exits with 1 if one is exported and differs, or fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES
from transformers.utils import logging

from deepthink_cli import (
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
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.exports.peft import write_peft
from small_models import FORMS, QUERIES, random_network, reviews, small_config, tokenizer_of_reviews

TOLERANCE = 1e-4  # of scores in nats, in float32
_COUNTS = (2, 12)  # demonstrations: within an attention window, and beyond it


def main(words: Sequence[str] | None = None) -> int:
    """Compare the chosen architectures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types; all if none is given")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(words)
    jobs = [job for job in sorted([*((name, "") for name in CLASSES), *FORMS]) if job[0] in (options.types or CLASSES)]
    torch.set_num_threads(1)
    verdicts: Counter[str] = Counter()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("fork")) as pool:
        for (model_type, form), line in zip(jobs, pool.map(compared, *zip(*jobs, strict=True)), strict=True):
            verdicts[line.partition(":")[0]] += 1
            print(f"{model_type}{form and f' ({form})'}: {line}", flush=True)
    print(dict(verdicts))
    return int(bool(verdicts["differs"] + verdicts["failed"]))


def compared(model_type: str, form: str) -> str:
    """What became of one architecture, in one line that starts with its verdict."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        try:
            engine = small_engine(Path(folder), model_type, form)
        except Exception as error:
            return f"unsupported: {' '.join(str(error).split())}"[:120]
        try:
            differences = [difference(engine, Path(folder), *case) for case in product(_counts(engine), (1, 3))]
        except InputError as refusal:
            return f"refused: {str(refusal).replace(folder, 'MODEL')}"
        except Exception as error:
            return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"[:300]
    verdict = "equal" if max(differences) <= TOLERANCE else "differs"
    return f"{verdict}: within {max(differences):.0e}"


def small_engine(folder: Path, model_type: str, form: str = "") -> Engine:
    """A small random model of an architecture, saved and loaded; raises InputError if it is not supported."""
    tokenizer = tokenizer_of_reviews()
    config = small_config(model_type, len(tokenizer), **FORMS.get((model_type, form), {}))
    config.architectures = [CLASSES[model_type]]
    random_network(config).save_pretrained(folder)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_model(str(folder))


def _counts(engine: Engine) -> list[int]:
    """Numbers of demonstrations that fit the model together with a query: few, and more than a window holds."""
    most = engine.limits.max_tokens() or sys.maxsize
    return [count for count in _COUNTS if 30 * count < most]


def difference(engine: Engine, folder: Path, count: int, iterations: int) -> float:
    """The largest difference of a candidate's log-probability through PEFT from ours."""
    demonstrations = tokenize_demonstrations(engine.tokenizer, reviews(count))
    *_, memory = think(engine, demonstrations, Method(iterations, Gate(0.5)))
    queries = tokenize_queries(engine.tokenizer, demonstrations.template, QUERIES)
    ours = score(engine, memory, queries)
    theirs = peft_scores(folder, memory, queries)
    pairs = zip((each.sums for each in ours), theirs, strict=True)
    return max(abs(a - b) for mine, other in pairs for a, b in zip(mine, other, strict=True))


def peft_scores(folder: Path, memory: Memory, queries: Sequence[TokenizedQuery]) -> list[list[float]]:
    """The log-probability of each candidate by the exported adapter on the model in `folder`."""
    from peft import PeftModel

    write_peft(memory, folder / "adapter")
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = PeftModel.from_pretrained(network, str(folder / "adapter")).eval()
    return [[candidate_score(model, query.prefix, answer) for answer in query.answers] for query in queries]


@torch.inference_mode()
def candidate_score(model: Any, prefix: Sequence[int], answer: Sequence[int]) -> float:
    """The sum of the log-probabilities of an answer's tokens after the adapter and a prefix, in nats."""
    ids_1S = torch.tensor([[*prefix, *answer]])
    logits_SV = model(input_ids=ids_1S, attention_mask=torch.ones_like(ids_1S)).logits[0].float()
    log_probabilities_AV = logits_SV[len(prefix) - 1 : -1].log_softmax(-1)
    return float(log_probabilities_AV[range(len(answer)), list(answer)].sum())


if __name__ == "__main__":
    sys.exit(main())
