"""The memories of a run of the harness: one for each distinct context, a few at a time, and on disk if asked."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.method import Method

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory

Ids = tuple[int, ...]


@dataclass
class Memories:
    """Memories by the tokens of their contexts; the least recently used of more than `most` are dropped.

    With a folder `keep`, every memory is stored there by the digest of all that it depends on, and later runs load it.
    `readings` counts the contexts that were read, `loaded` the contexts that came from the folder.
    """

    engine: Engine
    method: Method
    most: int = 2
    keep: Path | None = None
    readings: int = 0
    loaded: int = 0
    _held: OrderedDict[Ids, Memory] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Make the folder; raises InputError if it cannot be made."""
        if self.keep is not None:
            try:
                self.keep.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = f"cannot be made ({error.strerror})"
                raise InputError(f"--model_args keep={self.keep}: {reason}; name another folder") from error

    def get(self, ids: Ids, text: str) -> Memory:
        """The memory of a context with these tokens, ready for scoring; `text` is the context, to be stored with it.

        Raises as `think`, `load_memory` and `save_memory` do.
        """
        if ids not in self._held:
            while len(self._held) >= self.most:  # before the next one is made, which needs the space
                self._held.popitem(last=False)
            self._held[ids] = self.engine.place(self._from_disk(ids) or self._think(ids, text))
        self._held.move_to_end(ids)
        return self._held[ids]

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
        from deepthink_cli.artifact.files import save_memory
        from deepthink_cli.data.examples import Example
        from deepthink_cli.data.template import Template
        from deepthink_cli.provenance import TokenizedDemonstrations
        from deepthink_cli.thinking import think

        whole = TokenizedDemonstrations((Example(text, ""),), Template("{context}{query}", ""), (), ids)
        *_, memory = think(self.engine, whole, self.method)
        self.readings += 1
        if self.keep is not None:
            save_memory(memory, self._path(self.keep, ids))
        return memory

    def _from_disk(self, ids: Ids) -> Memory | None:
        """The stored memory of a context; None without a file, or for a damaged file, which is then replaced."""
        from deepthink_cli.artifact.files import load_memory

        if self.keep is None or not (path := self._path(self.keep, ids)).is_file():
            return None
        try:
            memory = load_memory(path)
        except DeepThinkError:
            return None
        self.loaded += 1
        return memory

    def _path(self, folder: Path, ids: Ids) -> Path:
        from deepthink_cli.artifact.metadata import rule_as_json
        from deepthink_cli.io.text import canonical_json

        identity, method = self.engine.identity, self.method
        described = {
            "tokens": list(ids),
            "iterations": method.iterations,
            "positions": method.positions,
            "update": rule_as_json(method.update),
            "model": identity.contents_sha256,
            "weights": identity.weights_sha256,
            "dtype": identity.dtype,
        }
        return folder / f"{hashlib.sha256(canonical_json(described).encode()).hexdigest()[:32]}.safetensors"
