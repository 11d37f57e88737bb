"""Rows to tune on, and plans for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conftest import TEMPLATE

from deepthink_cli import Engine, Query, Template
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, plan_tuning

LABELS = ("negative", "positive")
WORDS = ["warm", "dull", "wise", "flat", "tender", "cold", "lively", "stale", "kind"]
ROWS = [(f"a {word} film", LABELS[(place + 1) % 2]) for place, word in enumerate(WORDS)]

MANY = [(f"{kind} {word} film", LABELS[(place + len(kind)) % 2]) for place, word in enumerate(WORDS) for kind in "abcd"]
MORE = [(f"{text} {end}", label) for text, label in MANY for end in ("here", "now")]


def labelled(rows: Sequence[tuple[str, str]] = ROWS, **more: Any) -> LabelledRows:
    queries = [Query(text, LABELS, label, f"rows:{place}") for place, (text, label) in enumerate(rows, start=1)]
    return LabelledRows(PoolRows.of("rows", queries, Template(TEMPLATE), LABELS), **more)


def planned(engine: Engine, rows: LabelledRows | None = None, **options: Any) -> TunePlan:
    defaults = {"iterations": 3, "etas": "0.1,0.5", "folds": "3", "techniques": "deep-thinking", "calibrate": "none"}
    checked = TuneOptions.checked(**{**defaults, **options})
    return plan_tuning(rows or labelled(), ModelOptions.checked(model=engine.identity.id), checked)
