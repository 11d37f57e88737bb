"""Run every causal language model of transformers, small and random, through both stages, and write docs/models.md.

Each architecture runs in a process of its own (`examination.py`). Prints a line for each, and exits with 1 if one
gives a wrong result or ends with another error than a refusal.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES
from transformers.utils import logging

from examination import Row, examine
from small_models import FORMS

_SECONDS = 180  # after which an architecture is stopped
_DEFECTS = ("wrong", "failed")
_END = "<!-- /architectures -->\n"
_INTRODUCTION = """\
# Models

Which language models are supported, and the small one that comes with the package.

## Supported architectures

The table has every architecture that transformers {transformers} loads as a causal language model, with a verdict:

- **packed**: supported, with many inputs in one pass.
- **padded**: supported, with one sequence per candidate, which is several times slower where candidates have
  several tokens ([passes](concepts.md#passes)).
- **refused**: an error of one line with the reason, and exit code 2.

Of {total} architectures: {counts}.

`deepthink doctor -m MODEL` gives the verdict for a real model, whose configuration may differ. Every model is also
checked when it is loaded, and refused if the scores of a query after a memory and after the same text differ.

`python benchmarks/architectures.py --write docs/models.md` makes this section, here with transformers {transformers}
and torch {torch} on a CPU in float32. It makes a small model of each architecture with random weights. Keys, values
and scores after one and two readings must equal the results of transformers alone.

Words in parentheses after a model type say how the configuration differs from the usual one. *Window* says whether
layers of the small model have an attention window; a trained model may have none.

| model type | class | verdict | window | remarks |
|---|---|---|---|---|
"""


def main(words: Sequence[str] | None = None) -> int:
    """Examine the chosen architectures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types; all if none is given")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page, for which all types must run")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FOLDER", help="keep results here, and skip those that are there"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(words)
    if options.write and options.types:
        parser.error("--write needs all types; omit TYPE")
    if unknown := sorted(set(options.types) - set(CLASSES)):
        parser.error(f"{', '.join(unknown)}: not a causal language model of transformers {transformers.__version__}")
    jobs = [job for job in sorted([*((name, "") for name in CLASSES), *FORMS]) if job[0] in (options.types or CLASSES)]
    with TemporaryDirectory() as temporary:
        rows = run_all(jobs, options.out or Path(temporary), options.processes)
    if options.write:
        before = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
        options.write.write_text(page(rows) + before.partition(_END)[2], encoding="utf-8")
    print(dict(Counter(row.verdict for row in rows)))
    return int(any(row.verdict in _DEFECTS for row in rows))


def run_all(jobs: Sequence[tuple[str, str]], folder: Path, processes: int) -> list[Row]:
    """Examine every (model type, form) in a process of its own, and print its row; returns the rows in order."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {job: folder / f"{'_'.join(filter(None, job))}.json".replace(" ", "_") for job in jobs}
    waiting = [job for job in jobs if not files[job].exists()]
    running: dict[tuple[str, str], tuple[BaseProcess, float]] = {}
    # A fork has transformers and torch imported already, which takes longer than most architectures.
    context = get_context("fork")
    torch.set_num_threads(1)
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop(0)
            process = context.Process(target=_examine_into, args=(*job, files[job]))
            process.start()
            running[job] = process, time.monotonic()
        wait([process.sentinel for process, _ in running.values()], timeout=1)
        for job, (process, start) in list(running.items()):
            if process.is_alive() and time.monotonic() - start < _SECONDS:
                continue
            process.kill()
            process.join()
            del running[job]
            if not files[job].exists():
                _write(Row(*job, "failed", f"its process was stopped or ended with {process.exitcode}"), files[job])
            print(_line(_read(files[job])), flush=True)
    return [_read(files[job]) for job in jobs]


def page(rows: Iterable[Row]) -> str:
    """The page up to the end of the list of architectures; what follows is written by hand."""
    rows = list(rows)
    counts = Counter(row.verdict for row in rows if not row.form)
    verdicts = ("packed", "padded", "refused", *_DEFECTS)
    text = _INTRODUCTION.format(
        transformers=transformers.__version__,
        torch=torch.__version__.partition("+")[0],
        total=sum(counts.values()),
        counts=", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict]),
    )
    return text + "".join(map(_table_row, rows)) + _END


def _table_row(row: Row) -> str:
    form = f" ({row.form})" if row.form else ""
    window = "" if row.verdict == "refused" else "yes" if row.window else "no"
    return f"| `{row.model_type}`{form} | {row.architecture} | {row.verdict} | {window} | {_remarks(row)} |\n"


def _remarks(row: Row) -> str:
    """The reason of a row in short: without the subject of a refusal and without its hint."""
    subject = rf"^(-m MODEL: |({row.model_type} is not a causal language model: )?{row.architecture}( \(.*?\))? )"
    reason = re.sub(subject, "", row.reason)
    if row.verdict == "refused":
        reason = reason.partition(";")[0].partition(": Deep-Thinking")[0]
    return reason.replace("|", "\\|")


def _examine_into(model_type: str, form: str, file: Path) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    _write(examine(model_type, form), file)


def _write(row: Row, file: Path) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(asdict(row)), encoding="utf-8")
    partial.replace(file)


def _read(file: Path) -> Row:
    return Row(**json.loads(file.read_text(encoding="utf-8")))


def _line(row: Row) -> str:
    name = " ".join(filter(None, [row.model_type, row.form and f"({row.form})"]))
    return f"{name}: {row.verdict}" + (f": {row.reason}" if row.reason else f", within {row.difference:.0e}")


if __name__ == "__main__":
    sys.exit(main())
