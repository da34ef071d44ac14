"""Every public way to a certificate, on a little data, as a function of a ledger."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import privopt
from privopt.losses import Logistic
from tests.estimators.every import CASES, GROUPS, TWO, X

APPROXIMATE = {"epsilon": 3.0, "delta": 1e-3}
NO_FIT = {
    "BoundedScaler", "Budget", "Certificate", "Ledger", "Participation", "PrivacyWarning",
    "Dataset", "Problem", "Refused", "SplineFeatures", "__version__", "auto", "check_pipeline",
    "dataset", "engines", "geometry",
    "load", "losses", "plan", "save",
}  # fmt: skip
"""Public names that make no certificate."""


def _fit(name: str, **more: Any) -> Any:
    group, kind, parameters = CASES[name]
    parameters = {key: value for key, value in parameters.items() if key != "random_state"}
    return kind(**parameters, **more).fit(X, GROUPS[group]).privacy_


def _batches(kind: Any, y: np.ndarray, **more: Any) -> Any:
    model = kind(n_steps=4, **APPROXIMATE, **more)
    for part in np.array_split(np.arange(len(X)), 4):
        extra = {"classes": ["no", "yes"]} if y is TWO else {}
        model.partial_fit(X[part], y[part], **extra)
    return model.privacy_


def _solve(**more: Any) -> Any:
    problem, budget = privopt.Problem(Logistic()), privopt.Budget(3.0, 1e-3)
    y = np.where(TWO == "yes", 1.0, -1.0)
    return privopt.solve(problem, X, y, budget=budget, solver="noisy_gd", **more).certificate


def _quantile(method: str, **more: Any) -> Any:
    return privopt.quantile(X[:, 0], 0.5, bounds=(-1, 1), method=method, **more)[1]


def _select(**more: Any) -> Any:
    return privopt.select(X, bounds=(-1, 1), **more)[1]


def _sums(n_steps: int | None, **more: Any) -> Any:
    sums = privopt.prefix_sums(X, bound=1.0, n_steps=n_steps, **APPROXIMATE, **more)
    list(sums)
    return sums.certificate


def _search(strategy: str, **more: Any) -> Any:
    estimator = privopt.LogisticRegression(classes=["no", "yes"])
    grid: dict[str, Any] = {"data_norm": [0.5, 2.0]}
    if strategy == "plan":  # errors of one loss over the same rows can be compared
        grid = {"solver": ["objective_perturbation", "noisy_gd"]}
    search = privopt.PrivateSearchCV(
        estimator, grid, n_runs=20, strategy=strategy, **APPROXIMATE, **more
    )
    return search.fit(X, TWO).privacy_


def _refits(**more: Any) -> Any:
    model = privopt.LogisticRegression(classes=["no", "yes"], **APPROXIMATE)
    return privopt.RefitStream(model, block_size=40, **more).fit(X, TWO).privacy_


def _parts(**more: Any) -> Any:
    model = privopt.LogisticRegression(classes=["no", "yes"], **APPROXIMATE, **more)
    return privopt.IntervalsByParts(model, parts=3).fit(X, TWO).privacy_


def _band(**more: Any) -> Any:
    y = GROUPS["number"]
    model = privopt.LinearRegression(8.0, random_state=0).fit(X, y)
    return privopt.prediction_intervals(model, X, y, level=0.5, epsilon=3.0, **more).privacy_


def _train(noise: str, batches: str, **more: Any) -> Any:
    torch = pytest.importorskip("torch")
    from privopt.torch import make_private

    y = torch.tensor((TWO == "yes").astype(float)).float()
    data = torch.utils.data.TensorDataset(torch.tensor(X).float(), y)
    model = torch.nn.Linear(3, 1)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.utils.data.DataLoader(data, batch_size=40),
        epochs=2,
        noise=noise,
        batches=batches,
        **APPROXIMATE,
        **more,
    )
    for _ in range(2):
        for x, target in private.loader:
            private.step(lambda out, t: (out[:, 0] - t) ** 2, x, targets=target)
    return private.certificate()


def _rounds(**more: Any) -> Any:
    from privopt.federated import Server

    server = Server(np.zeros(3), rounds=4, report_goal=10, clip_norm=0.5, **APPROXIMATE, **more)
    for _ in range(4):
        for person in server.begin_round(range(len(X))):
            server.answer(person, X[person])
        server.end_round()
    return server.certificate()


def _evaluate(**more: Any) -> Any:
    model = LinearSVC().fit(X, TWO)
    return privopt.evaluate(model, X, TWO, 0.5, **more).certificate


ROADS = {
    **{name: partial(_fit, name) for name in CASES},
    "OnlineLogisticRegression, batches": partial(_batches, privopt.OnlineLogisticRegression, TWO),
    "OnlineLogisticRegression, standardised": partial(
        _batches, privopt.OnlineLogisticRegression, TWO, bounds=(-3.0, 3.0)
    ),
    "OnlineLinearRegression, batches": partial(
        _batches, privopt.OnlineLinearRegression, GROUPS["number"]
    ),
    "PrivateSearchCV": partial(_search, "private"),
    "PrivateSearchCV, planned": partial(_search, "plan"),
    "RefitStream": _refits,
    "IntervalsByParts": _parts,
    "prediction_intervals": _band,
    "evaluate": _evaluate,
    "solve": _solve,
    "quantile": partial(_quantile, "loss"),
    "quantile, rank": partial(_quantile, "rank"),
    "select": _select,
    "prefix_sums": partial(_sums, 120),
    "prefix_sums, open-ended": partial(_sums, None),
    "federated": partial(_rounds, min_separation=2),
    "federated, adaptive": partial(_rounds, min_separation=2, noise="tree", adaptive=0.5),
    "federated, sampled": partial(_rounds, population=len(X), noise="banded"),
    "torch": partial(_train, "independent", "poisson"),
    "torch, banded": partial(_train, "banded", "poisson"),
    "torch, fixed": partial(_train, "blt", "fixed"),
}


def travelled(road: str, **more: Any) -> Any:
    """The certificate at the end of a road."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", privopt.PrivacyWarning)
        return ROADS[road](**more)
