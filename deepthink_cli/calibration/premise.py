"""The probability of each label without the input: PMI-DC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats


def log_premise(logs: Floats) -> Floats:
    """log b(y) = log p(y | domain premise), the only row of `logs` (Holtzman et al. 2021, section 3)."""
    (premise,) = logs
    return np.asarray(premise, dtype=np.float64)
