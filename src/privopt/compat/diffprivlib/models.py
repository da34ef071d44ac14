"""Models of diffprivlib that privopt has, by the arguments people know.

Each function returns privopt's estimator: fitted attributes, ``predict`` and pipelines are those of
scikit-learn, and ``privacy_`` is a certificate.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import privopt

__all__ = ["LinearRegression", "LogisticRegression"]

_ABSENT = {
    "StandardScaler": "give bounds= to the estimator, which then standardises within its budget, "
    "or scale by public numbers with privopt.BoundedScaler",
    "PCA": "privopt has no private principal components",
    "GaussianNB": "use privopt.LogisticRegression",
    "KMeans": "privopt has no private clusters",
    "DecisionTreeClassifier": 'use privopt.LogisticRegression(features="splines")',
    "RandomForestClassifier": 'use privopt.LogisticRegression(features="splines")',
}


def LogisticRegression(
    *,
    epsilon: float = 1.0,
    data_norm: float | None = None,
    tol: float | None = None,
    C: float | None = None,
    fit_intercept: bool = True,
    max_iter: int | None = None,
    verbose: Any = None,
    warm_start: bool = False,
    n_jobs: Any = None,
    random_state: Any = None,
    accountant: Any = None,
    **more: Any,
) -> privopt.LogisticRegression:
    """privopt's classifier, pure under ``replace_one``; ``more`` goes to it as it is.

    ``data_norm`` (or ``bounds``) has to be given. ``C``, ``tol`` and ``max_iter`` are chosen from
    public facts by privopt.
    """
    _unused("LogisticRegression", C=C, tol=tol, max_iter=max_iter, warm_start=warm_start or None)
    _ledger(accountant)
    if data_norm is None and more.get("bounds") is None:
        raise ValueError(
            "LogisticRegression needs data_norm, the largest length of a row, or bounds of the "
            "columns: diffprivlib would read it off the data, which its epsilon does not cover."
        )
    norm = {} if data_norm is None else {"data_norm": data_norm}
    chosen = {**_GUARANTEE, **norm, "fit_intercept": fit_intercept, "random_state": random_state}
    return privopt.LogisticRegression(epsilon, **{**chosen, **more})


def LinearRegression(
    *,
    epsilon: float = 1.0,
    bounds_X: Any = None,
    bounds_y: Any = None,
    fit_intercept: bool = True,
    copy_X: bool = True,
    random_state: Any = None,
    accountant: Any = None,
    **more: Any,
) -> privopt.LinearRegression:
    """privopt's least squares, pure under ``replace_one``; ``more`` goes to it as it is."""
    _ledger(accountant)
    if bounds_X is None or bounds_y is None:
        raise ValueError(
            "LinearRegression needs bounds_X=(lowest, highest) of the columns and bounds_y of the "
            "target: diffprivlib would read them off the data, which its epsilon does not cover."
        )
    low, high = (np.asarray(side, float) for side in bounds_X)
    least, most = (float(np.asarray(side, float).min()) for side in bounds_y)
    bounds = (low.item(), high.item()) if low.ndim == high.ndim == 0 else (low, high)
    chosen = {**_GUARANTEE, "bounds": bounds, "target_bounds": (least, most)}
    chosen |= {"fit_intercept": fit_intercept, "random_state": random_state}
    return privopt.LinearRegression(epsilon, **{**chosen, **more})


_GUARANTEE = {"delta": 0.0, "neighbouring": "replace_one"}


def _unused(name: str, **given: Any) -> None:
    named = [key for key, value in given.items() if value is not None]
    if named:
        text = f"{name}: privopt chooses {', '.join(named)} from public facts; yours is not used."
        warnings.warn(text, UserWarning, stacklevel=3)


def _ledger(accountant: Any) -> None:
    if accountant is not None:
        raise TypeError("accountant= is not taken: give ledger= and dataset=, a privopt.Ledger.")


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise ImportError(f"privopt has no {name} of diffprivlib's: {_ABSENT[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
