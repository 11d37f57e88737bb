"""Write the tables of docs/reproduce.md from the plans of the paper's studies; with --check, say if they are stale.

The tables are between <!-- studies --> and <!-- /studies -->, and <!-- models --> and <!-- /models -->. They are
computed by arithmetic alone, so that every machine writes the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pages import ROOT, write_or_check

from deepthink_cli.experiments.crossing import cross_study
from deepthink_cli.experiments.planning import SPEED, ModelPlan, compute_plan, known_size
from deepthink_cli.experiments.study import OpenedStudy, open_study, packaged
from deepthink_cli.model.options import ModelOptions

PAGE = ROOT / "docs" / "reproduce.md"
TABLES = re.compile(r"(<!-- (studies|models) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
NOWHERE = Path("runs/that-do-not-exist")
SPEEDS = (100.0, 10.0)  # TFLOP/s that are assumed in 16 bits and in float32
ORDER = ("table1", "table2", "table3", "mmlu-categories", "shots", "seeds-and-orders", "eta", "official-recipe")


def main() -> None:
    """Write or check the tables."""
    write_or_check({PAGE: page(PAGE.read_text(encoding="utf-8"))})


def page(text: str) -> str:
    """The page with the studies as they are now."""
    opened = {f"paper/{name}": _stored(open_study(f"paper/{name}")) for name in ORDER}
    missing = {name for name in packaged() if name.startswith("paper/")} - opened.keys()
    assert not missing, f"add to ORDER: {missing}"
    plans = {name: list(compute_plan(cross_study(study), NOWHERE)) for name, study in opened.items()}
    tables = {"studies": _studies(opened, plans), "models": _models(plans)}
    return TABLES.sub(lambda match: match[1] + "".join(f"{line}\n" for line in tables[match[2]]) + match[3], text)


def _stored(opened: OpenedStudy) -> OpenedStudy:
    """The study with every model in the dtype of its files, unless the study names one."""
    models = tuple(map(_as_stored, opened.study.models))
    return replace(opened, study=opened.study.model_copy(update={"models": models}))


def _as_stored(options: ModelOptions) -> ModelOptions:
    size = known_size(options)
    assert size is not None, f"{options.model}: add it to models.yaml"
    is_half = size.file_bytes < 3 * size.parameters
    dtype = options.dtype if options.dtype != "auto" else "bfloat16" if is_half else "float32"
    return options.model_copy(update={"dtype": dtype})


def _studies(opened: dict[str, OpenedStudy], plans: dict[str, list[ModelPlan]]) -> Iterator[str]:
    yield "| study | what it repeats | models | rows of results for a model | inputs scored for a model |"
    yield "|---|---|--:|--:|--:|"
    for name, study in opened.items():
        first = plans[name][0]
        title = study.study.title.removesuffix(".")
        yield f"| `{name}` | {title} | {len(plans[name])} | {first.rows:,} | {first.inputs:,} |"


def _models(plans: dict[str, list[ModelPlan]]) -> Iterator[str]:
    yield "| `deepthink study run ...` | weights | memory | A100 hours, at least |"
    yield "|---|--:|--:|--:|"
    for name, of_study in plans.items():
        for plan in of_study:
            assert plan.file_bytes is not None
            assert plan.memory_bytes is not None
            assert plan.seconds is not None
            model, _, options = plan.model.partition(" with ")
            speed = SPEEDS["dtype float32" in options]
            weights, memory = f"{plan.file_bytes / 1e9:.1f} GB", f"{plan.memory_bytes / 1e9:.1f} GB"
            hours = _hours(plan.seconds * SPEED / speed / 3600)
            yield f"| `{name} -m {model}` | {weights} | {memory} | {hours} |"


def _hours(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 0.1 else "under 0.1"


if __name__ == "__main__":
    main()
