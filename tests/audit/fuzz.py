"""The fuzz table: number types, layouts, containers, hostile cells and scales against every entry
point.

A covering of all pairs of columns, seeded: each two values of two columns meet in one trial. One
trial is a call on ordinary records among which one is hostile, and on those in which that one is
plain, under replace_one. What is looked at: each release's movement within its sensitivity; what
came out is finite; no text quotes a planted cell; and whether a refusal that depends on one record
is one of the documented kinds.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import linear_model

import privopt
from privopt import Budget, Problem
from privopt.audit.replay import Tape
from privopt.geometry import L2Ball
from privopt.losses import EuclideanDistance, Huber, Logistic
from privopt.mechanisms import HOOK
from privopt.oracle.labels import numbers

N, P = 30, 3
CANARY = 77123.25
"""A number that no text may hold."""
SWAP = {"neighbouring": "replace_one"}

NUMBERS = (
    "float16",
    "float32",
    "float64",
    "longdouble",
    "int8",
    "int64",
    "uint8",
    "bool",
    "object",
    "Decimal",
    "nullable",
    "nullable integers",
    "bfloat16",
)
LAYOUTS = ("C", "F", "strided", "reversed", "memmap", "read-only", "csr", "csc", "coo", "unsorted")
CONTAINERS = ("numpy", "pandas", "polars", "pyarrow", "masked", "torch", "lists")
SCALES = (1.0, 1e-25, 1e-90, 1e25)
"""Of the rows, and of the bounds that are declared for them."""
CELLS = {
    "plain": 0.25,
    "NaN": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1e308": 1e308,
    "1e-308": 1e-308,
    "denormal": 5e-324,
    "canary": CANARY,
    "text": "77123.25 seropositive",
    "None": None,
    "signalling NaN": Decimal("sNaN"),
    "huge integer": 10**400,
    "huge label": 1e300,
}
DOCUMENTED = re.compile(
    r"NaN|missing|infinity|finite|not a number|could not convert|numbers|too large|numeric|Unknown"
    r"|number of |dtype|masked|classes|labels|is a vector"
)
"""Words of the refusals of docs/sharp-edges.md: a missing value, a label outside ``classes``, what
is no number."""
SPARSE = ("csr", "csc", "coo", "unsorted")


@dataclass(frozen=True)
class Trial:
    entry: str
    number: str
    layout: str
    container: str
    cell: str
    scale: float = 1.0


def trials(seed: int = 0, most: int | None = None) -> list[Trial]:
    """Greedy covering of all pairs of values of two columns that go together at all."""
    columns = (tuple(ENTRIES), NUMBERS, LAYOUTS, CONTAINERS, tuple(CELLS), SCALES)
    missing = {
        (i, a, j, b)
        for (i, one), (j, other) in itertools.combinations(enumerate(columns), 2)
        for a, b in itertools.product(one, other)
    }
    generator, found = np.random.default_rng(seed), []
    while missing and (most is None or len(found) < most):
        i, a, j, b = sorted(missing, key=str)[int(generator.integers(len(missing)))]
        best, gain = None, set()
        for _ in range(15):
            row = [column[int(generator.integers(len(column)))] for column in columns]
            row[i], row[j] = a, b
            pairs = itertools.combinations(range(len(columns)), 2)
            covered = missing & {(k, row[k], m, row[m]) for k, m in pairs}
            if len(covered) > len(gain) and data(Trial(*row), CELLS[row[4]]) is not None:
                best, gain = row, covered
        missing -= gain or {(i, a, j, b)}
        if best is not None:
            found.append(Trial(*best))
    return found


# ---------------------------------------------------------------- data
def data(trial: Trial, cell: Any) -> tuple[Any, np.ndarray] | None:
    """Rows and labels with this cell in the first record; None where the kinds do not go
    together (a text in an array of floats, a frame of a sparse matrix)."""
    generator = np.random.default_rng(7)
    X = generator.uniform(-0.5, 0.5, (N, P)) * trial.scale
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    whole = trial.number in ("int8", "int64", "uint8", "bool", "nullable integers")
    if whole:
        X = np.rint(4 * np.abs(X))
    label = trial.cell == "huge label"
    if label:
        y[0] = cell
    elif not isinstance(cell, float) and trial.number not in ("object", "Decimal"):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not label and whole and not abs(cell) < 100:
            return None
        kept = typed(X, trial.number, None if label else cell)
    table = None if kept is None else laid_out(kept, trial.layout)
    if table is not None:
        table = contained(table, trial.container, trial.number)
    return None if table is None else (table, y)


def typed(X: np.ndarray, number: str, cell: Any) -> np.ndarray:
    """Numbers of a type; those that NumPy does not know come later, or as objects."""
    kept: np.ndarray = X.astype(
        {"nullable": "float64", "nullable integers": "int64", "bfloat16": "float32"}.get(
            number, "object" if number == "Decimal" else number
        )
    )
    if number == "Decimal":
        kept = np.vectorize(Decimal, otypes=[object])(X)
        cell = Decimal(cell) if isinstance(cell, (int, float)) else cell
    if cell is not None or kept.dtype == object:
        kept[0, 0] = cell if cell is not None or number != "Decimal" else None
    return kept


def laid_out(X: np.ndarray, layout: str) -> Any:
    if layout in SPARSE and (X.dtype == object or X.dtype == np.float16):
        return None
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "strided":
        wide = np.zeros((2 * N, 2 * P), dtype=X.dtype)
        wide[::2, ::2] = X
        return wide[::2, ::2]
    if layout == "reversed":
        return X[::-1].copy()[::-1]
    if layout == "memmap":
        return None if X.dtype == object else X.view(np.memmap)
    if layout == "read-only":
        X = X.copy()
        X.flags.writeable = False
        return X
    if layout == "csr":
        return sp.csr_array(X)
    if layout == "csc":
        return sp.csc_array(X)
    if layout == "coo":
        return sp.coo_array(X)
    if layout == "unsorted":
        rows = sp.csr_array(X)
        for start, stop in itertools.pairwise(rows.indptr):
            rows.indices[start:stop] = rows.indices[start:stop][::-1]
            rows.data[start:stop] = rows.data[start:stop][::-1]
        rows.has_sorted_indices = False
        return rows
    return X


HOMES = {"nullable": "pandas", "nullable integers": "pandas", "bfloat16": "torch"}
"""Numbers that only one container knows."""


def contained(X: Any, container: str, number: str) -> Any:
    if HOMES.get(number, container) != container:
        return None
    if sp.issparse(X):
        return X if container == "numpy" else None
    if container == "numpy":
        return X
    if container == "lists":
        return X.tolist()
    if container == "torch":
        import torch

        if X.dtype in (np.longdouble, object) or X.strides[0] < 0 or not X.flags.writeable:
            return None
        rows = torch.from_numpy(np.asarray(X))
        return rows.to(torch.bfloat16) if number == "bfloat16" else rows
    if container == "masked":
        if X.dtype == object:
            return None
        mask = np.zeros(X.shape, dtype=bool)
        mask[0, 1] = True
        return np.ma.masked_array(X, mask)
    if X.dtype in (np.longdouble, object, np.float16) and container != "pandas":
        return None
    names = [f"c{j}" for j in range(P)]
    if container == "pandas":
        import pandas

        frame = pandas.DataFrame(X, columns=names)
        if number in HOMES:
            kind = "Int64" if number == "nullable integers" else "Float64"
            frame = frame.astype(kind)
            frame.iloc[1, 1] = pandas.NA
        return frame
    columns = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names)}
    if container == "polars":
        import polars

        return polars.DataFrame(columns)
    import pyarrow

    return pyarrow.table(columns)


# ---------------------------------------------------------------- entries
Entry = Callable[[Any, np.ndarray, float], Any]
"""From rows, labels and a bound of rows to what came out."""


def _solve(solver: str, problem: Callable[[float], Problem]) -> Entry:
    def run(X: Any, y: np.ndarray, bound: float) -> Any:
        budget = Budget(1.0, 1e-5, "replace_one")
        found = privopt.solve(problem(bound), X, y, budget=budget, solver=solver, random_state=0)
        return [found.theta]

    return run


def _estimator(name: str, scaled: str | None = None, **own: Any) -> Entry:
    def run(X: Any, y: np.ndarray, bound: float) -> Any:
        known = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0, **SWAP, **own}
        if scaled is not None:
            known[scaled] = bound if scaled == "data_norm" else (-bound, bound)
        model = getattr(privopt, name)(**known)
        if name.startswith("Online"):
            model.partial_fit(X, y)
        else:
            model.fit(X, y)
        return [model.coef_, model.intercept_]

    return run


def _erm(X: Any, y: np.ndarray, bound: float) -> Any:
    problem = Problem(Logistic(), L2Ball(3.0 / bound), data_norm=bound)
    model = privopt.PrivateERM(problem, 1.0, 1e-5, random_state=0, **SWAP)
    return [model.fit(X, y).coef_]


def _search(X: Any, y: np.ndarray, bound: float) -> Any:
    solver = "output_perturbation"
    model = privopt.LogisticRegression(classes=[-1.0, 1.0], nan_policy="empty", solver=solver)
    grid = {"data_norm": [bound, 2 * bound]}
    search = privopt.PrivateSearchCV(
        model, grid, epsilon=2.0, delta=1e-5, n_runs=2.0, random_state=0, **SWAP
    )
    search.fit(X, y)
    return [search.best_score_, search.best_estimator_.coef_]


def _evaluate(kind: str) -> Entry:
    def run(X: Any, y: np.ndarray, bound: float) -> Any:
        rows = np.linspace(-1, 1, 20 * P).reshape(20, P) * bound
        if kind == "numbers":
            model: Any = linear_model.LinearRegression().fit(rows, rows[:, 0] / bound)
            how: dict[str, Any] = {"target_bounds": (-1.0, 1.0)}
        else:
            model = linear_model.LogisticRegression().fit(rows, np.where(rows[:, 0] > 0, 1.0, -1.0))
            how = {}
        found = privopt.evaluate(model, X, y, 1.0, random_state=0, **SWAP, **how)
        return [found.sums]

    return run


def _torch(X: Any, y: np.ndarray, bound: float) -> Any:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from privopt.noise.random_numbers import same_random_numbers
    from privopt.torch import make_private

    if not isinstance(X, torch.Tensor):
        X = torch.from_numpy(np.asarray(numbers(X, "X"), dtype=float).copy())
    if not X.dtype.is_floating_point:
        X = X.float()
    with same_random_numbers():
        model = torch.nn.Linear(P, 1).to(X.dtype)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 0.5),
        DataLoader(TensorDataset(X, torch.from_numpy(y).to(X.dtype)), batch_size=10),
        epsilon=1.0,
        delta=1e-5,
        epochs=1,
        clip_norm=bound,
        random_state=0,
        **SWAP,
    )
    for x, t in private.loader:
        private.step(lambda out, t: torch.nn.functional.softplus(-out[:, 0] * t), x, targets=t)
    return [part.detach().double().numpy() for part in model.parameters()]


def _quantile(method: str) -> Entry:
    def run(X: Any, y: np.ndarray, bound: float) -> Any:
        if sp.issparse(X):
            raise TypeError("a column is not sparse")
        if isinstance(X, list):
            column: Any = [row[0] for row in X]
        else:
            column = X["c0"] if hasattr(X, "columns") else X[:, 0]
        ends = (-bound, bound)
        value, _ = privopt.quantile(column, 0.3, bounds=ends, method=method, random_state=0, **SWAP)
        return [value]

    return run


def _prefix_sums(X: Any, y: np.ndarray, bound: float) -> Any:
    sums = privopt.prefix_sums(
        [X], bound=bound, epsilon=1.0, delta=1e-5, n_steps=2, random_state=0, **SWAP
    )
    return list(sums)


TWO = {"classes": [-1.0, 1.0]}
ENTRIES: dict[str, Entry] = {
    "solve": _solve(
        "output_perturbation",
        lambda bound: Problem(Logistic(), L2Ball(3.0 / bound), data_norm=bound),
    ),
    "solve, noisy_gd": _solve(
        "noisy_gd", lambda bound: Problem(Huber(0.5), L2Ball(3.0 / bound), data_norm=bound)
    ),
    "solve, vectors": _solve(
        "noisy_gd",
        lambda bound: Problem(EuclideanDistance(), L2Ball(2 * bound), data_norm=bound),
    ),
    "quantile, loss": _quantile("loss"),
    "quantile, rank": _quantile("rank"),
    "prefix_sums": _prefix_sums,
    "evaluate": _evaluate("classes"),
    "evaluate, numbers": _evaluate("numbers"),
    "PrivateERM": _erm,
    "PrivateSearchCV": _search,
    "torch.make_private": _torch,
    "LogisticRegression": _estimator("LogisticRegression", "data_norm", **TWO),
    "LogisticRegression, bounds": _estimator(
        "LogisticRegression", "bounds", nan_policy="empty", **TWO
    ),
    "LogisticRegression, splines": _estimator(
        "LogisticRegression", "bounds", nan_policy="empty", features="splines", **TWO
    ),
    "LinearSVC": _estimator("LinearSVC", "data_norm", **TWO),
    "LinearRegression": _estimator("LinearRegression", "bounds", target_bounds=(-1.0, 1.0)),
    "Ridge": _estimator("Ridge", "data_norm"),
    "HuberRegressor": _estimator("HuberRegressor", "data_norm"),
    "PoissonRegressor": _estimator("PoissonRegressor", "bounds"),
    "GammaRegressor": _estimator("GammaRegressor", "bounds"),
    "QuantileRegressor": _estimator("QuantileRegressor", "bounds"),
    "Lasso": _estimator("Lasso"),
    "ElasticNet": _estimator("ElasticNet"),
    "SparseLogisticRegression": _estimator("SparseLogisticRegression", **TWO),
    "OnlineLogisticRegression": _estimator(
        "OnlineLogisticRegression", "data_norm", n_steps=1, batch_size=N, **TWO
    ),
    "OnlineLogisticRegression, bounds": _estimator(
        "OnlineLogisticRegression", "bounds", n_steps=1, batch_size=N, **TWO
    ),
    "OnlineLinearRegression": _estimator("OnlineLinearRegression", n_steps=1, batch_size=N),
}


# ---------------------------------------------------------------- one trial
def findings(trial: Trial) -> list[str] | None:
    """What is wrong with a trial; None if its columns do not go together."""
    hostile, plain = data(trial, CELLS[trial.cell]), data(trial, CELLS["plain"])
    if trial.cell == "huge label":
        plain = data(trial, 1.0)
    if hostile is None or plain is None:
        return None
    tape = Tape()
    said, result, texts = _observe(trial, hostile, tape)
    found = []
    if any(str(CANARY) in text or "77123" in text or "seropositive" in text for text in texts):
        found.append("a text quotes a cell")
    if said is None and not all(
        np.isfinite(np.asarray(part, dtype=float)).all() for part in result
    ):
        found.append("what came out is not finite")
    if said is not None and tape.releases:
        found.append(f"it failed after it had released: {said}")
    if said is not None and not DOCUMENTED.search(said):
        calm = _observe(trial, plain, Tape())[0]
        if calm != said:
            found.append(f"a refusal depends on one record: {said}")
    if not tape.releases:
        return found
    tape.playing = True
    # A neighbour may be refused for itself; what was released in between has been compared.
    _observe(trial, plain, tape)
    return found + list(dict.fromkeys(tape.findings))


def _observe(
    trial: Trial, given: tuple[Any, np.ndarray], tape: Tape
) -> tuple[str | None, Any, list[str]]:
    """Refusal, result, and every text that was said."""
    texts: list[str] = []
    refusal, result = None, []
    token = HOOK.set(tape)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = ENTRIES[trial.entry](*given, trial.scale)
            except Exception as error:
                refusal = f"{type(error).__name__}: {error}"
                texts.append(refusal)
                while (error := error.__cause__ or error.__context__) is not None:
                    texts.append(str(error))
        texts += [str(one.message) for one in caught]
    finally:
        HOOK.reset(token)
    return refusal, result, texts


def sweep(seed: int, most: int | None = None) -> Iterator[tuple[Trial, list[str]]]:
    for trial in trials(seed, most):
        found = findings(trial)
        if found is not None:
            yield trial, found


def main(seeds: int) -> int:
    """``python -m tests.audit.fuzz 20``: so many coverings, one after the other."""
    wrong = count = 0
    for seed in range(seeds):
        for trial, found in sweep(seed):
            count += 1
            if found:
                wrong += 1
                print(trial, found, flush=True)
    print(f"{count} trials, {wrong} with findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
