"""What it costs to verify a memory file, which every load does.

    python benchmarks/verifying.py

Writes memories of Pythia-160M's shape with random numbers into a temporary folder and reads them as `predict` does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deepthink_cli.artifact.files import memories_of, save_memory
from deepthink_cli.artifact.format import read_artifact, read_header
from deepthink_cli.data.template import Template
from deepthink_cli.method import Method
from deepthink_cli.provenance import Drift, Provenance, TokenizedDemonstrations
from record import Table, parser
from shapes import build_engine, memory_ids, random_memory

LENGTH = 1536


def write_memory(folder: Path, iterations: int) -> Path:
    """A file with that many iterations."""
    engine = build_engine("pythia-160m")
    ids = tuple(memory_ids(engine.model.network.config.vocab_size, LENGTH))
    given = TokenizedDemonstrations((), Template("{text} {label}"), (), token_ids=ids)
    provenance = Provenance(engine.identity, given, Method(iterations))
    drift = Drift((0.5,) * 12, (0.5,) * 12)
    kept = [
        replace(random_memory(engine, LENGTH), iteration=t, drift=(drift,) * (t - 1), provenance=provenance)
        for t in range(1, iterations + 1)
    ]
    save_memory(kept, folder / "mem.safetensors")
    return folder / "mem.safetensors"


def best(function: Callable[[], object], rounds: int) -> float:
    """The shortest of several runs, in seconds; the file is then in the cache of the system."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--iterations", type=int, nargs="+", default=[1, 10])
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    columns, ratios = ("iterations kept", "GiB", "verify", "load the last"), ("verify / GiB", "load the last / GiB")
    note = "Seconds for reading and hashing, and for all of loading, with a check for NaN and infinity."
    table = Table(args, "Verifying a memory file", columns, ratios, note)
    for iterations in args.iterations:
        with tempfile.TemporaryDirectory() as folder:
            path = write_memory(Path(folder), iterations)
            header = read_header(path)
            verify = best(lambda header=header: read_artifact(header), args.rounds)
            load = best(
                lambda path=path, last=iterations: memories_of(read_artifact(read_header(path), [last])), args.rounds
            )
        table.add(iterations, header.size / 2**30, verify, load)


if __name__ == "__main__":
    main()
