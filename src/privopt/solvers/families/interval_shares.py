"""What a fit with intervals spends on each of its releases: all of it public."""

from __future__ import annotations

import math

import numpy as np

from privopt.facts import Facts
from privopt.losses import Logistic
from privopt.mechanisms.objective_perturbation import Noise
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu

# Shares of mu^2 (Gaussian noise) or of epsilon (pure): row norms, moments, labels.
SHARES: dict[Noise, tuple[float, float, float]] = {
    "gaussian": (0.01, 0.08, 0.03),
    "pure": (0.04, 0.12, 0.08),
}
# Of the curvature: of a pure epsilon; of mu^2 at least, at least with a declared norm, and at most.
PURE_SHARE, LOG_ODDS_PURE_SHARE = 0.4, 0.5
LEAST, DECLARED_SHARE = 0.1, 0.15
LARGEST, LOG_ODDS_LARGEST = 0.4, 0.5


def curvature_share(facts: Facts, budget: Budget, noise: Noise) -> float:
    """Of the curvature: as much as makes its noise matter little at a correlation of .8."""
    log_odds = isinstance(facts.problem.loss, Logistic)
    if noise == "pure":
        return LOG_ODDS_PURE_SHARE if log_odds else PURE_SHARE
    q, mu = facts.p, gaussian_mu(budget.epsilon, budget.delta) / facts.relation_factor
    least, more = (0.04, 4) if log_odds else (0.07, 0)
    # The Hessian's noise relative to its least eigenvalue.
    relative = (q + more) * math.sqrt(2.5 * q) / (least * facts.n * mu)
    low = DECLARED_SHARE if facts.problem.column_bounds is None else LEAST
    return float(np.clip(relative**2, low, LOG_ODDS_LARGEST if log_odds else LARGEST))
