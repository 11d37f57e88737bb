"""The paper's update rule, with the momentum of the official code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from deepthink_cli.updates.base import Place, UpdateRule

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Gate(UpdateRule):
    """A step of eta toward the present: K~_t = K~_(t-1) + eta m_t (Eq. 4).

    m_t = (K_t - K~_(t-1)) + momentum m_(t-1). The paper has no momentum (0); the official code's default is 0.9.
    """

    eta: float = 0.01
    momentum: float = 0.0

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        """K~_t and, with momentum, m_t; computed in the storage of `present` and `state`."""
        step = present.sub_(history)
        if not self.momentum:
            return step.mul_(self.eta).add_(history), None
        if state is None:
            return (step * self.eta).add_(history), step
        step.add_(state.mul_(self.momentum))
        return state.copy_(step).mul_(self.eta).add_(history), step

    def __str__(self) -> str:
        return f"eta {self.eta}, momentum {self.momentum}"

    @property
    def brief(self) -> str:
        """The gate as a short text."""
        return f"eta {self.eta:g}, momentum {self.momentum:g}"


def grid_values(gates: Sequence[Gate]) -> dict[str, list[float]]:
    """The values of eta and momentum in a grid of gates."""
    etas, momentums = ([*dict.fromkeys(values)] for values in zip(*map(astuple, gates), strict=True))
    return {"etas": etas, "momentums": momentums}


def grid_text(gates: Sequence[Gate]) -> str:
    """A grid of gates as text."""
    etas, momentums = (", ".join(map(str, values)) for values in grid_values(gates).values())
    return f"eta {etas}; momentum {momentums}"
