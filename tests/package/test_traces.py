"""What calls the library finds its process as it left it; and without a network nothing is fetched."""

from __future__ import annotations

import gc
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from conftest import Models
from helpers.forks import Forks
from helpers.tiny import tiny_task
from safetensors.torch import load_file

from deepthink_cli.io.hub import quiet_libraries, without_collection

# The libraries change some of this themselves when they are imported, so they are imported first.
CALLS = """
import csv, json, logging, os, signal, sys, warnings
from pathlib import Path
import datasets, huggingface_hub, matplotlib, pandas, pyarrow.parquet, scipy, torch, transformers
from transformers.utils import logging as transformers_logging
transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM, transformers.pipeline

def state():
    return {
        "variables": dict(os.environ),
        "levels": {name: logging.getLogger(name).level for name in names},
        "handlers": {name: list(map(repr, logging.getLogger(name).handlers)) for name in names},
        "verbosity": transformers_logging.get_verbosity(),
        "bars": [transformers_logging.is_progress_bar_enabled(), datasets.is_progress_bar_enabled(),
                 huggingface_hub.utils.are_progress_bars_disabled()],
        "offline": [huggingface_hub.is_offline_mode(), datasets.config.HF_HUB_OFFLINE],
        "cells": csv.field_size_limit(),
        "warnings": list(map(repr, warnings.filters)),
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "torch": [torch.get_num_threads(), torch.is_grad_enabled(), repr(torch.get_default_dtype())],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), repr(sys.excepthook), repr(sys.unraisablehook)],
    }

names = ["", *logging.root.manager.loggerDict]
before = state()
folder, model = map(Path, sys.argv[1:3])
import deepthink_cli as dt
from deepthink_cli.data.rows import read_rows
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source, split_rows

rows = [row.fields for row in read_rows(str(folder / "rows.csv"))]
given = dt.DemonstrationSet.of([dt.Example(row["text"][:20], row["label"]) for row in rows], "{text}: {label}")
for source in ("pocket", str(model)):
    loaded = dt.load_model(source, offline=True)
    *_, memory = dt.think(loaded, dt.tokenize_demonstrations(loaded.tokenizer, given))
    list(dt.predict(loaded, memory, ["warm"]))
open_model(ModelOptions(model=str(model)))
task = find_task(str(folder / "tiny.yaml"))
list(split_rows(task, "test", Source(folder / "data")))
try:
    list(split_rows(task, "test", Source(offline=True)))
except DeepThinkError:
    pass
after = state()
print(json.dumps([key for key in before if before[key] != after[key]]))
"""


def test_calls_leave_no_traces_in_their_process(tmp_path: Path, models: Models, libraries: Forks) -> None:
    tiny_task(tmp_path, hub={"path": "team/data", "revision": "0" * 40})
    (tmp_path / "rows.csv").write_text("text,label\n" + "warm " * 40_000 + ",good\ncold,bad\n")
    done = libraries.program(CALLS, [str(tmp_path), str(models("llama"))])
    assert (json.loads(done.stdout), done.stderr) == ([], "")


# A cached model and a data set that is not cached, used from Python: no variable says that there is no network.
OFFLINE = """
import json, socket, sys
asked = []
def refuse(*arguments, **more):
    asked.append(repr(arguments))
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.gethostbyname = refuse
import datasets, huggingface_hub
from deepthink_cli import load_model
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source, split_rows
ids = [load_model(name, offline=True).identity.id for name in ("team/safe", "team/pickled")]
errors = 0
for source in (lambda: load_model("team/absent", offline=True),
               lambda: list(split_rows(find_task("sst2"), "validation", Source(offline=True)))):
    try:
        source()
    except DeepThinkError:
        errors += 1
print(json.dumps([ids, errors, asked, huggingface_hub.is_offline_mode()]))
"""


def cached(hub: Path, name: str, model: Path, pickled: bool = False) -> None:
    """Put a model where the hub's library keeps what it has downloaded."""
    commit, folder = "0" * 40, hub / f"models--team--{name}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    copy = Path(shutil.copytree(model, folder / "snapshots" / commit))
    if pickled:
        torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
        (copy / "model.safetensors").unlink()


def test_nothing_is_fetched_offline_by_the_library_either(models: Models, libraries: Forks) -> None:
    cached(libraries.hub, "safe", models("llama"))
    cached(libraries.hub, "pickled", models("llama"), pickled=True)
    done = libraries.program(OFFLINE)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [["team/safe", "team/pickled"], 2, [], False]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_cycles_is_as_it_was_after_an_error_too(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with suppress(ValueError), without_collection():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_variable_that_the_caller_has_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_SAFETENSORS_CONVERSION", "0")
    with quiet_libraries():
        assert os.environ["DISABLE_SAFETENSORS_CONVERSION"] == "0"
    assert os.environ["DISABLE_SAFETENSORS_CONVERSION"] == "0"
