"""A table of figures: printed row by row, and with `--record FILE` kept as JSON beside what was run, where and when."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

Value = str | int | float | None
RECORDS = Path(__file__).parent / "records"  # what is published


def parser(documentation: str | None) -> ArgumentParser:
    """A parser with `--record`, for a script with this documentation."""
    made = ArgumentParser(description=documentation, formatter_class=RawDescriptionHelpFormatter)
    made.add_argument("--record", type=Path, metavar="FILE", help="keep the table as JSON, as in benchmarks/records/")
    return made


class Table:
    """A table whose rows are printed, and written to the file of `--record`, as soon as they are measured.

    Each of `ratios` is "one / other", two of the columns: a column that is computed when the table is shown. A script
    with several tables names the `part` that each is; the name of its file ends with it.
    """

    def __init__(
        self,
        args: Namespace,
        title: str,
        columns: Sequence[str],
        ratios: Sequence[str] = (),
        note: str = "",
        part: str = "",
    ) -> None:
        self.path: Path | None = args.record
        if part and self.path is not None:
            self.path = self.path.with_stem(f"{self.path.stem}-{part}")
        self.content: dict[str, Any] = {
            "title": title,
            "note": note,
            "command": _command(args.record),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit_of(RECORDS),
            "machine": _machine(),
            "columns": [*columns],
            "ratios": [*ratios],
            "rows": [],
        }

    def add(self, *row: Value) -> None:
        """Show a row and keep it, figures to four digits; None is one that was not measured."""
        is_first = not self.content["rows"]
        self.content["rows"].append([float(f"{value:.4g}") if isinstance(value, float) else value for value in row])
        lines = list(markdown(self.content))
        print("\n".join(["", *lines] if is_first else lines[-1:]), flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(as_json(self.content), encoding="utf-8")
            temporary.replace(self.path)


def markdown(content: dict[str, Any]) -> Iterator[str]:
    """The lines of a record's table, with a column for each of its ratios; figures have three digits."""
    columns, ratios = content["columns"], content.get("ratios", [])
    places = [[columns.index(name) for name in ratio.split(" / ")] for ratio in ratios]
    rows = [[*row, *(_ratio(row[above], row[below]) for above, below in places)] for row in content["rows"]]
    texts = [any(isinstance(value, str) for value in values) for values in zip(*rows, strict=True)]
    yield f"| {' | '.join([*columns, *ratios])} |"
    yield f"|{'|'.join('---' if is_text else '--:' for is_text in texts)}|"
    for row in rows:
        yield f"| {' | '.join(map(_shown, row))} |"


def as_json(content: dict[str, Any]) -> str:
    """A record with a line for each of its entries, and for each row of its table."""
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in content["rows"])
    entries = [
        f" {json.dumps(name)}: " + (f"[\n{rows}\n ]" if name == "rows" else json.dumps(value, ensure_ascii=False))
        for name, value in content.items()
        if value
    ]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def _shown(value: Value) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _command(record: Path | None) -> str:
    """This script's command without `--record`; of paths from the root only the last part is kept."""
    given = [word for word in sys.argv[1:] if word not in ("--record", str(record), f"--record={record}")]
    words = [Path(word).name if Path(word).is_absolute() else word for word in given]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def commit_of(records: Path) -> str:
    """The commit of the checkout around this folder of records; nothing where there is none.

    It is marked where other tracked files of the checkout differ from it.
    """
    commit = _git(records.parent, "rev-parse", "--short=8", "HEAD")
    if commit.returncode:
        return ""
    changes = _git(records.parent, "diff", "--quiet", "HEAD", "--", ":/", f":(exclude){records.name}")
    return commit.stdout.strip() + ("-dirty" if changes.returncode else "")


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)


def _machine() -> dict[str, str | int]:
    """The processor or GPU, and the versions of what computes."""
    torch = sys.modules.get("torch")
    found: dict[str, str | int] = {"processor": processor(), "cores": os.cpu_count() or 1}
    if torch is not None:
        found["threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            found["GPU"] = torch.cuda.get_device_name()
    found["GiB"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return found | {"Python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers")}


def processor() -> str:
    """The processor's name where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
