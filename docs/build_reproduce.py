"""Write the tables of docs/reproduce.md from the plans of the paper's studies; with --check, say if they are stale.

The tables are between <!-- studies --> and <!-- /studies -->, and <!-- models --> and <!-- /models -->. They are
computed by arithmetic alone, so that every machine writes the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pages import ROOT, write_or_check

from deepthink_cli.experiments.experiment import Experiment, run_tasks
from deepthink_cli.io.documents import read_document
from deepthink_cli.make_memory import COPIES
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.study.crossing import cross_study, shown
from deepthink_cli.plugins.study.study import OpenedStudy, open_study, packaged
from deepthink_cli.tasks.files import example_query
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import protocol_name

PAGE = ROOT / "docs" / "reproduce.md"
TABLES = re.compile(r"(<!-- (studies|models) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
KNOWN = read_document(Path(__file__).parent / "models.yaml").values
SPEEDS = {2: 100e12, 4: 10e12}  # operations a second that are assumed in 16 bits and in float32
CHARACTERS = 4  # of English text in a token, about
OPERATIONS = 2  # for each parameter and token: a multiplication and an addition
ORDER = ("table1", "table2", "table3", "mmlu-categories", "shots", "seeds-and-orders", "eta", "official-recipe")


def main() -> None:
    """Write or check the tables."""
    write_or_check({PAGE: page(PAGE.read_text(encoding="utf-8"))})


def page(text: str) -> str:
    """The page with the studies as they are now."""
    opened = {f"paper/{name}": open_study(f"paper/{name}") for name in ORDER}
    missing = {name for name in packaged() if name.startswith("paper/")} - opened.keys()
    assert not missing, f"add to ORDER: {missing}"
    runs = {name: _by_model(study) for name, study in opened.items()}
    tables = {"studies": _studies(opened, runs), "models": _models(runs)}
    return TABLES.sub(lambda match: match[1] + "".join(f"{line}\n" for line in tables[match[2]]) + match[3], text)


def _by_model(opened: OpenedStudy) -> dict[str, list[Experiment]]:
    """The runs of each model of a study."""
    runs: dict[str, list[Experiment]] = {}
    for run in cross_study(opened).runs:
        runs.setdefault(shown(run.models[0]), []).append(run)
    return runs


def _studies(opened: dict[str, OpenedStudy], runs: dict[str, dict[str, list[Experiment]]]) -> Iterator[str]:
    yield "| study | what it repeats | models | rows of results for a model | inputs scored for a model |"
    yield "|---|---|--:|--:|--:|"
    for name, study in opened.items():
        rows, inputs, _ = amount_of(next(iter(runs[name].values())))
        title = study.study.title.removesuffix(".")
        yield f"| `{name}` | {title} | {len(runs[name])} | {rows:,} | {inputs:,} |"


def _models(runs: dict[str, dict[str, list[Experiment]]]) -> Iterator[str]:
    yield "| `deepthink study run ...` | weights | memory | A100 hours, at least |"
    yield "|---|--:|--:|--:|"
    for name, of_study in runs.items():
        for model, of_model in of_study.items():
            options = of_model[0].models[0]
            known = _known(options)
            numbers = 4 if options.dtype == "float32" else 2 if options.dtype != "auto" else known["stored"]
            memory = known["parameters"] * numbers + COPIES * max(map(_longest, of_model)) * 4 * known["width"]
            _, _, tokens = amount_of(of_model)
            hours = OPERATIONS * known["parameters"] * tokens / SPEEDS[numbers] / 3600
            weights = known["parameters"] * known["stored"]
            sizes = f"{weights / 1e9:.1f} GB | {memory / 1e9:.1f} GB"
            yield f"| `{name} -m {model.partition(' with ')[0]}` | {sizes} | {_hours(hours)} |"


def _known(options: ModelOptions) -> dict[str, float]:
    assert options.model in KNOWN, f"{options.model}: add it to models.yaml"
    return dict(KNOWN[options.model])


def _longest(run: Experiment) -> float:
    """The tokens of the longest demonstrations of a run."""
    return max((run.shots[0] or task.shots) * lengths_of(task)[0] for task in run_tasks(run.tasks))


def amount_of(runs: Iterable[Experiment]) -> tuple[int, int, float]:
    """Rows, inputs to score and tokens to read by the definitions of tasks, for which an example stands."""
    rows, inputs, tokens = zip(*(_of_task(run, task) for run in runs for task in run_tasks(run.tasks)), strict=True)
    return sum(rows), sum(inputs), sum(tokens)


def _of_task(options: Experiment, task: Task) -> tuple[int, int, float]:
    demonstration, scored = lengths_of(task)
    protocol = task.protocols[protocol_name(task, options.protocols[0])]
    known = protocol.sample or protocol.rows
    assert known is not None, f"{task.name}: say in the task how many rows it has"
    rows, inputs, read = 0, 0, 0.0
    for technique in options.chosen_techniques:
        passes = (1 + (options.scored[-1] - 1) * len(options.rules)) * technique.members
        rows += options.rows_of_job(technique)
        inputs += options.scorings(min(known, options.limit or known), technique.members, options.points(technique))
        read += passes * (options.shots[0] or task.shots) * demonstration
    jobs = len(options.seeds) * max(1, len(options.demos_by))
    return jobs * rows, jobs * inputs, jobs * (read + inputs * scored)


def lengths_of(task: Task) -> tuple[float, float]:
    """About the tokens of one demonstration and of one scored input with all candidates, by the task's example."""
    query = example_query(task, task.name)
    demonstration = task.prompt.demonstrations([(query.text, query.gold or query.candidates[0])])
    scored = len(task.prompt.query(query.text)) + sum(map(len, query.candidates))
    return len(demonstration) / CHARACTERS, scored / CHARACTERS


def _hours(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 0.1 else "under 0.1"


if __name__ == "__main__":
    main()
