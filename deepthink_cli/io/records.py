"""Types of the fields of records that are read from files: every number has a bound, every digest its form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

LARGEST = 2**63 - 1
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Natural = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(ge=-1e100, le=1e100)]  # products and sums of these are finite
Value = bool | Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Finite | str | None  # of an option
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
