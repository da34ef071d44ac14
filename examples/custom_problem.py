"""A problem of your own: describe it, look at the plan, solve it.

How long does a delivery take? Once for the typical order (Huber regression) and once for the time
that nine of ten orders keep (quantile regression), on made-up orders.

    python examples/custom_problem.py
"""

import numpy as np

from privopt import Budget, Problem, plan, solve
from privopt.geometry import L2Ball
from privopt.losses import Huber, Quantile


def orders(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance (0 to 20 km) and number of items (0 to 10), scaled to [0, 1]; time in hours."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, 2))
    delay = rng.exponential(0.2, n)  # long tails: some orders are very late
    return X, 0.25 + X @ [0.6, 0.3] + delay


def main() -> None:
    X, y = orders(50_000)
    budget = Budget(epsilon=1.0, delta=1e-7)
    # Public facts: both features lie in [0, 1], so a row is no longer than sqrt(2); a constant
    # column of height 1 carries the intercept; no coefficient is larger than a few hours.
    public = {"domain": L2Ball(3.0), "data_norm": float(np.sqrt(2)), "intercept": 1.0}
    problems = {
        "typical": Problem(Huber(width=0.2), **public),
        "nine of ten": Problem(Quantile(q=0.9), **public),
    }
    print(plan(problems["typical"], n=len(X), p=2, budget=budget), end="\n\n")
    print(plan(problems["nine of ten"], n=len(X), p=2, budget=budget), end="\n\n")

    print("hours per     20 km  10 items  constant")
    for name, problem in problems.items():
        result = solve(problem, X, y, budget=budget)
        print(f"{name:12s}", *(f"{value:7.3f}" for value in result.theta))
        print(result.certificate, end="\n\n")
    print("Two answers from the same records: together they cost twice epsilon and twice delta.")


if __name__ == "__main__":
    main()
