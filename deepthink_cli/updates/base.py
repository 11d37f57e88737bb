"""The interface of an update rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Place:
    """The tensor that is updated: `layer` counts from 0; the first update has iteration 2."""

    iteration: int
    layer: int
    layers: int
    part: Literal["keys", "values"]


class UpdateRule(Protocol):
    """The step of the memory after each reading but the first (Eq. 4): a frozen dataclass, with parameters as fields.

    The rule is applied to every tensor of the memory, in float32 and without gradients.
    """

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        """Return the tensor's next value, and the `state` of its next update, or None.

        Args:
            history: K~_(t-1) or V~_(t-1) of one layer, (kv_heads, L, head_dim); must not be changed.
            present: K_t or V_t, of the same shape; may be overwritten.
            state: the state that the rule last returned for this tensor, None at the first update; may be overwritten.
            place: the layer, the part and the reading of the tensor.
        """
        ...
