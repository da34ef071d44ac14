"""No cell and no label of the data is in a message or a warning, whatever the entry point."""

from __future__ import annotations

import io
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import privopt
from privopt import Budget, PrivateSearchCV, Problem, solve
from privopt.geometry import L2Ball
from privopt.losses import Huber, Logistic
from tests.estimators.every import CASES, X, made

CANARY = "HIV-positive"
ODD = 271828182845904523
BOUNDED = {"two": Logistic(), "number": Huber(1.0)}


def _cells():
    """A hostile cell, and how it is put into a table."""
    rows = np.asarray(X, dtype=object)
    rows[7, 1] = CANARY
    yield "text", rows
    yield "text in a frame", pd.DataFrame(rows, columns=["a", "b", "c"])
    yield "text in lists", rows.tolist()
    yield "one axis", np.where(np.arange(120) == 7, float(ODD), 0.5)
    yield "text, one axis", rows[:, 1]
    yield "bytes", np.where(rows == CANARY, CANARY.encode(), rows)
    yield "a date", np.where(rows == CANARY, np.datetime64("2718-02-08"), rows)
    yield "complex", np.where(np.arange(360).reshape(120, 3) == 22, ODD + 1j, X)
    yield "nested", [[*row, [CANARY]] for row in X.tolist()]
    yield "ragged", [*X.tolist(), [ODD]]
    yield "huge integer", np.where(rows == CANARY, 10**400 + ODD, rows)
    yield "none", np.where(rows == CANARY, None, rows)


CELLS = dict(_cells())


def _labels(y):
    y = np.asarray(y, dtype=object)
    for name, label in {
        "text": CANARY,
        "number": ODD,
        "float": float(ODD),
        "huge integer": 10**400 + ODD,
        "bytes": CANARY.encode(),
        "nan": np.nan,
        "none": None,
        "tuple": (CANARY, ODD),
        "complex": ODD + 1j,
    }.items():
        hostile = y.copy()
        hostile[7] = label
        yield name, hostile


def _classes(y):
    return None if y.dtype.kind == "f" else np.unique(y).tolist()


def _estimators():
    for name in CASES:
        model, y = made(name)
        if "classes" in model.get_params() and _classes(y):
            model.set_params(classes=_classes(y))
        yield name, model, y
    search = PrivateSearchCV(
        privopt.LogisticRegression(classes=["no", "yes"]),
        {"data_norm": [1.0]},
        epsilon=3.0,
        random_state=1,
    )
    yield "PrivateSearchCV", search, made("LogisticRegression")[1]


ESTIMATORS = {name: (model, y) for name, model, y in _estimators()}


def quiet(call):
    """Everything a call says, its own texts and those of the exceptions behind them."""
    said = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(said):
        warnings.simplefilter("always")
        with redirect_stderr(said):
            try:
                call()
            except Exception as error:
                said.write("".join(traceback.format_exception_only(error)))
                behind = error.__cause__ or error.__context__
                while behind is not None:
                    said.write("".join(traceback.format_exception_only(behind)))
                    behind = behind.__cause__ or behind.__context__
    return said.getvalue() + " ".join(str(one.message) for one in caught)


def silent_of(text):
    found = [one for one in (CANARY, str(ODD), f"{float(ODD):g}", "2.718", "2718") if one in text]
    assert not found, text


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_cell_is_quoted_by_an_estimator(name):
    for kind, cells in CELLS.items():
        model, y = ESTIMATORS[name]
        model = privopt.estimators.private_search_cv.clone(model)
        labels = y if len(cells) == len(y) else np.append(y, y[0])
        silent_of(quiet(lambda m=model, c=cells, t=labels: m.fit(c, t)))
        if hasattr(model, "partial_fit"):
            silent_of(quiet(lambda m=model, c=cells, t=labels: m.partial_fit(c, t)))
        assert kind


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_label_is_quoted_by_an_estimator(name):
    model, y = ESTIMATORS[name]
    for _, labels in _labels(y):
        fresh = privopt.estimators.private_search_cv.clone(model)
        silent_of(quiet(lambda m=fresh, t=labels: m.fit(X, t)))
        if hasattr(fresh, "partial_fit"):
            silent_of(quiet(lambda m=fresh, t=labels: m.partial_fit(X, t)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS)
def test_no_cell_is_quoted_by_a_function(kind):
    cells = CELLS[kind]
    problem = Problem(Huber(1.0), L2Ball(1.0))
    one = [row[1] if isinstance(row, list) else row for row in np.asarray(X).tolist()]
    one[7] = CANARY if "text" in kind else 10**400 + ODD
    y = np.zeros(len(cells))
    options = {"bounds": (0, 1), "random_state": 0}
    sums = {"bound": 1.0, "epsilon": 1.0, "delta": 1e-5, "n_steps": 200, "random_state": 0}
    for call in (
        lambda: solve(problem, cells, y, budget=Budget(1.0, 1e-6), random_state=0),
        lambda: solve(problem, np.asarray(X), one, budget=Budget(1.0, 1e-6), random_state=0),
        lambda: privopt.quantile(cells, 0.5, **options),
        lambda: privopt.quantile(one, 0.5, **options),
        lambda: list(privopt.prefix_sums(cells, **sums)),
        lambda: list(privopt.prefix_sums(iter([cells]), **sums)),
        lambda: privopt.BoundedScaler().fit_transform(cells),
    ):
        silent_of(quiet(call))


# ------------------------------------------------------------ warnings that one record causes
HOSTILE = {
    "float32 squares overflow": (np.float32, 1e20),
    "float32 sums overflow": (np.float32, 3e38),
    "float64 squares overflow": (np.float64, 1e300),
    "denormal": (np.float32, 1e-42),
    "infinite": (np.float64, np.inf),
}


@pytest.mark.parametrize("columns", [3, 300])
@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_no_warning_comes_from_a_record(case, columns, sparse):
    dtype, cell = HOSTILE[case]
    draw = np.random.default_rng(0)
    plain = draw.uniform(-1, 1, size=(200, columns)).astype(dtype)
    plain[:, 2:] *= draw.random((200, columns - 2)) < 0.1
    y, hostile = np.where(plain[:, 0] > 0, 1.0, -1.0), plain.copy()
    hostile[5] = cell
    said = []
    for rows in (plain, hostile):
        rows = sp.csr_array(rows) if sparse else rows

        def run(rows=rows):
            for solver in ("auto", "noisy_gd"):
                privopt.LogisticRegression(
                    1.0, 1e-6, classes=[-1, 1], nan_policy="empty", random_state=0, solver=solver
                ).fit(rows, y)
            problem = Problem(Huber(1.0), L2Ball(1.0), data_norm=1.0)
            for solver in ("objective_perturbation", "noisy_sgd"):
                with np.errstate(all="warn"):
                    solve(problem, rows, y, budget=Budget(1, 1e-6), solver=solver, random_state=0)

        said.append(quiet(run))
    assert said[0] == said[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("label", [1e300, -1e39, 1e17, np.nan])
def test_no_warning_comes_from_a_label(label):
    rows = np.asarray(X, dtype=np.float32)
    for y in (np.zeros(120), np.where(np.arange(120) == 3, label, 0.0)):

        def run(y=y):
            for loss in (Huber(1.0), privopt.losses.Squared(residual_clip=1.0)):
                problem = Problem(loss, L2Ball(1.0))
                for solver in ("auto", "noisy_gd"):
                    solve(problem, rows, y, budget=Budget(1, 1e-6), solver=solver, random_state=0)

        assert quiet(run) == ""


def test_threads_do_not_warn_either(monkeypatch):
    from privopt.oracle import dense_blocks, threads

    monkeypatch.setattr(threads, "_workers", lambda: 2)
    monkeypatch.setattr(dense_blocks, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(dense_blocks, "BLOCK_BYTES", 1 << 12)
    rows = np.ones((4000, 30), dtype=np.float32)
    rows[5] = 1e20
    y = np.where(np.arange(4000) % 2, 1e30, -1.0)
    problem = Problem(Huber(1.0), L2Ball(1.0))
    assert quiet(lambda: solve(problem, rows, y, budget=Budget(1, 1e-6), solver="noisy_gd")) == ""


# ------------------------------------------------------------ masks
def test_masked_cells_are_missing_everywhere():
    values = np.ma.array(np.full(50, 5.0), mask=np.arange(50) >= 10)
    values.data[10:] = -5.0
    options = {"bounds": (-10.0, 10.0), "epsilon": 50.0, "random_state": 0}
    found = [privopt.quantile(v, 0.5, **options)[0] for v in (values, values.filled(np.nan))]
    assert found[0] == found[1] > 4
    stream = [np.ma.array([3.0, 4.0], mask=[False, t == 1]) for t in range(3)]
    plain = [item.filled(np.nan) for item in stream]
    sums = {"bound": 9.0, "epsilon": 1.0, "delta": 1e-5, "n_steps": 3, "random_state": 0}
    ours, theirs = (np.array(list(privopt.prefix_sums(s, **sums))) for s in (stream, plain))
    np.testing.assert_array_equal(ours, theirs)
