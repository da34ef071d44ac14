"""Losses with a kink without delta: excess of the loss itself, at the planner's first choice.

Made rows are correlated, of columns of unequal size, with a constant; real ones are scaled by
constants of their columns. ``auto`` is compared with what there was before kinks were rounded off:
output perturbation and noisy gradient descent.

The smallest loss comes from accelerated steps on ever narrower parabolas, and from the best of all
private answers: where the ball binds an excess may be a little too small.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Figure, report
from benchmarks.real_data import folder, load
from privopt import Budget, Problem, plan, solve
from privopt.geometry import L2Ball
from privopt.losses import Absolute, Hinge, Loss, Quantile, Smoothed

LOSSES: dict[str, Loss] = {"hinge": Hinge(), "absolute": Absolute(), "quantile .9": Quantile(0.9)}
BEFORE = ("output_perturbation", "noisy_gd")
SEEDS = 3


@cache
def made(n: int, p: int, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm at most 1, labels of a linear model, the last column constant."""
    rng = np.random.default_rng(19 * n + p)
    X = rng.standard_normal((n, p - 1)) + 0.5 * rng.standard_normal((n, 1))
    X *= 2.0 ** (-2.0 * np.arange(p - 1) / max(p - 1, 1))
    X = np.column_stack([X / np.sqrt(np.mean(np.sum(X**2, axis=1))), np.ones(n)]) / np.sqrt(2)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    margins = X @ (rng.standard_normal(p) / np.sqrt(p))
    margins /= np.std(margins)
    if classes:
        return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2.0 * margins)), 1.0, -1.0)
    return X, np.clip(0.3 * margins + 0.1 * rng.standard_t(4, n), -1.0, 1.0)


@cache
def real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the unit ball and labels in [-1, 1], by constants."""
    if name in ("a9a", "bike hours"):
        return _whole(name)
    data = load(name)
    X, y = np.asarray(data.X, float), np.asarray(data.y, float)
    if data.target_bounds is None:
        return _scaled(X, *data.bounds), np.where(y > 0, 1.0, -1.0)
    return _scaled(X, *data.bounds), _unit(y, *data.target_bounds)


def _whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    home = folder()
    assert home is not None
    if name == "a9a":  # at most fourteen of its columns are one, the others nought
        X = sp.load_npz(home / "a9a" / "X_train.npz").toarray().astype(float)
        with np.load(home / "a9a" / "y_train.npz") as data:
            y = data["y"].astype(float)
        return np.column_stack([X / np.sqrt(14), np.ones(len(X))]) / np.sqrt(2), np.sign(y)
    with np.load(home / "bike_sharing" / "bike_sharing_hour.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    # Season, year, month, hour, holiday, weekday, working day, weather; four measurements.
    low = np.array([1.0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    high = np.array([4.0, 1, 12, 23, 1, 6, 1, 4, 1, 1, 1, 1])
    return _scaled(X, low, high), _unit(y, 0.0, 1000.0)


def _unit(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    return np.clip((2 * values - low - high) / (np.asarray(high) - low), -1.0, 1.0)


def _scaled(X: np.ndarray, low: Any, high: Any) -> np.ndarray:
    X = _unit(X, np.asarray(low, float), np.asarray(high, float))
    X = np.column_stack([X, np.ones(len(X))])
    return X / np.sqrt(X.shape[1])


def descend(problem: Problem, X: np.ndarray, y: np.ndarray, steps: int = 600) -> np.ndarray:
    """Nearly the minimiser, without privacy: accelerated steps on parabolas ever narrower."""
    size, theta = float(np.linalg.eigvalsh(X.T @ X / len(y))[-1]), np.zeros(X.shape[1])
    for width in (0.1, 0.02, 0.004, 0.001):
        loss = Smoothed(problem.loss, width)
        ahead, weight, step = theta, 1.0, 1 / (loss.smoothness * size)
        for _ in range(steps):
            new = problem.domain.project(ahead - step * (loss.slope(X @ ahead, y) @ X) / len(y))
            if (ahead - new) @ (new - theta) > 0:
                weight = 1.0
            heavier = (1 + np.sqrt(1 + 4 * weight**2)) / 2
            ahead, theta, weight = new + (weight - 1) / heavier * (new - theta), new, heavier
    return theta


def excesses(problem: Problem, X: Any, y: Any, budget: Budget) -> tuple[str, dict[str, float]]:
    """The name of the first choice, and the mean excess of it and of what there was before."""

    def risk(theta: np.ndarray) -> float:
        return float(np.mean(problem.loss.value(X @ theta, y)))

    first = plan(problem, n=len(y), p=X.shape[1], budget=budget).best.name
    found = {}
    for name in dict.fromkeys((first, "objective_perturbation", *BEFORE)):
        runs = [solve(problem, X, y, budget=budget, solver=name, random_state=seed).theta
                for seed in range(SEEDS)]  # fmt: skip
        found[name] = [risk(theta) for theta in runs]
    least = min(risk(descend(problem, X, y)), *(min(one) for one in found.values()))
    return first, {name: float(np.mean(one)) - least for name, one in found.items()}


def cases() -> Iterable[tuple[str, str, Any, float, float | None]]:
    """Name, loss, rows, radius and the largest excess that is good."""
    for n, p, target in ((2_000, 10, None), (10_000, 10, 0.001), (100_000, 100, None)):
        yield f"made {n} x {p}", "hinge", (n, p), 10.0, target
    for n, p in ((2_000, 10), (10_000, 10), (10_000, 50), (100_000, 100)):
        yield f"made {n} x {p}", "absolute", (n, p), 2.0, None
    yield "made 10000 x 10", "quantile .9", (10_000, 10), 2.0, None
    if folder() is not None:
        yield "a9a", "hinge", "a9a", 10.0, 0.010
        yield "ijcnn1", "hinge", "ijcnn1", 10.0, None
        yield "california", "absolute", "california", 5.0, 0.0002
        yield "california", "quantile .9", "california", 5.0, None
        yield "bike", "absolute", "bike hours", 5.0, 0.0005


def figures(epsilon: float, delta: float) -> Iterable[Figure]:
    for name, loss, rows, radius, target in cases():
        problem = Problem(LOSSES[loss], L2Ball(radius))
        X, y = real(rows) if isinstance(rows, str) else made(*rows, loss == "hinge")
        first, found = excesses(problem, X, y, Budget(epsilon, delta))
        note = ", ".join(f"{one} {value:.2g}" for one, value in found.items())
        yield Figure(f"{loss}, {name}", found[first], target, note=f"{first}; {note}")


def main(arguments: list[str]) -> None:
    delta = float(arguments[0]) if arguments else 0.0
    report("kinks", f"Losses with a kink, epsilon 1, delta {delta:g}", [*figures(1.0, delta)])


if __name__ == "__main__":
    main(sys.argv[1:])
