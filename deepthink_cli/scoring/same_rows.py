"""Whether the rows that are scored are those that were checked: a file is read twice, and may change in between."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.scoring.pipeline import CHUNK

Rows = Iterable[Query | Skipped]


class RowsDigest:
    """The count and the digest of rows, and 8 bytes of the digest after every `CHUNK` of them."""

    def __init__(self) -> None:
        self.count = 0
        self._digest, self._parts = hashlib.sha256(), array("Q")

    def add(self, row: Query | Skipped) -> None:
        """Add the next row."""
        self._digest.update(repr(row).encode(errors="surrogatepass"))
        self.count += 1
        if self.count % CHUNK == 0:
            self._parts.append(int.from_bytes(self._digest.digest()[:8], "big"))

    @property
    def sha256(self) -> str:
        """The digest of all rows so far."""
        return self._digest.hexdigest()

    def same(self, rows: Rows, name: str) -> Iterator[Query | Skipped]:
        """The rows of another read, as they come.

        Raises DeepThinkError unless they are the same rows, before the last row of the first `CHUNK` that differs: no
        such chunk is ever complete. `name` is that of their file.
        """
        again = RowsDigest()
        try:
            for row in rows:
                again.add(row)
                if not self._begins_with(again):
                    break
                yield row
            if again.count == self.count and again.sha256 == self.sha256:
                return
        except InputError as error:  # rows that are no longer there, or cannot be read any more
            raise _changed(name) from error
        raise _changed(name)

    def _begins_with(self, rows: RowsDigest) -> bool:
        """Whether rows are the first of these, as far as the parts tell, or all of them."""
        if rows.count >= self.count:
            return rows.count == self.count and rows.sha256 == self.sha256
        part, rest = divmod(rows.count, CHUNK)
        return rest > 0 or rows._parts[part - 1] == self._parts[part - 1]


def _changed(name: str) -> DeepThinkError:
    return DeepThinkError(f"{name}: has changed since its rows were checked; run the command again on a file at rest")
