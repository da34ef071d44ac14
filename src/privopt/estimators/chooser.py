"""Which classifier for so many columns: noise on all of them, or a choice among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt.estimators.logistic_regression import LogisticRegression
from privopt.estimators.sparse_logistic_regression import SparseLogisticRegression
from privopt.facts import Facts
from privopt.losses import Logistic
from privopt.privacy import Budget
from privopt.problem import Problem

ENOUGH = 0.4
"""n mu / p from which noise on every coefficient costs less than choosing columns."""


def auto(
    shape: tuple[int, int],
    epsilon: float = 1.0,
    delta: float = 0.0,
    *,
    bounds: Any = (-1.0, 1.0),
    neighbouring: Any = "zero_out",
    **parameters: Any,
) -> LogisticRegression | SparseLogisticRegression:
    """The classifier of two classes that suits a table of this shape, not fitted yet.

    ``LogisticRegression`` standardises columns and puts noise on every coefficient;
    ``SparseLogisticRegression`` chooses columns one by one and pays for the logarithm of their
    number. Which is better follows from r = n mu / p, public numbers all: on four collections of
    texts, with 200 to 130,000 words, the first was ahead in all cells from r = 0.45 on and the
    second below 0.28, at the same bounds.

    Parameters
    ----------
    shape : (int, int)
        Numbers of records and of columns, both public.
    epsilon : float, default=1.0
    delta : float, default=0.0
    bounds : pair, default=(-1.0, 1.0)
        Public bounds of the columns, numbers or one per column.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        Under add_remove the number of records is private: give a public one.
    **parameters
        Of both estimators: ``classes``, ``random_state``, ``ledger``, ...

    Examples
    --------
    >>> import privopt
    >>> type(privopt.auto((40_000, 300), epsilon=1.0, delta=1e-6)).__name__
    'LogisticRegression'
    >>> type(privopt.auto((1_000, 100_000), epsilon=1.0, delta=1e-6)).__name__
    'SparseLogisticRegression'
    """
    records, columns = (int(number) for number in shape)
    if min(records, columns) < 1:
        raise ValueError(f"shape must be numbers of records and of columns, got {shape!r}.")
    low, high = (np.asarray(end, dtype=float) for end in bounds)
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise ValueError("bounds must be finite, each low one below its high one.")
    budget = Budget(epsilon, delta, neighbouring)
    if neighbouring == "add_remove":
        parameters = {"n_public": records, **parameters}
    shared = {"neighbouring": neighbouring, **parameters}
    facts = Facts(Problem(Logistic(), intercept=1.0), records, columns + 1, neighbouring)
    if facts.plenty(budget, budget.pure) >= ENOUGH:
        return LogisticRegression(epsilon, delta, bounds=bounds, **shared)
    largest = np.maximum(np.abs(low), np.abs(high))
    feature_bounds: Any = float(largest) if largest.ndim == 0 else largest
    return SparseLogisticRegression(epsilon, delta, feature_bounds=feature_bounds, **shared)
