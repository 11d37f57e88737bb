"""Update rules: their interface, and the paper's gate with the momentum of the official code."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

from deepthink_cli.io.records import Share

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


@dataclass(frozen=True)
class Gate(UpdateRule):
    """A step of eta toward the present: K~_t = K~_(t-1) + eta m_t (Eq. 4).

    m_t = (K_t - K~_(t-1)) + momentum m_(t-1). The paper has no momentum (0); the official code's default is 0.9.
    A subclass whose gate is not the same for every tensor and reading overrides `eta_at`.
    """

    source = "Yang et al. 2023, arXiv 2305.13016, Eq. 4"

    eta: Share = 0.01
    momentum: Share = 0.0

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        """K~_t and, with momentum, m_t; computed in the storage of `present` and `state`."""
        step, eta = present.sub_(history), self.eta_at(place)
        if not self.momentum:
            return step.mul_(eta).add_(history), None
        if state is None:
            return (step * eta).add_(history), step
        step.add_(state.mul_(self.momentum))
        return state.copy_(step).mul_(eta).add_(history), step

    def eta_at(self, place: Place) -> float:
        """The gate of one tensor in one reading; in the paper eta itself."""
        return self.eta

    def __str__(self) -> str:
        values = [f"{field.name} {getattr(self, field.name)}" for field in fields(self)]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(self).__name__).lower()  # as in the registry
        return ", ".join(values if type(self) is Gate else [name, *values])


def gate_values(rule: UpdateRule) -> dict[str, Any]:
    """Eta and momentum of a rule by name; 0 for a rule without them."""
    return {field.name: float(getattr(rule, field.name, 0.0)) for field in fields(Gate)}
