"""Problems nobody has chosen: losses, sets, shapes, budgets and rows, drawn from a seed.

The seed follows from the version of the library, so that each release is judged on problems that
were in nobody's view when its planner was written. What is tuned is tuned on the listed problems
(``regret_problems``), or on seeds of other names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from benchmarks.regret_problems import DELTA, Case
from privopt import Budget, Problem
from privopt.geometry import Box, Domain, L1Ball, L2Ball, LpBall, Simplex, WholeSpace
from privopt.losses import (
    Absolute,
    EuclideanDistance,
    Hinge,
    Huber,
    Linear,
    Logistic,
    PhaseRetrieval,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredDistance,
    TukeyBiweight,
    VectorLoss,
    Welsch,
)
from privopt.privacy import Neighbouring

Coins = np.random.Generator
SITUATIONS = ("isotropic", "decaying", "correlated", "rank 5", "separable", "rare", "skewed")
"""Rows and labels: columns alike; columns of falling size beside a constant; columns that share a
part; rows of rank 5; labels without noise; few positives; residuals with one long tail."""


@dataclass(frozen=True)
class Drawn(Case):
    """A problem with the situation of its rows and the seed they are drawn from."""

    situation: str = "isotropic"
    seed: int = 0

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(self.rows, tuple)
        return rows(*self.rows, self.problem, self.situation, np.random.default_rng(self.seed))


def drawn_cases(count: int = 64, name: str = "") -> Iterator[Drawn]:
    """``count`` problems, each family in turn; ``name`` is the seed's, the version by default."""
    digest = hashlib.sha256((name or version("privopt")).encode()).digest()
    for index in range(count):
        rng = np.random.default_rng([*digest, index])
        family = list(FAMILIES)[index % len(FAMILIES)]
        problem, n, p, situations = FAMILIES[family](rng)
        situation = str(rng.choice(situations))
        budget = _budget(rng, problem)
        delta = "pure" if budget.pure else "delta 1e-6"
        words = (
            f"{index}. {family}, {type(problem.loss).__name__}, {type(problem.domain).__name__}, "
            f"n={n}, p={p}, {situation}, epsilon {budget.epsilon:g}, {delta}"
        )
        if problem.l2:
            words += f", ridge {problem.l2:.2g}"
        if budget.neighbouring != "zero_out":
            words += f", {budget.neighbouring}"
        yield Drawn(words, problem, budget, (n, p), situation, int(rng.integers(2**31)))


def _budget(rng: Coins, problem: Problem) -> Budget:
    epsilon = float(f"{2.0 ** rng.uniform(-3, 3):.2g}")
    delta = 0.0 if rng.random() < 0.4 else DELTA
    relation: Neighbouring = "replace_one" if rng.random() < 0.3 else "zero_out"
    return Budget(epsilon, delta, relation)


# ---------------------------------------------------------------- families
Family = tuple[Problem, int, int, tuple[str, ...]]
REGRESSIONS = ("isotropic", "decaying", "correlated", "rank 5", "separable", "skewed")
CLASSES = ("isotropic", "decaying", "correlated", "rank 5", "separable", "rare")


def _size(rng: Coins, least: float, most: float) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _ball(rng: Coins) -> Domain:
    return L2Ball(float(rng.choice([1.0, 2.0, 5.0, 10.0])))


def _small(rng: Coins) -> tuple[int, int]:
    return _size(rng, 400, 6_000), _size(rng, 1, 40)


def _wide(rng: Coins) -> tuple[int, int]:
    return _size(rng, 500, 3_000), _size(rng, 50, 400)


def _logistic(rng: Coins) -> Family:
    return Problem(Logistic(), _ball(rng)), *_small(rng), CLASSES


def _whole(rng: Coins) -> Family:
    l2 = 0.0 if rng.random() < 0.5 else 10.0 ** rng.uniform(-4, -1)
    return Problem(Logistic(), WholeSpace(), l2=l2), *_small(rng), CLASSES


def _huber(rng: Coins) -> Family:
    domain = _ball(rng) if rng.random() < 0.6 else Box(-1.0, 1.0)
    return Problem(Huber(float(rng.choice([0.1, 0.3, 1.0]))), domain), *_small(rng), REGRESSIONS


def _ridge(rng: Coins) -> Family:
    l2 = 10.0 ** rng.uniform(-3, -0.5)
    loss = Squared(residual_clip=float(rng.choice([0.5, 1.0, 2.0])))
    domain = WholeSpace() if rng.random() < 0.5 else _ball(rng)
    return Problem(loss, domain, l2=l2), *_small(rng), REGRESSIONS


def _squares(rng: Coins) -> Family:
    return Problem(Squared(residual_clip=1.0), _ball(rng)), *_small(rng), REGRESSIONS


def _bent(rng: Coins) -> Family:
    width = float(rng.choice([0.1, 0.3, 1.0]))
    return Problem(SmoothedHinge(width), _ball(rng)), *_small(rng), CLASSES


def _hinge(rng: Coins) -> Family:
    return Problem(Hinge(), _ball(rng)), *_small(rng), CLASSES


def _absolute(rng: Coins) -> Family:
    return Problem(Absolute(), _ball(rng)), *_small(rng), REGRESSIONS


def _quantile(rng: Coins) -> Family:
    level = float(rng.choice([0.5, 0.75, 0.9]))
    domain = Box(-1.0, 1.0) if rng.random() < 0.5 else _ball(rng)
    return Problem(Quantile(level), domain), _size(rng, 400, 6_000), _size(rng, 1, 12), REGRESSIONS


def _l1(rng: Coins) -> Family:
    if rng.random() < 0.5:
        return Problem(Logistic(), L1Ball(5.0)), *_wide(rng), CLASSES
    return Problem(Squared(residual_clip=1.0), L1Ball(2.0)), *_wide(rng), REGRESSIONS


def _simplex(rng: Coins) -> Family:
    loss = Huber(0.5) if rng.random() < 0.5 else Squared(residual_clip=1.0)
    return Problem(loss, Simplex(1.0)), _size(rng, 400, 6_000), _size(rng, 4, 100), REGRESSIONS


def _lp(rng: Coins) -> Family:
    domain = LpBall(float(rng.choice([1.25, 1.5, 1.75])), 3.0)
    return Problem(Logistic(), domain), _size(rng, 500, 4_000), _size(rng, 4, 60), CLASSES


def _bounded_entries(rng: Coins) -> Family:
    n, p = _wide(rng)
    return Problem(Logistic(), WholeSpace(), column_bounds=1.0, l2=1e-3), n, p, ("few", "isotropic")


def _nonconvex(rng: Coins) -> Family:
    n, p = _size(rng, 500, 5_000), _size(rng, 2, 25)
    domain = L1Ball(2.0) if rng.random() < 0.3 else L2Ball(2.0)
    which = int(rng.integers(3))
    if which == 2:
        return Problem(PhaseRetrieval(1.0), L2Ball(1.0)), n, p, ("isotropic", "correlated")
    width = float(rng.choice([0.3, 0.7]))
    loss = Welsch(width) if which == 0 else TukeyBiweight(width)
    return Problem(loss, domain), n, p, REGRESSIONS


def _vectors(rng: Coins) -> Family:
    losses: list[VectorLoss] = [EuclideanDistance(), SquaredDistance(), Linear()]
    loss = losses[int(rng.integers(3))]
    return Problem(loss, L2Ball(1.0)), *_small(rng), ("isotropic", "decaying", "skewed")


def _low_rank(rng: Coins) -> Family:
    n, p = _size(rng, 1_000, 5_000), _size(rng, 40, 250)
    rank = 5 if rng.random() < 0.5 else None
    return Problem(Logistic(), WholeSpace(), rank=rank), n, p, ("rank 5",)


FAMILIES: dict[str, Callable[[Coins], Family]] = {
    "logistic": _logistic,
    "whole space": _whole,
    "huber": _huber,
    "ridge": _ridge,
    "squares": _squares,
    "bent hinge": _bent,
    "hinge": _hinge,
    "absolute": _absolute,
    "quantile": _quantile,
    "l1 ball": _l1,
    "simplex": _simplex,
    "lp ball": _lp,
    "bounded entries": _bounded_entries,
    "not convex": _nonconvex,
    "vectors": _vectors,
    "low rank": _low_rank,
}


# ---------------------------------------------------------------- rows
def rows(
    n: int, p: int, problem: Problem, situation: str, rng: Coins
) -> tuple[np.ndarray, np.ndarray]:
    """Rows within the problem's bounds, labels -1 and 1 or targets in [-1, 1]."""
    X = rng.standard_normal((n, p))
    if situation == "rank 5" and p > 5:
        X = X[:, :5] @ rng.standard_normal((5, p))
    if situation == "decaying" and p > 1:
        X *= 2.0 ** (-5.0 * np.arange(p) / p)
        X[:, -1] = np.sqrt(np.mean(np.sum(X[:, :-1] ** 2, axis=1)))
    if situation == "correlated":
        X += 1.5 * rng.standard_normal((n, 1))
    if problem.column_bounds is not None:
        X = np.clip(X / 2.0, -problem.column_bounds, problem.column_bounds)
    else:
        X *= 0.8 * problem.row_norm / math.sqrt(float(np.mean(np.sum(X**2, axis=1))))
        X *= np.minimum(1.0, problem.row_norm / np.linalg.norm(X, axis=1))[:, None]
    if isinstance(problem.loss, VectorLoss):
        return _places(X, situation, rng), np.zeros(n)
    theta = rng.standard_normal(p)
    if situation == "few":
        theta[5:] = 0.0
    margins = X @ theta
    margins /= math.sqrt(float(np.mean(margins**2))) + 1e-300
    return X, _labels(margins, problem, situation, rng)


def _labels(margins: np.ndarray, problem: Problem, situation: str, rng: Coins) -> np.ndarray:
    n = len(margins)
    if problem.loss.classification:
        sharp = 1e9 if situation == "separable" else 2.0
        shift = 3.5 if situation == "rare" else 0.0
        chance = 1 / (1 + np.exp(np.clip(shift - sharp * margins, -700, 700)))
        return np.where(rng.random(n) < chance, 1.0, -1.0)
    noise = 0.15 * rng.standard_normal(n)
    if situation == "skewed":
        noise = 0.15 * (rng.exponential(1.0, n) ** 1.5 - 0.5)
    if situation == "separable":
        noise = np.zeros(n)
    if isinstance(problem.loss, PhaseRetrieval):
        return np.clip((0.6 * margins) ** 2 + noise, 0.0, 1.0)
    return np.clip(0.4 * margins + noise, -1.0, 1.0)


def _places(X: np.ndarray, situation: str, rng: Coins) -> np.ndarray:
    """Points about a common place; skewed: a tenth of them far away."""
    middle = rng.standard_normal(X.shape[1])
    X = 0.4 * X + 0.4 * middle / np.linalg.norm(middle)
    if situation == "skewed":
        X[: len(X) // 10] = -0.8 * middle / np.linalg.norm(middle)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
