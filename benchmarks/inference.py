"""Intervals of coefficients: how often they hold the truth, and how wide they are.

Made data with known coefficients. A cell is a model, a number of records and of columns, their
correlation and epsilon (delta 1e-6 unless it says pure). For each: the share of fits that call the
coefficients identified, coverage of nominal 95 % intervals over all slopes of those, and their mean
width over that of the interval without privacy. ``python -m benchmarks.inference 300 linear``
sets the number of repetitions and which cells, by words of their names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

import privopt
from benchmarks.measure import Figure, console, report

FEW = 0.5
"""Coverage counts where at least this share of fits is identified."""


@dataclass(frozen=True)
class Cell:
    """One design; ``rows``: how rows are bounded; ``errors``: of a regression."""

    model: str
    n: int
    p: int
    correlation: float
    epsilon: float
    rows: str = "bounds"
    delta: float = 1e-6
    errors: str = "normal"
    repetitions: float = 1.0

    @property
    def name(self) -> str:
        pure = "" if self.delta else " pure"
        extra = "" if self.errors == "normal" else f" {self.errors}"
        return (
            f"{self.model} n={self.n} p={self.p} rho={self.correlation} "
            f"epsilon={self.epsilon}{pure} {self.rows}{extra}"
        )

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, labels and the true slopes."""
        n, p, rho = self.n, self.p, self.correlation
        common = rng.standard_normal((n, 1))
        X = np.sqrt(1 - rho) * rng.standard_normal((n, p)) + np.sqrt(rho) * common
        X[:, 0] = np.exp(X[:, 0] / 2) - 1.13 if self.errors == "skewed" else X[:, 0]
        beta = np.linspace(-1.0, 1.0, p) + 0.2
        covariance = (1 - rho) * np.eye(p) + rho
        beta /= np.sqrt(beta @ covariance @ beta)
        if self.model == "logistic":
            beta *= 1.5
            return X, (rng.random(n) < expit(X @ beta - 0.3)).astype(float), beta
        if self.model == "poisson":
            beta *= 0.4
            return X, rng.poisson(np.exp(0.7 + X @ beta)).astype(float), beta
        return X, X @ beta + 0.5 + self._errors(X, rng), beta

    def _errors(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = len(X)
        if self.errors == "heavy":
            return rng.standard_t(4, n) / np.sqrt(2)
        if self.errors == "skewed":
            return rng.exponential(1.0, n) - 1
        if self.errors == "uneven":
            return rng.standard_normal(n) * (0.3 + 0.7 * np.abs(X[:, 0]))
        return rng.standard_normal(n)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> privopt.LinearRegression:
        """The private fit."""
        norm = 1.2 * np.sqrt(self.p)
        rows = {"bounds": (-5.0, 5.0)} if self.rows == "bounds" else {"data_norm": norm}
        how = {"delta": self.delta, "random_state": seed, "intervals": True, **rows}
        if self.model == "logistic":
            return privopt.LogisticRegression(self.epsilon, classes=[0, 1], **how).fit(X, y)
        if self.model == "poisson":
            return privopt.PoissonRegressor(self.epsilon, target_bounds=(0, 20), **how).fit(X, y)
        return privopt.LinearRegression(self.epsilon, target_bounds=(-8, 8), **how).fit(X, y)

    def plain(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and their standard errors without privacy, by Newton's method."""
        full = np.column_stack([X, np.ones(len(X))])
        theta = np.zeros(self.p + 1)
        for _ in range(1 if self.model == "linear" else 12):
            z = full @ theta
            mean = {"linear": z, "logistic": expit(z), "poisson": np.exp(z)}[self.model]
            bent = {"linear": 1 + 0 * z, "logistic": mean * (1 - mean), "poisson": mean}
            hessian = (full.T * bent[self.model]) @ full
            theta = theta + np.linalg.solve(hessian, full.T @ (y - mean))
        scores = (y - full @ theta if self.model == "linear" else y - mean)[:, None] * full
        inverse = np.linalg.inv(hessian)
        return theta[:-1], np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))[:-1]


def cells() -> Iterator[Cell]:
    """Around the table of targets."""
    for model in ("linear", "logistic"):
        for n, p in ((500, 2), (2_000, 10), (10_000, 10)):
            for rho in (0.0, 0.8):
                for epsilon in (0.5, 1.0, 4.0, 8.0):
                    yield Cell(model, n, p, rho, epsilon)
        for epsilon in (1.0, 4.0):
            yield Cell(model, 10_000, 50, 0.0, epsilon, repetitions=0.2)
            yield Cell(model, 100_000, 10, 0.8, epsilon, repetitions=0.2)
        for rho in (0.0, 0.8):
            for delta in (1e-6, 0.0):
                yield Cell(model, 10_000, 5, rho, 1.0, "norm", delta)
        yield Cell(model, 10_000, 5, 0.0, 4.0, delta=0.0)
    for errors in ("heavy", "skewed", "uneven"):
        yield Cell("linear", 10_000, 10, 0.0, 4.0, errors=errors)
        yield Cell("linear", 10_000, 5, 0.8, 2.0, errors=errors)
    for epsilon in (1.0, 8.0):
        yield Cell("poisson", 10_000, 5, 0.0, epsilon)
        yield Cell("poisson", 10_000, 5, 0.0, epsilon, "norm")


@dataclass(frozen=True)
class Seen:
    """What a cell showed."""

    identified: float
    coverage: float
    width: float
    plain: float
    ratio: float


def run(cell: Cell, repetitions: int) -> Seen:
    """Coverage of the slopes over fits that are identified; slope ratio of their estimates."""
    rng, held, wide, plain, known, along = np.random.default_rng(20), [], [], [], 0, []
    for seed in range(repetitions):
        X, y, beta = cell.draw(rng)
        own, errors = cell.plain(X, y)
        plain.append(np.abs(own - beta) < 1.96 * errors)
        model = cell.fit(X, y, seed)
        low, high = model.conf_int()[:-1].T
        if not np.isfinite(low).all():
            continue
        known += 1
        held.append((low < beta) & (beta < high))
        wide.append((high - low) / (2 * 1.96 * errors))
        along.append(np.ravel(model.coef_) @ beta / (beta @ beta))
    if not known:
        nothing = float("nan")
        return Seen(0.0, nothing, nothing, float(np.mean(plain)), nothing)
    return Seen(
        known / repetitions,
        float(np.mean(held)),
        float(np.mean(wide)),
        float(np.mean(plain)),
        float(np.mean(along)),
    )


def main(repetitions: int, words: list[str]) -> None:
    figures = []
    for cell in cells():
        if not all(word in cell.name.split() for word in words):
            continue
        start = time.perf_counter()
        seen = run(cell, max(10, round(repetitions * cell.repetitions)))
        console.print(
            f"{cell.name}: identified {seen.identified:.2f} coverage {seen.coverage:.3f} "
            f"width {seen.width:.2f} plain {seen.plain:.3f} ratio {seen.ratio:.3f} "
            f"({time.perf_counter() - start:.0f} s)"
        )
        least = 0.935 if seen.identified >= FEW else None
        figures += [
            Figure(f"{cell.name}: identified", seen.identified),
            Figure(f"{cell.name}: coverage", seen.coverage, least, ">="),
            Figure(f"{cell.name}: width", seen.width),
            Figure(f"{cell.name}: slope ratio", seen.ratio),
        ]
    report("inference", "Intervals of coefficients", figures)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 300, given[1:])
