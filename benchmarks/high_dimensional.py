"""Many features: noise of repeated choices, Frank-Wolfe against n, greedy against other descents.

Data is made here, so every figure can be made again. In the comparison of descents each method is
tuned on the objective itself, which is not private: it shows what the best settings could reach.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from benchmarks.measure import Figure, console, report
from privopt import Budget, Problem, SparseLogisticRegression, solve
from privopt.geometry import Domain, L1Ball, WholeSpace
from privopt.losses import Logistic, Squared
from privopt.privacy.profiles import concentrated_rho, gaussian_mu

SEEDS, RIDGE = 3, 1e-3
Grid = list[dict[str, Any]]


# ---------------------------------------------------------------- repeated choices
def noise_of_choices() -> Iterable[Figure]:
    """Gumbel scale over sensitivity for T choices at epsilon 1, delta 1e-6."""
    rho = concentrated_rho(1.0, 1e-6)
    for steps, target in ((10, 14.3), (100, 45.3), (1000, 143.0)):
        found = math.sqrt(steps / (2 * rho))
        yield Figure(f"noise scale over sensitivity, {steps} choices", found, 1.01 * target)


# ---------------------------------------------------------------- Frank-Wolfe
def lasso(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    theta = np.zeros(p)
    theta[:4] = [0.4, -0.3, 0.2, 0.1]
    return X, np.clip(X @ theta + 0.1 * rng.standard_normal(n), -1, 1)


def least_on_ball(X: np.ndarray, y: np.ndarray, ball: L1Ball) -> float:
    gram, moment = X.T @ X / len(y), X.T @ y / len(y)
    steep = np.linalg.norm(gram, 2)
    w = ahead = np.zeros(X.shape[1])
    k = 1.0
    for _ in range(2000):
        new = ball.project(ahead - (gram @ ahead - moment) / steep)
        following = (1 + math.sqrt(1 + 4 * k * k)) / 2
        w, ahead, k = new, new + (k - 1) / following * (new - w), following
    return 0.5 * float(np.mean((X @ w - y) ** 2))


def frank_wolfe() -> Iterable[Figure]:
    """Excess of the lasso, p = 100, replace_one, epsilon 1, delta 1e-6."""
    ball = L1Ball(1.0)
    problem = Problem(Squared(residual_clip=2.0), ball, column_bounds=1.0)
    budget = Budget(1.0, 1e-6, "replace_one")
    sizes, found = (1000, 4000, 16000), []
    for n, steps, known in zip(sizes, (30, 76, 192), (0.1036, 0.0366, 0.0109), strict=True):
        X, y = lasso(n, 100)
        best = least_on_ball(X, y, ball)

        def excess(X: np.ndarray = X, y: np.ndarray = y, best: float = best, **how: Any) -> float:
            runs = [
                solve(problem, X, y, budget=budget, solver="frank_wolfe", random_state=s, **how)
                for s in range(2 * SEEDS)
            ]
            risks = [0.5 * float(np.mean((X @ run.theta - y) ** 2)) for run in runs]
            return float(np.mean(risks)) - best

        found.append(excess(n_iter=steps))
        yield Figure(f"lasso excess, n={n}, {steps} choices", found[-1], 1.25 * known)
        yield Figure(f"lasso excess, n={n}, default", excess())
    slope = np.polyfit(np.log(sizes), np.log(found), 1)[0]
    yield Figure("slope of the excess in n", float(slope), -0.6)


# ---------------------------------------------------------------- descents
def logistic(kind: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n, p = {"log1": (1000, 100), "log2": (1000, 100), "5-sparse": (2000, 1000)}[kind]
    X = np.clip(rng.standard_normal((n, p)), -2, 2) / 2
    if kind == "5-sparse":
        theta = np.zeros(p)
        theta[:5] = [4, -4, 3, -3, 3]
    else:
        theta = rng.lognormal(0, 1 if kind == "log1" else 2, p) * rng.choice([-1, 1], p)
        theta *= 6 / np.linalg.norm(theta)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)


def noisy_gradients(
    X: np.ndarray, y: np.ndarray, budget: Budget, steps: int, clip: float, rate: float, seed: int
) -> np.ndarray:
    """Full-batch gradient descent with clipped gradients, written out for any step size."""
    rng, n = np.random.default_rng(seed), len(y)
    norms = np.linalg.norm(X, axis=1)
    std = 2 * clip * math.sqrt(steps) / gaussian_mu(budget.epsilon, budget.delta)
    w = np.zeros(X.shape[1])
    for _ in range(steps):
        slope = -0.5 * y * (1 - np.tanh(0.5 * y * (X @ w)))
        slope /= np.maximum(1, np.abs(slope) * norms / clip)
        w = w - rate * ((slope @ X + std * rng.standard_normal(w.size)) / n + RIDGE * w)
    return w


class Task:
    """One data set with its budget, and the relative gap (f - f*) / (f0 - f*) of a point."""

    def __init__(self, kind: str, epsilon: float) -> None:
        self.X, self.y = logistic(kind)
        n, p = self.X.shape
        self.budget = Budget(epsilon, 1 / n**2, "replace_one")
        found = minimize(self._risk, np.zeros(p), jac=self._slope, method="L-BFGS-B")
        self.best, self.label = float(found.fun), f"{kind} {n}x{p}, epsilon {epsilon:g}"

    def _risk(self, w: np.ndarray) -> float:
        return float(np.logaddexp(0, -self.y * (self.X @ w)).mean()) + RIDGE / 2 * float(w @ w)

    def _slope(self, w: np.ndarray) -> np.ndarray:
        pull = -self.y / (1 + np.exp(self.y * (self.X @ w)))
        return pull @ self.X / len(self.y) + RIDGE * w

    def gap(self, runs: Iterable[np.ndarray]) -> float:
        mean = float(np.mean([self._risk(w) for w in runs]))
        return (mean - self.best) / (math.log(2) - self.best)

    def tuned(self, name: str, domain: Domain, grid: Grid, **fixed: Any) -> tuple[float, str]:
        """The best of a grid of settings, by the mean gap over the seeds."""
        problem = Problem(Logistic(), domain, column_bounds=1.0, l2=RIDGE)
        found = []
        for how in grid:
            choices = {"budget": self.budget, "solver": name, "slope_clip": 0.5, **how, **fixed}
            runs = [
                solve(problem, self.X, self.y, random_state=s, **choices).theta
                for s in range(SEEDS)
            ]
            found.append((self.gap(runs), str(how)))
        return min(found)


def descents() -> Iterable[Figure]:
    """Replace_one, delta 1/n^2; every method tuned."""
    steps = (2, 4, 8, 16, 32)
    few = [{"n_iter": t, "step_factor": f} for t, f in itertools.product(steps, (2.0, 4.0, 8.0))]
    many = [{"n_iter": t, "step_factor": f} for t in (30, 100, 300) for f in (2.0, 6.0)]
    for kind, epsilon in (("log1", 1.0), ("log2", 1.0), ("log2", 4.0), ("5-sparse", 1.0)):
        task = Task(kind, epsilon)
        greedy, how = task.tuned("greedy_coordinate", WholeSpace(), few)
        laplace, _ = task.tuned("greedy_coordinate", WholeSpace(), few, noise="laplace")
        wolfe, _ = task.tuned("frank_wolfe", L1Ball(15.0), [{"n_iter": t} for t in steps])
        random = math.nan
        if kind != "5-sparse":  # a step for each of 1000 columns reads the data too often
            random, _ = task.tuned("coordinate_descent", WholeSpace(), many)
        full = min(
            task.gap(noisy_gradients(task.X, task.y, task.budget, t, c, r, s) for s in range(SEEDS))
            for t, c, r in itertools.product((4, 16, 64), (0.3, 1.0, 3.0), (1.0, 4.0, 16.0))
        )
        wins = kind != "log1" and epsilon == 1.0
        yield Figure(f"{task.label}: greedy", greedy, full if wins else None, "<", note=how)
        yield Figure("  full-batch gradients", full)
        yield Figure("  greedy with Laplace noise", laplace)
        yield Figure("  random coordinates", random)
        yield Figure("  Frank-Wolfe, l1 radius 15", wolfe)


# ---------------------------------------------------------------- a million columns
def million() -> Iterable[Figure]:
    """Seconds of a choice on a sparse matrix with a million columns, 100 entries a row."""
    rng = np.random.default_rng(0)
    n, p, each = 20_000, 1_000_000, 100
    columns = rng.integers(0, p, size=(n, each)).astype(np.int32)
    entries = rng.uniform(-1, 1, size=n * each)
    X = sp.csr_array((entries, columns.ravel(), np.arange(0, n * each + 1, each)), shape=(n, p))
    y = np.where(rng.random(n) < 0.5, 1, -1)
    walls = []
    for steps in (2, 12):
        start = time.perf_counter()
        SparseLogisticRegression(1.0, 1e-8, radius=20.0, n_iter=steps, random_state=0).fit(X, y)
        walls.append(time.perf_counter() - start)
    yield Figure("n=20,000, p=1,000,000: one choice", (walls[1] - walls[0]) / 10, None, unit="s")
    yield Figure("n=20,000, p=1,000,000: fit of 12 choices", walls[1], unit="s")


def main() -> None:
    figures: list[Figure] = []
    for part in (noise_of_choices, frank_wolfe, descents, million):
        for figure in part():
            figures.append(figure)
            console.print(f"{figure.what}: {figure.value:.4g} {figure.note}")
    report(
        "high_dimensional",
        f"Many features; mean of {SEEDS} runs ({2 * SEEDS} for the lasso)",
        figures,
    )


if __name__ == "__main__":
    main()
