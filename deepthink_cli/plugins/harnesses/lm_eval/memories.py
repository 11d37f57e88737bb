"""The memory of the context that a run of the harness reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.method import Method

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory

Ids = tuple[int, ...]


@dataclass
class Memories:
    """Memories of contexts, of which the last is held; `readings` counts the contexts that were read."""

    engine: Engine
    method: Method
    readings: int = 0
    _last: tuple[Ids, Memory] | None = None

    def get(self, ids: Ids, text: str) -> Memory:
        """The memory of a context with these tokens, ready for scoring; `text` is the context. Raises as `think`."""
        if self._last is None or self._last[0] != ids:
            self._last = None  # before the next one is made, which needs the space
            self._last = ids, self.engine.place(self._think(ids, text))
        return self._last[1]

    def check(self, tokens: int, where: str) -> None:
        """Raise InputError, naming the request, unless T readings of a context of so many tokens fit the model."""
        limits, positions, iterations = self.engine.limits, self.method.positions, self.method.iterations
        if positions == "restarted" and limits.relative:
            raise InputError(
                f"positions=restarted: {self.engine.identity.id} has no positions to restart: they follow from the "
                "number of earlier tokens; use positions=continued"
            )
        if limits.holds(tokens, positions, iterations):
            return
        readings = "2L tokens from the second reading on" if iterations > 1 else "L tokens"
        raise InputError(
            f"{where}: its context is too long: L = {tokens} tokens, {self.engine.identity.id} holds "
            f"{limits.largest(positions, iterations)} ({readings}); use a smaller --num_fewshot, "
            "positions=restarted or iterations=1"
        )

    def _think(self, ids: Ids, text: str) -> Memory:
        from deepthink_cli.data.examples import Example
        from deepthink_cli.data.template import Template
        from deepthink_cli.provenance import TokenizedDemonstrations
        from deepthink_cli.thinking import think

        whole = TokenizedDemonstrations((Example(text, ""),), Template("{context}{query}", ""), (), token_ids=ids)
        *_, memory = think(self.engine, whole, self.method)
        self.readings += 1
        return memory
