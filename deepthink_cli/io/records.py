"""Records that are read from files: types of their fields, and messages for the values that pydantic refuses."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import ConfigDict, Field

# Every number has a bound, every digest its form.
LARGEST = 2**63 - 1
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Natural = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(ge=-1e100, le=1e100)]  # products and sums of these are finite
Value = bool | Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Finite | str | None  # of an option
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

_REASONS = {
    "missing": "is missing; add it",
    "string_type": "must be a string; put it in quotation marks",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "does not have the form {pattern}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "literal_error": "is not {expected}",
    "list_type": "must be a list, as in [first, second]",
    "tuple_type": "must be a list, as in [first, second]",
    "dict_type": "must be a mapping, as in {{name: value}}",
    "model_attributes_type": "must be a mapping, as in {{name: value}}",
    "model_type": "must be a mapping, as in {{name: value}}",
    "dataclass_type": "must be a mapping, as in {{name: value}}",
    "too_short": "must not be empty; name at least one",
    "extra_forbidden": "no such field",
    "unexpected_keyword_argument": "no such field",
    "json_invalid": "not JSON ({error})",
    "json_type": "must be JSON text",
}
_PREFIXES = re.compile(r"(^|: )(Value|Assertion) error, ")


def reason(error: Any) -> str:
    """The reason why a value is refused, without its place, from an item of `ValidationError.errors()`."""
    text = _REASONS.get(error["type"])
    return plain(error["msg"]) if text is None else text.format(**error.get("ctx", {}))


def plain(text: str) -> str:
    """A message on one line, without the prefix that pydantic adds to the message of a validator."""
    return _PREFIXES.sub(r"\1", " ".join(text.split()))


def place(error: Any) -> str:
    """The path of the refused value, as in `setting.eta`; empty for the whole document."""
    return ".".join(map(str, error["loc"]))
