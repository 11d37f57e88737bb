"""Models and memories that are kept in one process, so that many fits load a model once and repeat no reading."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import RLock

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import describe_engine, find_model, load
from deepthink_cli.events import Tell, silent
from deepthink_cli.memory import Memory
from deepthink_cli.method import Method, Positions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.thinking import think
from deepthink_cli.updates.rules import UpdateRule

MODELS = 2
LIMIT = 2**30  # bytes

_Key = tuple[ModelOptions, str, UpdateRule, Positions]


class ThinkingCache:
    """The last models, and the memories after every reading of the last demonstrations, on the CPU.

    At most `models` models are kept, and `limit` bytes of memories, but always the memories of one set of
    demonstrations. The least recently used are removed first. Threads wait for each other.
    """

    def __init__(self, models: int = MODELS, limit: int = LIMIT) -> None:
        self.models, self.limit = models, limit
        self._engines: OrderedDict[ModelOptions, Engine] = OrderedDict()
        self._readings: OrderedDict[_Key, _Readings] = OrderedDict()
        self._lock = RLock()

    def engine(self, options: ModelOptions, tell: Tell = silent) -> Engine:
        """The model of these options, loaded when it is first needed; raises as `load_model` does."""
        with self._lock:
            if options not in self._engines:
                while len(self._engines) >= self.models:  # before the next one is loaded, which may need the space
                    self._remove(next(iter(self._engines)))
                engine = load(find_model(options, tell), tell)
                describe_engine(engine, tell)
                self._engines[options] = engine
            self._engines.move_to_end(options)
            return self._engines[options]

    def memories(
        self, options: ModelOptions, demonstrations: TokenizedDemonstrations, method: Method, tell: Tell = silent
    ) -> list[Memory]:
        """The memories after each of T readings, as `think` yields them; earlier readings are not repeated."""
        with self._lock:
            engine = self.engine(options, tell)
            key = (options, demonstrations.sha256, method.update, method.positions)
            endless = replace(method, iterations=sys.maxsize)
            # Removed until the readings have succeeded: a generator that raised an error yields nothing more.
            readings = self._readings.pop(key, None) or _Readings(think(engine, demonstrations, endless))
            memories = readings.first(method.iterations)
            self._readings[key] = readings
            self._shrink()
        return [memory.recorded(method=method) for memory in memories]

    def clear(self) -> None:
        """Remove all models and memories."""
        with self._lock:
            self._engines.clear()
            self._readings.clear()

    def _remove(self, options: ModelOptions) -> None:
        del self._engines[options]
        for key in [key for key in self._readings if key[0] == options]:
            del self._readings[key]

    def _shrink(self) -> None:
        while len(self._readings) > 1 and sum(each.nbytes for each in self._readings.values()) > self.limit:
            self._readings.popitem(last=False)


@dataclass
class _Readings:
    """The memories after the readings so far, and the generator of the following ones."""

    following: Iterator[Memory]
    memories: list[Memory] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self.memories)

    def first(self, count: int) -> list[Memory]:
        """The first `count` memories."""
        import torch

        for memory in islice(self.following, max(0, count - len(self.memories))):
            self.memories.append(memory.to([torch.device("cpu")] * len(memory.keys)))
        return self.memories[:count]
