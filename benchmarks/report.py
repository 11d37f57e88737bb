"""The results as Markdown tables and a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import style
from cells import DEEPTHINK, HARNESS, NO_MEMORY, OFFICIAL, PADDED, PRODUCTS
from peak import peak_table

Cell = dict[str, Any]
CURVE_TOKENS = 2  # candidate tokens of the figure
LINES = {
    HARNESS: ("lm-evaluation-harness", style.HARNESS, "s"),
    OFFICIAL: ("official way", style.OFFICIAL, "^"),
    PADDED: ("deepthink, one sequence a row", style.PADDED, "X"),
    NO_MEMORY: ("same tokens, no memory", style.NO_MEMORY, "v"),
    PRODUCTS: ("matrix products alone", style.PRODUCTS, "D"),
    DEEPTHINK: ("deepthink", style.DEEPTHINK, "o"),
}
COLUMNS: dict[str, Callable[[Cell], str]] = {
    "shape": lambda cell: Path(cell["shape"]).name,
    "L": lambda cell: f"{cell['length']:,}",
    "c": lambda cell: str(cell["candidate_tokens"]),
    "harness s (batch)": lambda cell: _with_batch(cell, HARNESS),
    "official s (batch)": lambda cell: _with_batch(cell, OFFICIAL),
    "padded s": lambda cell: _seconds(cell, PADDED),
    "engine": lambda cell: "packed" if cell["packed"] else "padded",
    "deepthink s": lambda cell: _seconds(cell, DEEPTHINK),
    "no memory s": lambda cell: _seconds(cell, NO_MEMORY),
    "products alone s": lambda cell: _seconds(cell, PRODUCTS),
    "harness / deepthink": lambda cell: _ratio(cell, HARNESS, DEEPTHINK),
    "official / deepthink": lambda cell: _ratio(cell, OFFICIAL, DEEPTHINK),
    "deepthink / no memory": lambda cell: _ratio(cell, DEEPTHINK, NO_MEMORY),
    "products share": lambda cell: _ratio(cell, PRODUCTS, DEEPTHINK),
    "max difference": lambda cell: f"{max(cell['difference'].values()):.1e}" if cell["difference"] else "-",
    "same argmax": lambda cell: _yes(cell["same_argmax"]),
    "reading s": lambda cell: f"{cell['reading_seconds']:.3f}",
}


def markdown(content: dict[str, Any]) -> str:
    """All tables, each with what its columns mean."""
    parts = ["# Scoring speed", _machine(content["machine"])]
    if content["cells"]:
        parts += [_caption(content["cells"]), _table(_sorted(content["cells"]))]
    if content["trec"]:
        parts += ["## TREC", _trec_caption(content["trec"]), _table(_sorted(content["trec"]))]
    if content["agnews"]:
        parts += ["## AG News", _agnews_caption(content["agnews"]), _table(_sorted(content["agnews"]))]
    if content["peak"]:
        parts += [
            "## Peak memory",
            "MiB in a fresh process each, counted after the model is loaded, so that the peak does not include "
            "loading.",
            peak_table(content["peak"]),
        ]
    return "\n\n".join(parts) + "\n"


def draw(cells: list[Cell], path: Path) -> None:
    """Seconds against L, one panel per shape, one line per system, for candidates of two tokens where there are any."""
    style.write(path, _figure, cells)


def _figure(cells: list[Cell]) -> Figure:
    tokens = {cell["candidate_tokens"] for cell in cells}
    chosen = CURVE_TOKENS if CURVE_TOKENS in tokens else min(tokens)
    shown = [cell for cell in _sorted(cells) if cell["candidate_tokens"] == chosen]
    shapes = list(dict.fromkeys(cell["shape"] for cell in shown))
    figure = style.canvas(0.9 + 1.3 * len(shapes))
    for place, shape in enumerate(shapes):
        first = figure.axes[0] if place else None
        axes = figure.add_subplot(len(shapes), 1, place + 1, sharex=first, sharey=first)
        for system, (label, colour, marker) in LINES.items():
            found = [cell for cell in shown if cell["shape"] == shape and system in cell["seconds"]]
            lengths, seconds = [cell["length"] for cell in found], [cell["seconds"][system] for cell in found]
            axes.plot(lengths, seconds, label=label if found else None, color=colour, marker=marker, markersize=3.4)
        axes.set_title(Path(shape).name, pad=3)
        axes.set_yscale("log")
    axes.set_xticks(sorted({cell["length"] for cell in shown}))
    axes.set_xlabel("demonstration tokens L")
    figure.supylabel(f"seconds for {shown[0]['inputs']} inputs, 4 candidates of {chosen} tokens", fontsize=7)
    style.legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def _table(cells: list[Cell]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(column(cell) for column in COLUMNS.values()) + " |" for cell in cells]
    return "\n".join(lines)


def _machine(machine: dict[str, Any]) -> str:
    versions = f"torch {machine['torch']}, transformers {machine['transformers']}"
    return f"{machine['processor']}, {machine['cores']} cores; {versions}."


def _caption(cells: list[Cell]) -> str:
    inputs, dtypes, given = _each(cells, "inputs"), _each(cells, "dtype"), _each(cells, "harness_inputs")
    scaled = (
        f"The harness scores the first {given} of the inputs and its time is scaled to all of them. " if given else ""
    )
    return (
        f"Seconds to score {inputs} inputs ({dtypes}, {_each(cells, 'threads')} threads): queries of 16 to 48 tokens "
        "with 4 "
        f"candidates of c tokens each, after a memory of L tokens; random ids and random weights{_exceptions(cells)}. "
        "The best of "
        f"{_runs(cells, DEEPTHINK)} rounds (official and padded {_runs(cells, OFFICIAL)}, harness "
        f"{_runs(cells, HARNESS)}), the systems "
        "in turns; the first round of the official way and of the harness tries every batch size, later ones the "
        "fastest. "
        f"{scaled}Building the model and reading the demonstrations are not counted; reading stands in the last "
        "column. "
        "Padded: deepthink with one sequence a row, each with its own copy of the memory; the engine is the one that "
        "deepthink chose. Products alone: the matrix products of the tokens that deepthink runs, and nothing else. "
        "Max difference: "
        "of a candidate's score, in nats, from the harness, the official way and padded; same argmax: on every input "
        "that both scored."
    )


def _exceptions(cells: list[Cell]) -> str:
    """The shapes with their own weights, and their text."""
    real = [cell for cell in cells if cell.get("text")]
    names = " and ".join(dict.fromkeys(Path(cell["shape"]).name for cell in real))
    return f"; {names} with its own weights on text of questions ({_each(real, 'text')})" if real else ""


def _trec_caption(cells: list[Cell]) -> str:
    return (
        f"{_each(cells, 'inputs')} questions ({_each(cells, 'text')}) with all six labels of the task TREC, of up to "
        "c tokens, after "
        f"{_each(cells, 'shots')} solved ones; the models' own weights and tokenizers. The best of "
        f"{_runs(cells, DEEPTHINK)} rounds "
        f"(official and padded {_runs(cells, OFFICIAL)}, harness {_runs(cells, HARNESS)}), the systems in turns. The "
        "harness scores "
        f"{_each(cells, 'harness_inputs') or 'none'} of the questions, with the batch size that is fastest for a few "
        "of them."
    )


def _agnews_caption(cells: list[Cell]) -> str:
    one = cells[0]
    return (
        f"The first {_each(cells, 'inputs')} of {one['rows']:,} test inputs with the task's template and labels; the "
        "shape gpt2 has random weights. "
        f"The official way pads every row to the longest of all {one['rows']:,}, which is {_each(cells, 'width')} "
        "tokens with its label; each batch size ran once."
    )


def _each(cells: list[Cell], key: str) -> str:
    return " or ".join(dict.fromkeys(str(cell[key]) for cell in cells if cell[key]))


def _runs(cells: list[Cell], system: str) -> str:
    """How many rounds a system had; the other batch sizes of its first round are not rounds."""
    sizes = {DEEPTHINK: "all", OFFICIAL: "official", HARNESS: "harness"}
    return " or ".join(dict.fromkeys(str(cell["rounds_asked"][sizes[system]]) for cell in cells))


def _sorted(cells: list[Cell]) -> list[Cell]:
    order = list(dict.fromkeys(cell["shape"] for cell in cells))
    return sorted(cells, key=lambda cell: (order.index(cell["shape"]), cell["length"], cell["candidate_tokens"]))


def _seconds(cell: Cell, system: str) -> str:
    if system not in cell["seconds"]:
        return "-"
    seconds = cell["seconds"][system]
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _with_batch(cell: Cell, system: str) -> str:
    return f"{_seconds(cell, system)} ({cell['batch'][system]})" if system in cell["batch"] else "-"


def _ratio(cell: Cell, above: str, below: str) -> str:
    seconds = cell["seconds"]
    return f"{seconds[above] / seconds[below]:.2f}" if above in seconds and below in seconds else "-"


def _yes(same: dict[str, bool]) -> str:
    if not same:
        return "-"
    return "yes" if all(same.values()) else "no"
