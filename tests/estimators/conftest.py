"""Small data sets with two and three classes that a line separates well."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def two():
    """300 rows in the unit ball, three features, labels "no" and "yes"."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    X *= rng.uniform(0.2, 0.9, (300, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ [2.0, -1.0, 0.5] > 0, "yes", "no")


@pytest.fixture(scope="session")
def three():
    """2000 points around the corners of a triangle on the unit circle."""
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=2000)
    angle = 2 * np.pi * y / 3 + rng.normal(0, 0.3, 2000)
    return np.column_stack([np.cos(angle), np.sin(angle)]), np.array(["a", "b", "c"])[y]
