"""What exact integers cost: noise for each coordinate, a gradient, and a whole fit."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, by_turns, report
from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.noise import SecureSource, discrete_gaussian, discrete_laplace, gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.solvers import Plan, catalogue, execute

N, P, STEPS, COORDINATES, REPEATS = 100_000, 100, 20, 1_000_000, 5


def main() -> None:
    source = SecureSource()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.1 * rng.standard_normal(N) > 0, 1.0, -1.0)
    problem, budget = Problem(Logistic(), L2Ball(3.0)), Budget(1.0, 1e-6)
    facts, solver = Facts(problem, N, P, "zero_out"), catalogue()["noisy_gd"]

    def oracle() -> Oracle:
        return Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)

    def fit(hardened: bool) -> None:
        settings = solver.settings(facts, budget, n_iter=STEPS, hardened=hardened)
        execute(Plan(solver, facts, budget, settings), [oracle()], source)

    view, query, theta = oracle().everything(), ClippedGradient(Logistic(), 1.0), np.ones(P) / P
    took = by_turns(
        {
            "gaussian": lambda: gaussian(source, 1.0, COORDINATES),
            "discrete gaussian": lambda: discrete_gaussian(source, COORDINATES),
            "discrete laplace": lambda: discrete_laplace(source, COORDINATES),
            "small": lambda: [discrete_gaussian(source, P) for _ in range(100)],
            "gradient": lambda: view.ask(query, theta),
            "counted gradient": lambda: view.ask(query, theta, steps=2.0**32),
            "fit": lambda: fit(False),
            "hardened fit": lambda: fit(True),
        },
        REPEATS,
    )
    cost = {name: seconds.cpu for name, seconds in took.items()}
    each = {name: cost[name] / COORDINATES * 1e9 for name in cost}
    share = STEPS * cost["small"] / 100 / cost["hardened fit"]
    report(
        "hardened",
        f"Exact integers, n={N}, p={P}, {STEPS} steps of noisy_gd, CPU time",
        [
            Figure("Gaussian, floating point, per coordinate", each["gaussian"], unit="ns"),
            Figure("discrete Gaussian, per coordinate", each["discrete gaussian"], 60, unit="ns"),
            Figure("discrete Laplace, per coordinate", each["discrete laplace"], unit="ns"),
            Figure("share of the fit that draws noise", 100 * share, 10, unit="%"),
            Figure("gradient", 1e3 * cost["gradient"], unit="ms"),
            Figure("gradient in integers", 1e3 * cost["counted gradient"], unit="ms"),
            Figure("hardened fit, times a plain one", cost["hardened fit"] / cost["fit"]),
        ],
    )


if __name__ == "__main__":
    main()
