"""Deep-Thinking with several sets of demonstrations at once: each reading of all of them is done in shared passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.errors import ran_out_of_memory
from deepthink_cli.memory import Memory, State
from deepthink_cli.method import Method
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
from deepthink_cli.rereading import reread

Thought = tuple[TokenizedDemonstrations, Method]
Result = TypeVar("Result")
COPIES = 3  # maximum number of float32 copies of a memory: history, present and the state of the update rule


def think_in_batches(
    engine: Engine, thoughts: Sequence[Thought], use: Callable[[Sequence[int], list[Memory]], Iterator[Result]]
) -> Iterator[Result]:
    """Make as many memories together as fit the device's free memory, and yield what `use` yields of every reading.

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
    try:
        for memories in think_in_step(engine, [thoughts[number] for number in numbers]):
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


def think_in_step(engine: Engine, thoughts: Sequence[Thought]) -> Iterator[list[Memory]]:
    """Yield all memories after every reading, up to the smallest T: the same as calling `think` for each.

    Demonstrations that occur several times, with several methods, are read once for T = 1. The caller may clear the
    yielded list, which frees memory for the next reading.
    """
    distinct = list(dict.fromkeys(demonstrations.token_ids for demonstrations, _ in thoughts))
    first = dict(zip(distinct, engine.read(list(map(Reading, distinct))), strict=True))
    histories = [
        replace(first[read.token_ids], provenance=Provenance(engine.identity, read, method))
        for read, method in thoughts
    ]
    del first
    yield list(histories)
    states: list[State] = [()] * len(thoughts)
    for iteration in range(2, min(method.iterations for _, method in thoughts) + 1):
        again = [reread(engine.tokenizer, *thought, iteration) for thought in thoughts]
        texts, starts = [each.token_ids for each in again], [each.start for each in again]
        presents = engine.read(list(map(Reading, texts, histories, starts)))  # Eq. 2 and 3
        for n, (_, method) in enumerate(thoughts):
            present = again[n].in_first_order(presents[n])
            histories[n], states[n] = histories[n].updated(present, method.update, states[n])  # Eq. 4
        yield list(histories)  # Eq. 5
