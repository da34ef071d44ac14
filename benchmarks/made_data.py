"""Made-up data for benchmarks: a logistic model on rows inside the unit ball."""

from __future__ import annotations

import numpy as np


def logistic_data(
    n: int, p: int, *, norm: float = 3.0, seed: int = 0, sphere: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows X, labels y in {-1, +1} and the true coefficients, of l2 norm ``norm``.

    Rows are uniform in direction. On the sphere every row has norm 1; otherwise their norms are
    spread evenly over (1/2, 1).
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    length = np.sqrt(np.einsum("ij,ij->i", X, X))
    X *= ((1.0 if sphere else rng.uniform(0.5, 1.0, n)) / length)[:, None]
    theta = rng.standard_normal(p)
    theta *= norm / np.linalg.norm(theta)
    y = np.where(rng.random(n) < 0.5 * (1 + np.tanh(0.5 * (X @ theta))), 1.0, -1.0)
    return X, y, theta
