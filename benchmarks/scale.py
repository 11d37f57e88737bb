"""The arithmetic of docs/experiments.md: 70B over MMLU on 64 GPUs, and millions of rows, from stated assumptions.

python benchmarks/scale.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RECORDS = Path(__file__).parent / "records"
GPUS, GPU_BYTES = 64, 80e9
PEAK, SHARE = 989e12, 0.4  # dense bfloat16 FLOP/s of an H100 (data sheet), and the assumed share that is reached
DISK = 10e9  # bytes/s that a shared disk gives to all machines together (assumed)
PRICE = 3.0  # USD for an hour of a GPU (assumed)
# Llama 3 (arXiv:2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on 16,384 GPUs.
HOURS_PER_FAILURE = 16_384 * 54 * 24 / 419


@dataclass(frozen=True)
class Model:
    """A model of the Llama 3 shapes, with weights in bfloat16."""

    name: str
    parameters: float
    layers: int
    kv_heads: int
    head_size: int
    width: int
    gpus: int  # of a worker; its layers lie on them one after another, so one works at a time

    @property
    def weights(self) -> float:
        return 2 * self.parameters

    @property
    def memory_per_token(self) -> int:
        """Bytes of a float32 memory for each demonstration token."""
        return 2 * self.layers * self.kv_heads * self.head_size * 4

    def flops(self, length: int) -> float:
        """Floating-point operations for each token that attends to a memory of `length` tokens."""
        return 2 * self.parameters + 4 * length * self.layers * self.width

    def seconds(self, tokens: float, length: int) -> float:
        """Seconds of all GPUs for some tokens, perfectly divided."""
        return tokens * self.flops(length) / (GPUS / self.gpus * PEAK * SHARE)


BIG = Model("70B", 70.6e9, 80, 8, 128, 8192, 2)


def mmlu(model: Model, length: int = 700, query: int = 120, seeds: int = 10, iterations: int = 5) -> None:
    """57 tasks and 14,042 rows; `length` and `query` are assumed mean tokens of demonstrations and of an input."""
    workers = GPUS // model.gpus
    read, scored = 57 * seeds * iterations * length, 14_042 * seeds * iterations * query
    computing, loading = model.seconds(read + scored, length), workers * model.weights / DISK
    hours = (computing + loading) / 3600
    print(f"{model.name} over MMLU: {workers} workers of {model.gpus} GPUs")
    print(f"  weights {model.weights / 1e9:.0f} GB of {model.gpus * GPU_BYTES / 1e9:.0f} GB a worker")
    memory = length * model.memory_per_token / 1e9
    print(f"  a memory {memory:.2f} GB, three copies {3 * memory:.2f} GB")
    print(f"  tokens read {read / 1e6:.1f} million, scored {scored / 1e6:.1f} million")
    terabytes = workers * model.weights / 1e12
    print(f"  computing {computing / 60:.0f} min, loading {loading / 60:.0f} min ({terabytes:.1f} TB)")
    print(f"  rows returned {57 * seeds * iterations * 1500 / 1e6:.1f} MB; cost {GPUS * hours * PRICE:.0f} USD")
    print(f"  expected failures {GPUS * hours / HOURS_PER_FAILURE:.4f}")
    print(f"  largest task: {1534 / 14_042:.1%} of the inputs; a worker's even share {1 / workers:.1%}")


@dataclass(frozen=True)
class Place:
    """Where rows are labelled: machines that label `rate` rows a second each, by a measured record.

    `weights` are the bytes that each machine reads first, and `price` is USD for an hour of one of them.
    """

    name: str
    record: str
    model: str
    column: str
    price: float
    machines: int = 1
    weights: float = 0.0
    commands: int = 1

    @property
    def together(self) -> float:
        """Rows a second of all machines; a command reads, tokenises and writes for all of its workers."""
        return min(self.machines * self.rate, self.commands * COMMAND)

    @property
    def rate(self) -> float:
        """Rows a second of one machine."""
        table = json.loads((RECORDS / f"{self.record}.json").read_text(encoding="utf-8"))
        row = next(row for row in table["rows"] if row[0] == self.model)
        return float(row[table["columns"].index(self.column)])

    def seconds(self, rows: float) -> float:
        """Loading, all rows, and one chunk more: workers end at most that far apart."""
        loading = max(self.machines * self.weights / DISK, 10.0)
        return loading + rows / self.together + CHUNK / self.rate


H100, CORES = 3.0, 0.1  # USD for an hour of a GPU and of two cores (assumed)
COMMAND = 6_800  # rows a second that one command reads, tokenises and writes (docs/measurements.md)
CHUNK = 256  # rows that a worker labels at a time
UNITS = {"days": 86_400, "h": 3600, "min": 60}
PLACES = (
    Place("the built-in model on two cores", "predicting", "pocket", "inputs/s", CORES),
    Place("SmolLM2-135M on two cores", "predicting", "smollm2-135m-instruct", "inputs/s", CORES),
    Place("SmolLM2-135M on one H100", "gpu-predict", "smollm2-135m-instruct", "inputs/s", H100),
    Place("Llama 2 7B on one H100", "gpu-llama", "llama-2-7b", "deepthink", H100, weights=13.5e9),
    Place("Llama 2 7B on 64 H100s, one command", "gpu-llama", "llama-2-7b", "deepthink", H100, 64, 13.5e9),
    Place("Llama 2 7B on 64 H100s, nine commands", "gpu-llama", "llama-2-7b", "deepthink", H100, 64, 13.5e9, 9),
)


def span(seconds: float) -> str:
    """A duration in its largest fitting unit."""
    name, size = next((name, size) for name, size in UNITS.items() if seconds >= size)
    return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {name}"


def rows(numbers: Sequence[float] = (1e6, 1e7, 1e8)) -> None:
    """Hours and USD of labelling after one memory, and what failures add."""
    print(f"| | rows a second | {' | '.join(f'{number / 1e6:.0f} million' for number in numbers)} |")
    for place in PLACES:
        seconds = [place.seconds(number) for number in numbers]
        prices = [each / 3600 * place.machines * place.price for each in seconds]
        cells = [
            f"{span(time)}, {price:,.{0 if price >= 10 else 1}f} USD"
            for time, price in zip(seconds, prices, strict=True)
        ]
        print(f"| {place.name} | {place.together:,.0f} | {' | '.join(cells)} |")
    last = PLACES[-1]
    spent = last.machines * last.seconds(1e7) / 3600
    again = last.weights / DISK + CHUNK / last.rate
    print(f"{last.name}: 10 million rows are {1e7 / CHUNK:,.0f} chunks of {CHUNK / last.rate:.2f} s")
    print(f"  expected failures {spent / HOURS_PER_FAILURE:.5f}, each repeats one chunk and loads again: {again:.1f} s")


if __name__ == "__main__":
    print(f"one failure in {HOURS_PER_FAILURE:,.0f} GPU hours")
    mmlu(BIG)
    rows()
