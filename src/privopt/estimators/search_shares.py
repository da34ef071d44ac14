"""Which records a search takes, and which of these score: by position, so that it is public."""

from __future__ import annotations

import numpy as np

from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu

SAMPLED, TOLD = 1000.0, 67.0
"""Records that score: so many that neither their choice nor noise of 1 / mu moves a mean score by
more than about .015."""
LEAST_SHARE, MOST_SHARE = 0.1, 0.4
"""Of the records, that a search takes."""


def _every(n: int, share: float) -> np.ndarray:
    """Which of n records are taken if a share of them is, as evenly as can be."""
    return np.floor((np.arange(n) + 1) * share) > np.floor(np.arange(n) * share)


def searched(n: int, budget: Budget, refit: bool, share: float | None) -> np.ndarray:
    """Records of the search: all of them, or so many that others are left for another fit."""
    if share is not None and not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}.")
    if not refit:
        return np.ones(n, dtype=bool)
    if n < 3:
        raise ValueError(
            f"PrivateSearchCV needs records to fit, to score and to refit, got n_samples={n}."
        )
    if share is None:
        mu = budget.epsilon if budget.pure else gaussian_mu(budget.epsilon, budget.delta)
        share = min(max(2 * max(SAMPLED, TOLD / mu) / n, LEAST_SHARE), MOST_SHARE)
    found = _every(n, share)
    return found if 2 <= found.sum() < n else np.arange(n) >= max(1, n // 3)


def held_out(n: int, refit: bool, holdout: float | None) -> np.ndarray:
    """Those of n records of a search that score."""
    share = (0.5 if refit else 0.2) if holdout is None else holdout
    if not 0 < share < 1:
        raise ValueError(f"holdout must lie between 0 and 1, got {share!r}.")
    if n < 2:
        raise ValueError("PrivateSearchCV needs records to fit and to score, got n_samples=1.")
    held = _every(n, share)
    if not held.any() or held.all():
        held = np.arange(n) == n - 1
    return held
