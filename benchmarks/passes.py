"""How many readings and rows a command gives to the network, and how many it would have to give.

    python benchmarks/passes.py tune examples/tickets/labelled.csv -T 3 -o tickets.safetensors
    python benchmarks/passes.py run --task classic --limit 30 -o runs/classic

Runs a command and counts the readings and the scored rows, and how many of these differ. Readings with the same tokens,
history and positions are the same, and so are rows with the same tokens after the same memory.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Reading, ScoringPlan
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.memory import Memory

Counted = Counter[tuple[Any, ...]]


def digest(memory: Memory | None) -> str | None:
    """A digest of a memory's last layer, which depends on all layers before it."""
    if memory is None:
        return None
    last = (memory.keys[-1], memory.values[-1])
    return hashlib.sha256(b"".join(tensor.float().cpu().numpy().tobytes() for tensor in last)).hexdigest()


def count_calls() -> tuple[Counted, Counted]:
    """The readings and the rows of all engines from now on."""
    readings, rows = Counted(), Counted()
    read, score, observe = BatchedEngine.read, BatchedEngine.score, BatchedEngine.observe

    def noted(memories: Sequence[Memory | None], plan: ScoringPlan) -> None:
        rows.update((digest(memory), query.prefix, query.answers) for memory in memories for query in plan.queries)

    def counted_read(engine: BatchedEngine, given: Sequence[Reading]) -> list[Memory]:
        readings.update((reading.token_ids, digest(reading.history), reading.start) for reading in given)
        return read(engine, given)

    def counted_score(engine: BatchedEngine, memories: Sequence[Memory], plan: ScoringPlan) -> Any:
        noted(memories, plan)
        return score(engine, memories, plan)

    def counted_observe(
        engine: BatchedEngine, memory: Memory | None, plan: ScoringPlan, *how: Any, **named: Any
    ) -> Any:
        noted([memory], plan)
        return observe(engine, memory, plan, *how, **named)

    kind: Any = BatchedEngine
    kind.read, kind.score, kind.observe = counted_read, counted_score, counted_observe
    return readings, rows


def main() -> None:
    """Run the command line and report."""
    readings, rows = count_calls()
    code = run(sys.argv[1:])
    print("| | done | needed | done / needed |\n|---|--:|--:|--:|", file=sys.stderr)
    for name, counted in (("readings", readings), ("rows", rows)):
        ratio = counted.total() / max(1, len(counted))
        print(f"| {name} | {counted.total():,} | {len(counted):,} | {ratio:.2f} |", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
