"""The fuzz table: number types, layouts, containers and hostile cells against every entry point.

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
from typing import Any

import numpy as np
import scipy.sparse as sp

import privopt
from privopt import Budget, Problem
from privopt.audit.replay import Tape
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.mechanisms import HOOK

N, P = 30, 3
CANARY = 77123.25
"""A number that no text may hold."""
BOUND = 1.0
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
)
LAYOUTS = ("C", "F", "strided", "reversed", "memmap", "read-only", "csr", "csc", "coo", "unsorted")
CONTAINERS = ("numpy", "pandas", "polars", "pyarrow", "masked")
CELLS = {
    "plain": 0.25,
    "NaN": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1e308": 1e308,
    "1e-308": 1e-308,
    "denormal": 5e-324,
    "canary": CANARY,
    "text": "77123.25 positive",
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


def trials(seed: int = 0, most: int | None = None) -> list[Trial]:
    """Greedy covering of all pairs of values of two columns that go together at all."""
    columns = (tuple(ENTRIES), NUMBERS, LAYOUTS, CONTAINERS, tuple(CELLS))
    missing = {
        (i, a, j, b)
        for (i, one), (j, other) in itertools.combinations(enumerate(columns), 2)
        for a, b in itertools.product(one, other)
    }
    generator, found = np.random.default_rng(seed), []
    while missing and (most is None or len(found) < most):
        i, a, j, b = sorted(missing)[int(generator.integers(len(missing)))]
        best, gain = None, set()
        for _ in range(15):
            row = [str(generator.choice(column)) for column in columns]
            row[i], row[j] = a, b
            covered = missing & {(k, row[k], m, row[m]) for k in range(5) for m in range(k + 1, 5)}
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
    X = generator.uniform(-0.5, 0.5, (N, P))
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    if trial.number in ("int8", "int64", "uint8", "bool"):
        X = np.rint(4 * np.abs(X))
    label = trial.cell == "huge label"
    if label:
        y[0] = cell
    if isinstance(cell, str) and trial.number != "object":
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept: np.ndarray = X.astype(trial.number)
        if not label:
            if kept.dtype.kind in "iub" and not (isinstance(cell, float) and abs(cell) < 100):
                return None
            kept[0, 0] = cell
    table = laid_out(kept, trial.layout)
    if table is None:
        return None
    table = contained(table, trial.container)
    return None if table is None else (table, y)


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


def contained(X: Any, container: str) -> Any:
    if container == "numpy":
        return X
    if sp.issparse(X):
        return None
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

        return pandas.DataFrame(X, columns=names)
    columns = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names)}
    if container == "polars":
        import polars

        return polars.DataFrame(columns)
    import pyarrow

    return pyarrow.table(columns)


# ---------------------------------------------------------------- entries
def _solve(X: Any, y: np.ndarray) -> Any:
    problem = Problem(Logistic(), L2Ball(3.0), data_norm=BOUND)
    found = privopt.solve(
        problem,
        X,
        y,
        budget=Budget(1.0, 1e-5, "replace_one"),
        solver="output_perturbation",
        random_state=0,
    )
    return [found.theta]


def _estimator(name: str, **own: Any) -> Callable[[Any, np.ndarray], Any]:
    def run(X: Any, y: np.ndarray) -> Any:
        known = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0, **SWAP, **own}
        model = getattr(privopt, name)(**known)
        if name.startswith("Online"):
            model.partial_fit(X, y)
        else:
            model.fit(X, y)
        return [model.coef_, model.intercept_]

    return run


def _quantile(method: str) -> Callable[[Any, np.ndarray], Any]:
    def run(X: Any, y: np.ndarray) -> Any:
        if sp.issparse(X):
            raise TypeError("a column is not sparse")
        column = X[:, 0] if isinstance(X, np.ndarray) else X["c0"]
        value, _ = privopt.quantile(
            column, 0.3, bounds=(-1.0, 1.0), method=method, random_state=0, **SWAP
        )
        return [value]

    return run


def _prefix_sums(X: Any, y: np.ndarray) -> Any:
    sums = privopt.prefix_sums(
        [X], bound=BOUND, epsilon=1.0, delta=1e-5, n_steps=2, random_state=0, **SWAP
    )
    return list(sums)


ENTRIES: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "solve": _solve,
    "quantile, loss": _quantile("loss"),
    "quantile, rank": _quantile("rank"),
    "prefix_sums": _prefix_sums,
    "LogisticRegression": _estimator("LogisticRegression", classes=[-1.0, 1.0]),
    "LogisticRegression, bounds": _estimator(
        "LogisticRegression", classes=[-1.0, 1.0], bounds=(-1.0, 1.0), nan_policy="empty"
    ),
    "LinearSVC": _estimator("LinearSVC", classes=[-1.0, 1.0]),
    "Ridge": _estimator("Ridge"),
    "HuberRegressor": _estimator("HuberRegressor"),
    "QuantileRegressor": _estimator("QuantileRegressor", bounds=(-1.0, 1.0)),
    "Lasso": _estimator("Lasso"),
    "SparseLogisticRegression": _estimator("SparseLogisticRegression", classes=[-1.0, 1.0]),
    "OnlineLogisticRegression": _estimator(
        "OnlineLogisticRegression", classes=[-1.0, 1.0], n_steps=1, batch_size=N
    ),
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
    if any(str(CANARY) in text or "77123" in text or "positive" in text for text in texts):
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
                result = ENTRIES[trial.entry](*given)
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
