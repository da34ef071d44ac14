"""The formulas, written a second time with other tools, and small data sets."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.stats import norm


def gdp_mu(epsilon: float, delta: float) -> float:
    """The mu at which Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) equals delta."""

    def gap(mu: float) -> float:
        tail = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return norm.cdf(mu / 2 - epsilon / mu) - tail - delta

    return float(brentq(gap, 1e-4, 1e3, xtol=1e-14, rtol=1e-13))


def sphere(n: int, p: int, seed: int = 0):
    """Rows uniform on the unit sphere, labels from a logistic model with ||theta|| = 3."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.standard_normal(p)
    theta *= 3 / np.linalg.norm(theta)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)


def skewed(n: int, seed: int = 0):
    """Two features of very different size, so that the optimum is far from the origin and a
    projection of it onto a small set is not the optimum on that set."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [1.0, 0.15]
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ [6.0, 20.0])), 1.0, -1.0)


def best_on(domain, risk, slope, p: int, steps: int = 2000) -> float:
    """Smallest risk on the domain, by accelerated projected gradient steps; no noise, no solver."""
    if not domain.bounded:
        return float(minimize(risk, np.zeros(p), jac=slope, method="BFGS", tol=1e-10).fun)
    theta = ahead = domain.centre(p)
    momentum = 1.0
    for _ in range(steps):
        new = domain.project(ahead - slope(ahead))  # smoothness of a mean of these losses is <= 1
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - theta)
        theta, momentum = new, following
    return float(risk(theta))
