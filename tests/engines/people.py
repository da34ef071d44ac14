"""A small data set in files, the fits that are tried on it, and what they gave in this process."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privopt
from privopt import Budget, LinearRegression, LogisticRegression, Problem, solve
from privopt.engines import Here
from privopt.geometry import L1Ball
from privopt.losses import Logistic

N, P = 1200, 4
FEATURES = [f"a{j}" for j in range(P)]
CANARIES = [1234.5 + 7919 * k + 0.0625 for k in range(P)]
"""Values that nothing but a row holds."""


@lru_cache
def arrays():
    rng = np.random.default_rng(7)
    X = rng.uniform(0, 10, (N, P))
    scores = (X - 5) @ np.array([1.0, -0.5, 0.25, 0.0]) + rng.logistic(size=N)
    return X, scores


def write(folder, group=100):
    """Three files of row groups, with a target of each kind."""
    X, scores = arrays()
    folder.mkdir(exist_ok=True)
    table = {name: X[:, j] for j, name in enumerate(FEATURES)}
    table |= {
        "sign": np.where(scores > 0, 1, -1),
        "class": np.digitize(scores, [-2, 2]),
        "number": np.clip(scores, -9, 9),
    }
    for k in range(3):
        part = {name: values[k * N // 3 : (k + 1) * N // 3] for name, values in table.items()}
        pq.write_table(pa.table(part), folder / f"part{k}.parquet", row_group_size=group)
    return folder


def listed(folder, target, chunk_rows=None):
    return privopt.dataset(folder, target=target, columns=FEATURES, chunk_rows=chunk_rows)


def solved(name, problem, **choices):
    def fit(data, engine):
        found = solve(
            problem, data, budget=Budget(2.0, 1e-6), solver=name, random_state=3, engine=engine,
            **choices,
        )  # fmt: skip
        return found.theta, found.certificate

    return fit


def fitted(make):
    def fit(data, engine):
        model = make().fit(data, engine=engine)
        return np.append(np.ravel(model.coef_), model.intercept_), model.privacy_

    return fit


BOUNDS = {"bounds": (0, 10), "random_state": 3}
NORM = Problem(Logistic(), data_norm=20.0)
VERTICES = Problem(Logistic(), L1Ball(2.0), column_bounds=10.0)
FITS = {
    "noisy_gd": ("sign", solved("noisy_gd", NORM, n_iter=4)),
    "noisy_sgd": ("sign", solved("noisy_sgd", NORM, n_iter=4, batch_size=100)),
    "objective_perturbation": ("sign", solved("objective_perturbation", NORM)),
    "frank_wolfe": ("sign", solved("frank_wolfe", VERTICES, n_iter=3)),
    "standardized_objective": (
        "sign",
        fitted(lambda: LogisticRegression(2.0, 1e-6, classes=[-1, 1], **BOUNDS)),
    ),
    "standardized_regression": (
        "number",
        fitted(lambda: LinearRegression(2.0, 1e-6, target_bounds=(-9, 9), **BOUNDS)),
    ),
    "many_classes": (
        "class",
        fitted(lambda: LogisticRegression(2.0, 1e-6, classes=[0, 1, 2], **BOUNDS)),
    ),
}
"""By name: the target, and from data and engine to parameters and certificate."""


def here(folder, name, chunk_rows=None):
    """What this process finds."""
    target, fit = FITS[name]
    return fit(listed(folder, target, chunk_rows), Here())[0]
