"""Many memories together: as many as fit the device, and fewer if it runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import ran_out_of_memory

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.thinking import Thought


Result = TypeVar("Result")
COPIES = 3  # maximum number of float32 copies of a memory: history, present and the state of the update rule


def think_in_batches(
    engine: Engine, thoughts: Sequence[Thought], use: Callable[[Sequence[int], list[Memory]], Iterator[Result]]
) -> Iterator[Result]:
    """Make as many memories together as fit the device's free memory, and yield the results of `use` for every reading.

    `use` gets the indices of a batch of thoughts and their memories after a reading. If a batch runs out of memory,
    each half of it starts again: `use` may see a reading twice.
    """
    longest = max(len(demonstrations.token_ids) for demonstrations, _ in thoughts)
    most = max(1, engine.tokens_held(COPIES) // longest)
    for start in range(0, len(thoughts), most):
        yield from _batch(engine, thoughts, range(start, min(start + most, len(thoughts))), use)


def _batch(
    engine: Engine,
    thoughts: Sequence[Thought],
    numbers: Sequence[int],
    use: Callable[[Sequence[int], list[Memory]], Iterator[Result]],
) -> Iterator[Result]:
    from deepthink_cli.thinking import think_together

    try:
        for memories in think_together(engine, [thoughts[number] for number in numbers]):
            yield from use(numbers, memories)
            memories.clear()  # frees memory for the next reading
        return
    except Exception as error:
        if len(numbers) == 1 or not ran_out_of_memory(error):
            raise
    # Not inside the handler, which keeps the tensors of the failed pass alive.
    memories = []
    half = len(numbers) // 2
    yield from _batch(engine, thoughts, numbers[:half], use)
    yield from _batch(engine, thoughts, numbers[half:], use)
