"""The arithmetic of docs/experiments.md: a 70B model over MMLU on 64 GPUs, and a billion rows, from stated assumptions.

python benchmarks/scale.py
"""

from __future__ import annotations

from dataclasses import dataclass

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
SMALL = Model("8B", 8.03e9, 32, 8, 128, 4096, 1)


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


def rows(model: Model, number: float = 1e9, files: int = 10_000, length: int = 700, query: int = 60) -> None:
    """Labelling with one memory; `query` is the assumed mean number of tokens of an input with its candidates."""
    workers = GPUS // model.gpus
    seconds = model.seconds(number * query, length)
    part = workers * seconds / files
    hours = GPUS * seconds / 3600
    failures = hours / HOURS_PER_FAILURE
    print(f"{model.name}, {number:.0e} rows in {files:,} files: {seconds / 3600:.1f} h, {hours:,.0f} GPU hours")
    print(f"  cost {hours * PRICE:,.0f} USD; read {number * 250 / 1e9:.0f} GB, written {number * 100 / 1e9:.0f} GB")
    memory = length * model.memory_per_token
    print(f"  memory {memory / 1e6:.0f} MB a worker, {workers * memory / 1e9:.0f} GB in all")
    lost = model.gpus * part / 3600
    print(f"  a file {part / 60:.0f} min; expected failures {failures:.2f}, each loses at most {lost:.2f} GPU hours")


if __name__ == "__main__":
    print(f"one failure in {HOURS_PER_FAILURE:,.0f} GPU hours")
    mmlu(BIG)
    rows(SMALL)
    rows(BIG)
