"""Intervals of coefficients: how often they hold the truth, and how wide they are.

Made data with known coefficients. A cell is a model, a number of records and of columns, their
correlation and epsilon (delta 1e-6 unless it says pure). For each: the share of slopes that the
summary calls identified, coverage of nominal 95 % intervals over those, each slope counted by
itself, and their mean width over that of the interval without privacy.

``python -m benchmarks.inference 300 linear`` sets the number of repetitions and which cells, by
words of their names. ``--processes 10`` shares the work out, ``--seconds 400`` stops after that,
``--lines FILE`` keeps a line of JSON for each dozen of fits and ``--read FILE`` (several times)
reads such files instead of fitting.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import privopt
from benchmarks.measure import Figure, console, report

FEW = 0.02
"""Coverage counts where at least this share of the slopes is identified."""
CHUNK = 12
"""Repetitions of one piece of work."""


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
    twins: bool = False
    repetitions: float = 1.0

    @property
    def name(self) -> str:
        pure = "" if self.delta else " pure"
        extra = "" if self.errors == "normal" else f" {self.errors}"
        extra += " twins" if self.twins else ""
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
        if self.twins:  # the last two columns are the same but for a hundredth
            X[:, -1] = X[:, -2] + 0.1 * X[:, -1]
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
    for epsilon in (1.0, 4.0):
        yield Cell("linear", 10_000, 5, 0.0, epsilon, twins=True)
        yield Cell("logistic", 10_000, 5, 0.0, epsilon, twins=True)
    for epsilon in (1.0, 8.0):
        yield Cell("poisson", 10_000, 5, 0.0, epsilon)
        yield Cell("poisson", 10_000, 5, 0.0, epsilon, "norm")


def fits(cell: Cell, seeds: range) -> dict[str, Any]:
    """Counts and sums over fits to data of these seeds, slope by slope."""
    total = np.zeros((7, cell.p))
    for seed in seeds:
        rng = np.random.default_rng((20, seed))
        X, y, beta = cell.draw(rng)
        own, errors = cell.plain(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cell.fit(X, y, seed)
        low, high = model.conf_int()[:-1].T
        known = np.isfinite(low)
        width = np.where(known, high - low, 0.0) / (2 * 1.96 * errors)
        ratio = np.where(known.all(), np.ravel(model.coef_) @ beta / (beta @ beta), 0.0)
        total += [
            np.ones(cell.p),
            known,
            known & (low < beta) & (beta < high),
            width,
            np.abs(own - beta) < 1.96 * errors,
            np.full(cell.p, known.all()),
            np.full(cell.p, ratio),
        ]
    names = ("fits", "known", "held", "width", "plain", "whole", "ratio")
    found = dict(zip(names, total.tolist(), strict=True))
    return {"cell": cell.name, "first": seeds.start, **found}


def _work(piece: tuple[Cell, range, float]) -> dict[str, Any] | None:
    cell, seeds, until = piece
    return fits(cell, seeds) if time.time() < until else None


def lines(
    repetitions: int, words: list[str], processes: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Pieces of all cells in turn, so that whoever stops early has something of each."""
    until = time.time() + seconds
    chosen = [cell for cell in cells() if all(word in cell.name.split() for word in words)]
    pieces = []
    for first in range(0, repetitions, CHUNK):
        for cell in chosen:
            last = min(first + CHUNK, max(CHUNK, round(repetitions * cell.repetitions)))
            if first < last:
                pieces.append((cell, range(first, last), until))
    if processes == 1:
        yield from filter(None, map(_work, pieces))
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from filter(None, pool.imap_unordered(_work, pieces))


def judged(found: Iterable[dict[str, Any]]) -> list[Figure]:
    """One line for each cell, in the order of the table."""
    sums: dict[str, dict[str, np.ndarray]] = {}
    for line in found:
        own = sums.setdefault(line["cell"], {})
        for name, value in line.items():
            if isinstance(value, list):
                own[name] = own.get(name, 0.0) + np.array(value)
    figures = []
    for name in (cell.name for cell in cells() if cell.name in sums):
        own = {key: float(value.sum()) for key, value in sums[name].items()}
        share, known = own["known"] / own["fits"], max(own["known"], 1.0)
        coverage, width = own["held"] / known, own["width"] / known
        ratio = own["ratio"] / own["whole"] if own["whole"] else float("nan")
        console.print(
            f"{name}: fits {own['fits'] / len(sums[name]['fits']):.0f} identified {share:.3f} "
            f"coverage {coverage if own['known'] else float('nan'):.3f} width {width:.2f} "
            f"plain {own['plain'] / own['fits']:.3f} ratio {ratio:.3f}"
        )
        least = 0.935 if share >= FEW else None
        figures += [
            Figure(f"{name}: identified", share),
            Figure(f"{name}: coverage", coverage, least, ">="),
            Figure(f"{name}: width", width),
            Figure(f"{name}: slope ratio", ratio),
        ]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repetitions", type=int, nargs="?", default=300)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--read", type=Path, action="append")
    given = parser.parse_args()
    if given.read:
        texts = [text for path in given.read for text in path.read_text().splitlines()]
        found: Iterable[dict[str, Any]] = map(json.loads, texts)
    else:
        found = lines(given.repetitions, given.words, given.processes, given.seconds)
    if given.lines:
        with given.lines.open("a") as file:
            for line in found:
                file.write(json.dumps(line) + "\n")
                file.flush()
        found = map(json.loads, given.lines.read_text().splitlines())
    report("inference", "Intervals of coefficients", judged(found))


if __name__ == "__main__":
    main()
