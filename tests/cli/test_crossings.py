"""Random crossings of options and kinds of file: each is done, or refused in lines that say which option to omit."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli.artifact import opening
from deepthink_cli.cli.main import run

IN_THE_SUITE, IN_SOAK = 16, 300
TEXTS = ["good film", "a bad film", "fine", "awful", "a joy", "far too long", "warm", "dull"]
SCORING = ["--score mean", "--score end", "--reread 2", "--nearest 2", "--truncate end"]
SHARED = [
    *SCORING,
    *(
        "--calibrate batch",
        "--calibrate contextual",
        "--calibrate none",
        "--calibrate stored",
        "--calibrate pmi,domain",
    ),
    *("--ensemble {other}", "--ensemble {composed}", "--at 1", "--at all", "--on-error skip", "--allow-errors 1"),
    *("--format csv", "--map text=review", "--no-header", "--no-quotes", "--alpha 2", "--json", "--task sst2"),
]
OPTIONS = {
    "predict": [
        *SHARED,
        *(
            "--top 2",
            "--threshold 0.6",
            "--columns none",
            "--columns text",
            "--output-format tsv",
            "--flush",
            "--dry-run",
            "--resume",
        ),
        *("-o {out}.jsonl", "-o {out}.csv", "-o {out}.parquet", "--show-prompt"),
    ],
    "eval": [
        *SHARED,
        *("--fail-under 0.1", "--fail-under log_probability=-9", "--fail-under micro_f1=0.1", "--limit 3"),
        *("-o {out}.jsonl", "-o {out}.csv", "--protocol official", "--labels positive,negative"),
    ],
}
MEMORIES = ("plain", "composed", "corrected", "several")
ROWS = ("rows.jsonl", "rows.csv", "own.jsonl", "mixed.jsonl", "several.jsonl", "few.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of each kind, and files of rows of each kind."""
    made = tmp_path_factory.mktemp("crossings")
    labels = ["positive", "negative"] * 4
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)]
    several = [{"text": text, "labels": [label, "long"]} for text, label in zip(TEXTS, labels, strict=True)]
    demos = write_rows(made / "demos.jsonl", [{**row, "text": f"seen {n}"} for n, row in enumerate(rows[:4])])
    many = write_rows(made / "many.jsonl", [{**row, "text": f"seen {n}"} for n, row in enumerate(several[:4])])
    write_rows(made / "rows.jsonl", rows * 3)
    write_rows(made / "few.jsonl", rows[:2])
    write_rows(made / "own.jsonl", [{**row, "candidates": ["positive", "negative", "neither"]} for row in rows])
    write_rows(made / "mixed.jsonl", [*rows * 3, {"review": "no text"}])
    write_rows(made / "several.jsonl", several)
    lines = [f"{row['text']},{row['label']}" for row in rows * 3]
    (made / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    think = f"think {{}} -m pocket -T 2 --keep all -q -o {made}/"
    for line in (
        f"{think.format(demos)}plain.safetensors",
        f"{think.format(demos)}other.safetensors --eta 0.3",
        f"{think.format(demos)}composed.safetensors --technique composed",
        f"{think.format(demos)}corrected.safetensors --calibrate contextual",
        f"{think.format(many)}several.safetensors --label-separator ;",
    ):
        assert run(line.split()) == 0
    return made


def drawn(command: str, draw: random.Random) -> Iterator[list[str]]:
    """Command lines of a command, without end: a kind of memory, a kind of rows, and one to five options."""
    while True:
        chosen = {option.split()[0]: option for option in draw.sample(OPTIONS[command], draw.randint(1, 5))}
        yield [f"{{folder}}/{draw.choice(MEMORIES)}.safetensors", f"{{folder}}/{draw.choice(ROWS)}", *chosen.values()]


@pytest.mark.plugins
@pytest.mark.parametrize("command", ["predict", "eval"])
def test_a_crossing_is_done_or_refused_before_a_model_is_loaded_with_a_remedy_that_helps(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, request: object
) -> None:
    loads, load = list[int](), opening.load
    monkeypatch.setattr(opening, "load", lambda *given: loads.append(1) or load(*given))
    soak = request.config.getoption("--soak")  # type: ignore[attr-defined]
    draw = random.Random(command + str(request.config.getoption("--seed")))  # type: ignore[attr-defined]
    lines = drawn(command, draw)
    names = {"folder": folder, "out": tmp_path / "out", "other": folder / "other.safetensors"}
    names |= {"composed": folder / "composed.safetensors"}
    for _ in range(IN_SOAK if soak else IN_THE_SUITE):
        words = [option.format(**names) for option in next(lines)]
        for _ in range(len(words) + 1):
            loads.clear()
            for file in tmp_path.iterdir():
                file.unlink()
            code = run([command, *" ".join(words).split(), "-q"])
            told = capsys.readouterr()
            said = (words, code, told.err)
            assert code in (0, 1, 2), said
            if code != 2 or "no row can be evaluated; the first" in told.err:  # all were skipped one by one
                break
            assert (loads, told.out, list(tmp_path.iterdir())) == ([], "", []), said
            mistakes = [line for line in told.err.splitlines() if line.startswith("deepthink: ")]
            assert mistakes, said
            found = re.match(r"deepthink: (--[a-z-]+|-o)", mistakes[0])
            if found is None:  # a file that does not fit the memory, which no option mends
                break
            omitted = [word for word in words if word.split()[0] == found[1]]
            assert omitted, said
            words.remove(omitted[0])
