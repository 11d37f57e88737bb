"""The mean probability of each label: contextual, domain-context and batch calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats


def log_mean(logs: Floats) -> Floats:
    """log b(y), b(y) = 1/m sum_i p(y | x_i), for log-probabilities (m, C).

    Contextual calibration (Zhao et al. 2021, section 5: W = diag(p_cf)^-1, b = 0) with content-free inputs x_i,
    domain-context calibration (Fei et al. 2023, equation 4) with random words of the domain, and batch calibration
    (Zhou et al. 2023, equations 3 and 4) with the inputs themselves.
    """
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)), dtype=np.float64)
