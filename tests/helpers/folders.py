"""A memory, a folder of Parquet files to label with it, and the scores in a file of labels."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet

from deepthink_cli.cli.main import run


def memory_and_folder(folder: Path, files: int = 3) -> tuple[str, Path]:
    """The path of a memory of two demonstrations, and a folder of files of four rows each."""
    inputs, memory = folder / "in", str(folder / "mem.safetensors")
    inputs.mkdir()
    demonstrations = '{"text": "a warm film", "kind": "good"}\n{"text": "a dull film", "kind": "bad"}'
    (folder / "demos.jsonl").write_text(demonstrations)
    for number in range(files):
        rows = pyarrow.table({"text": [f"a kind film {number} {row}" for row in range(4)]})
        pyarrow.parquet.write_table(rows, inputs / f"part-{number}.parquet")
    assert run(["think", str(folder / "demos.jsonl"), "-T", "2", "-q", "-o", memory]) == 0
    return memory, inputs


def scores_in(labels: Path) -> list[float]:
    """The scores of every row and label, in nats."""
    table = pyarrow.parquet.read_table(labels)
    return [score for name in table.column_names if name.startswith("scores.") for score in table[name].to_pylist()]
