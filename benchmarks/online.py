"""Learning from streams in the order of time: regret of private models against non-private ones.

One day is one step: 944 days of electricity prices (will they rise?), 724 days of bike rentals
(how many in an hour?). Models predict each day before they learn from it. Regret is the mean loss
of these predictions minus that of the best fixed model in hindsight, in the same ball. Bounds of
columns are constants of their meaning. Then, on made data: regret of linear losses against its
bound, and of least squares against what was measured before this library was written.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.real_data import folder, stream
from privopt import Budget, OnlineLinearRegression, OnlineLogisticRegression, Problem
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.noise import SilentSource
from privopt.numerics.trust_region import svec
from privopt.oracle import RowBounds
from privopt.privacy.factorizations import named
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers.families.leaders import Leader, Task
from privopt.solvers.families.quadratic_leader import QuadraticLeader

EPSILONS, DELTA, SEEDS = (0.5, 2.0, 8.0), 1e-6, 3
RULE = Participation.single_pass()
KNOWN = {1000: 0.0283, 4000: 0.0121, 16000: 0.0043}
"""Average regret of least squares, p = 8, epsilon 2, delta 1e-6, Honaker trees."""


# ---------------------------------------------------------------- streams of real data
def learn(model: Any, X: np.ndarray, y: np.ndarray, batch: int) -> tuple[np.ndarray, float]:
    """Regret after each step, and the score of the predictions, each made before its batch."""
    steps = len(X) // batch
    predicted = []
    for step in range(steps):
        rows = slice(batch * step, batch * step + batch)
        if step:
            predicted.append(model.predict(X[rows]))
        # The batch is its own evaluation here: a benchmark publishes nothing.
        model.partial_fit(X[rows], y[rows], public=(X[rows], y[rows]))
    guess, truth = np.concatenate(predicted), y[batch : batch * steps]
    if hasattr(model, "classes_"):
        return model.regret(), float(np.mean(guess == truth))
    return model.regret(), 1 - float(np.mean((guess - truth) ** 2) / np.var(truth))


def made(
    name: str, n_steps: int, bounds: Any, target: Any, epsilon: float | None, seed: int
) -> Any:
    how = {
        "epsilon": 1e6 if epsilon is None else epsilon,
        "delta": DELTA,
        "n_steps": n_steps,
        "bounds": bounds,
        "random_state": SilentSource() if epsilon is None else seed,
    }
    if name == "electricity":
        return OnlineLogisticRegression(classes=[0, 1], **how)
    # A row holds five indicators and seven numbers in [0, 1].
    return OnlineLinearRegression(target_bounds=target, data_norm=3.0, shrinkage=0.5, **how)


def real(name: str, batch: int, figures: list[Figure]) -> dict[str, np.ndarray]:
    X, y, bounds, *rest = stream(name)
    X, target = X.astype(float), rest[0] if rest else None
    steps = len(X) // batch
    score = "accuracy" if target is None else "R^2"
    traces = {}
    for epsilon in (None, *EPSILONS):
        runs = [
            learn(made(name, steps, bounds, target, epsilon, seed), X, y, batch)
            for seed in range(1 if epsilon is None else SEEDS)
        ]
        label = "not private" if epsilon is None else f"epsilon {epsilon:g}"
        traces[label] = np.mean([trace for trace, _ in runs], axis=0)
        figures.append(Figure(f"{name}, {label}: average regret", float(traces[label][-1])))
        figures.append(Figure(f"  {score} of predictions", float(np.mean([s for _, s in runs]))))
        console.print(f"{name}, {label}: regret {traces[label][-1]:.4f}")
    return traces


def plot(traces: dict[str, dict[str, np.ndarray]]) -> None:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(9, 3.5), layout="constrained")
    for axes, (name, lines) in zip(picture.subplots(1, 2), traces.items(), strict=True):
        for label, trace in lines.items():
            axes.semilogx(np.arange(1, len(trace) + 1), trace, label=label)
        axes.set(title=name, xlabel="days", ylabel="average regret")
        axes.legend()
    RESULTS.mkdir(exist_ok=True)
    picture.savefig(RESULTS / "online.png", dpi=120)


# ---------------------------------------------------------------- made data
def linear_losses(n: int, p: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Average regret of independent linear losses in the unit ball, and its bound."""
    noise = named("honaker", n, RULE)
    sigma = math.sqrt(noise.sensitivity_squared(RULE)) / gaussian_mu(epsilon, DELTA)
    facts = Facts(Problem(Logistic(), L2Ball(1.0)), n, p, "zero_out")
    task = Task(facts, Budget(epsilon, DELTA), 1, 1.0, 0.0, 0.0)
    norms = sigma * noise.row_norms()
    lam = task.best(n, norms)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, p)) + 0.3
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    buffers, leader, total = noise.stream(), Leader(L2Ball(1.0), np.zeros(p), lam), 0.0
    for vector in vectors:
        total += float(vector @ leader.iterate())
        leader.take(vector + sigma * buffers.next(lambda: rng.standard_normal(p)))
    best = -float(np.linalg.norm(vectors.sum(axis=0)))
    return (total - best) / n, task.regret(n, norms, lam)


def least_squares(n: int, seed: int, p: int = 8, epsilon: float = 2.0) -> float:
    """Average regret against the generating model, of norm 1/2; rows on the unit sphere."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.standard_normal(p)
    theta /= 2 * np.linalg.norm(theta)
    y = np.clip(X @ theta + 0.1 * rng.standard_normal(n), -1, 1)
    noise = named("honaker", n, RULE)
    scale = math.sqrt(2 * noise.sensitivity_squared(RULE)) / gaussian_mu(epsilon, DELTA)
    buffers, norms = noise.stream(), scale * noise.row_norms()
    leader = QuadraticLeader(RowBounds(1.0), 1.0, p, 1.0)
    total, model = 0.0, leader.iterate()
    for t in range(n):
        total += float((y[t] - X[t] @ model) ** 2 - (y[t] - X[t] @ theta) ** 2)
        exact = np.concatenate([svec(np.outer(X[t], X[t])), y[t] * X[t]])
        drawn = buffers.next(lambda: rng.standard_normal(p * (p + 3) // 2))
        leader.take(exact + scale * drawn, float(norms[t]))
        if t % max(1, n // 1000) == 0:
            model = leader.iterate()
    return total / n


def main(arguments: list[str]) -> None:
    figures: list[Figure] = []
    for n, p, epsilon in ((500, 4, 2.0), (2000, 20, 4.0), (4000, 2, 0.5)):
        pairs = [linear_losses(n, p, epsilon, seed) for seed in range(5)]
        found, bound = float(np.mean([pair[0] for pair in pairs])), pairs[0][1]
        name = f"linear losses, n={n}, p={p}, epsilon {epsilon:g}: regret over its bound"
        figures.append(Figure(name, found / bound, 1.0, "<="))
    for n, known in KNOWN.items():
        found = float(np.mean([least_squares(n, seed) for seed in range(2)]))
        note = f"known {known:g}, 40 % either way"
        figures.append(Figure(f"least squares, n={n}: regret", found, 1.4 * known, "<=", note=note))
    if folder() is None:
        console.print("Real streams skipped: set PRIVOPT_DATA to the folder that holds the data.")
    else:
        plot({"electricity": real("electricity", 48, figures), "bike": real("bike", 24, figures)})
    report("online", f"Streams, delta={DELTA:g}, zero_out, mean of {SEEDS} runs", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
