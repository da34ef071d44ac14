"""Data sets on which no private algorithm can be good: the lower bounds, as generators.

All rows have norm at most 1 and the domain is the unit ball. The loss -<theta, d> is written as a
smoothed hinge whose margins never leave its straight part; adding 1/2 ||theta||^2 per record makes
it 1/2 ||theta - d||^2 up to a constant.

* Code words (pure): M copies of a sign vector v/sqrt(p) from a code with distance at least 1, and
  cancelling pairs. With M < (p/8 - 1) ln 2 / epsilon every epsilon-DP algorithm (replace_one) has
  for some v an excess of at least M/8 with probability 1/2.
* Fingerprints (approximate): n0 = sqrt(p) / (6 (e^epsilon - 1)) rows of random signs with random
  means P, and cancelling pairs. Every (epsilon, delta)-DP algorithm with delta far below 1/n has an
  excess of at least p / (432 (e^epsilon - 1)^2 n) on the quadratic loss. The statistic
  <answer, x_i - P> traces members.
* Two points (Huberization): |theta - d| on [0, 1] with (1/2 + a) n points at 1 and the rest at 0.

References: Bassily, Smith and Thakurta (2014), section V; Bun, Ullman and Vadhan (2014); Dwork et
al. (2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from privopt import Problem
from privopt.geometry import L2Ball
from privopt.losses import SmoothedHinge

SCALE = 0.5
"""Rows are shrunk by this, so that margins in the unit ball stay on the hinge's straight part."""
LINEAR = Problem(SmoothedHinge(1 - SCALE), L2Ball(1.0), data_norm=SCALE)
QUADRATIC = Problem(SmoothedHinge(1 - SCALE), L2Ball(1.0), data_norm=SCALE, l2=SCALE)


@dataclass(frozen=True)
class Instance:
    """Rows (times SCALE) with labels +1, what the answer should be, and what is unavoidable.

    ``floor`` is a lower bound on the expected excess of the sum, in units of the Lipschitz
    constant, for the worst instance of the family.
    """

    X: np.ndarray
    total: np.ndarray
    floor: float

    @property
    def y(self) -> np.ndarray:
        return np.ones(len(self.X))

    def linear_excess(self, theta: np.ndarray) -> float:
        """Excess of the sum of -<theta, d> over the unit ball."""
        return float(np.linalg.norm(self.total) - theta @ self.total)

    def quadratic_excess(self, theta: np.ndarray) -> float:
        """Excess of the sum of 1/2 ||theta - d||^2."""
        n = len(self.X)
        return float(n / 2 * np.sum((theta - self.total / n) ** 2))


# ---------------------------------------------------------------- code words
def code_words(p: int, count: int, seed: int = 0) -> np.ndarray:
    """Sign vectors over sqrt(p) with pairwise distance at least 1, found by drawing at random.

    Two of 2^(p/8) random words are closer than p/4 places with vanishing probability.
    """
    if count > 2 ** (p / 8):
        raise ValueError(f"a code in {p} dimensions is promised only 2^(p/8) words.")
    rng = np.random.default_rng(seed)
    words: list[np.ndarray] = []
    while len(words) < count:
        word = rng.choice([-1.0, 1.0], p) / math.sqrt(p)
        if all(np.linalg.norm(word - other) >= 1 for other in words):
            words.append(word)
    return np.array(words)


def code_instance(p: int, epsilon: float, n: int, seed: int = 0, copies: int = 0) -> Instance:
    """One word of the code, as often as epsilon still hides it (or ``copies`` times)."""
    hidden = math.ceil((p / 8 - 1) * math.log(2) / epsilon) - 1
    floor = hidden / 16 if not copies and hidden > 0 else 0.0
    copies = copies or max(hidden, 1)
    word = code_words(p, 1, seed)[0]
    X = np.vstack([np.tile(word, (copies, 1)), _cancelling(n - copies, p, seed)])
    return Instance(SCALE * X, copies * word, floor)


# ---------------------------------------------------------------- fingerprints
def fingerprint_size(p: int, epsilon: float) -> int:
    return max(1, math.floor(math.sqrt(p) / (6 * math.expm1(epsilon))))


def fingerprint_instance(
    p: int, epsilon: float, n: int, seed: int = 0
) -> tuple[Instance, np.ndarray, np.ndarray]:
    """The data, the means P of the fingerprints, and as many fresh rows for tracing."""
    rng = np.random.default_rng(seed)
    members = fingerprint_size(p, epsilon)
    means = rng.uniform(-1, 1, p)
    signs = np.where(rng.random((2 * members, p)) < (1 + means) / 2, 1.0, -1.0) / math.sqrt(p)
    X = np.vstack([signs[:members], _cancelling(n - members, p, seed)])
    floor = p / (432 * math.expm1(epsilon) ** 2 * n)
    instance = Instance(SCALE * X, signs[:members].sum(axis=0), floor)
    return instance, means / math.sqrt(p), signs[members:]


def tracing_advantage(
    answer: np.ndarray, members: np.ndarray, fresh: np.ndarray, means: np.ndarray
) -> float:
    """Mean of <answer, x - P> over members minus over fresh rows, in its standard deviations."""
    inside, outside = ((rows - means) @ answer for rows in (members, fresh))
    # Given the answer, a fresh row's statistic has this variance.
    spread = math.sqrt(float(np.sum(answer**2 * (1 / len(answer) - means**2))) + 1e-300)
    return float((inside.mean() - outside.mean()) / (spread * math.sqrt(2 / len(members))))


def _cancelling(count: int, p: int, seed: int) -> np.ndarray:
    """Rows that add up to nothing: pairs d, -d, and a zero row if the number is odd."""
    if count < 0:
        raise ValueError("the instance has more rows than n.")
    rng = np.random.default_rng((seed, 1))
    half = rng.choice([-1.0, 1.0], (count // 2, p)) / math.sqrt(p)
    return np.vstack([half, -half, np.zeros((count % 2, p))])


# ---------------------------------------------------------------- Huberization
def huberized_excess(n: int, width: float, epsilon: float) -> float:
    """Worse of two data sets: excess of |theta - d| after smoothing and regularising, no noise.

    Objective perturbation of the smoothed loss needs lambda = 1/(width (e^(epsilon/2) - 1)).
    """
    ridge = 1 / (width * math.expm1(epsilon / 2))
    return max(_two_point_excess(n, a, width, ridge) for a in (0.25, min(ridge / (4 * n), 0.5)))


def _two_point_excess(n: int, a: float, width: float, ridge: float) -> float:
    ones, zeros = (0.5 + a) * n, (0.5 - a) * n

    def slope(theta: float) -> float:
        return (
            ridge * theta + zeros * min(theta / width, 1.0) - ones * min((1 - theta) / width, 1.0)
        )

    theta = 1.0 if slope(1.0) < 0 else float(brentq(slope, 0.0, 1.0, xtol=1e-13))  # type: ignore[arg-type]
    return 2 * a * n * (1 - theta)


def best_huberization(n: int, epsilon: float) -> float:
    """Least excess over the width, on a fine grid."""
    widths = np.exp(np.linspace(math.log(1e-6), 0.0, 1200))
    return min(huberized_excess(n, float(width), epsilon) for width in widths)


def huberization_formula(n: int, epsilon: float) -> float:
    """What no width can beat, up to smaller terms."""
    return math.sqrt(n / (24 * math.expm1(epsilon / 2)))
