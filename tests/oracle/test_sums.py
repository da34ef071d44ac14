"""Sums over records against naive loops: clipped gradients, and the objective with derivatives."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared
from privopt.oracle import ClippedGradient, CountRecords, RowBounds, dense_blocks, threads
from privopt.oracle.objective import Objective, function_facts
from privopt.oracle.oracle import make_rows

LOSSES = [
    Logistic(),
    Squared(),
    Squared(residual_clip=0.7),
    Huber(0.4),
    Hinge(),
    SmoothedHinge(0.3),
    Absolute(),
    Quantile(0.8),
]
SMOOTH = [Logistic(), Squared(), Squared(residual_clip=0.7), Huber(0.4), SmoothedHinge(0.3)]
DATA_NORM = 1.5

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=repr)
with_and_without_intercept = pytest.mark.parametrize("intercept", [0.0, 0.7])


def fortran(X):
    return np.asfortranarray(X)


def every_second_row(X):
    return np.repeat(X, 2, axis=0)[::2]


def backwards(X):
    return X[::-1].copy()[::-1]


def inner_columns(X):
    wide = np.full((X.shape[0], X.shape[1] + 4), 7.0)
    wide[:, 2:-2] = X
    return wide[:, 2:-2]


EXACT = {
    "C order": np.ascontiguousarray,
    "Fortran order": fortran,
    "every second row": every_second_row,
    "negative stride": backwards,
    "inner columns": inner_columns,
    "CSR": sp.csr_array,
    "CSC": sp.csc_array,
    "COO": sp.coo_array,
    "CSR matrix": sp.csr_matrix,
    "torch": torch.from_numpy,
    "torch transposed": lambda X: torch.from_numpy(np.ascontiguousarray(X.T)).T,
    "long double": lambda X: X.astype(np.longdouble),
}
SINGLE = {
    "float32": lambda X: X.astype(np.float32),
    "float32 Fortran": lambda X: np.asfortranarray(X, dtype=np.float32),
    "torch float32": lambda X: torch.from_numpy(X.astype(np.float32)),
}


def table(seed, n, p, loss, spread=1.0):
    """Rows of which about half need clipping, exact in single precision."""
    rng = np.random.default_rng(seed)
    X = (spread * rng.normal(size=(n, p))).astype(np.float32).astype(float)
    y = rng.choice([-1.0, 1.0], size=n) if loss.classification else rng.normal(size=n)
    return X, y.astype(np.float32).astype(float)


def theta_for(seed, dimension):
    return np.random.default_rng(seed + 1).normal(size=dimension)


def clipped_total(X, y, loss, theta, clip_norm, intercept):
    rows = make_rows(X, y, RowBounds(DATA_NORM, intercept), loss.classification)
    return ClippedGradient(loss, clip_norm).total(rows, theta)


# ------------------------------------------------------------ clipped gradients
@every_loss
@with_and_without_intercept
@pytest.mark.parametrize("clip_norm", [0.2, 50.0])
def test_clipped_gradient_is_the_naive_sum(naive, loss, intercept, clip_norm):
    X, y = table(3, 41, 4, loss)
    assert 5 < (np.linalg.norm(X, axis=1) > DATA_NORM).sum() < 36
    theta = theta_for(3, 4 + (intercept > 0))
    expected = naive.clipped_gradient(loss, X, y, theta, clip_norm, DATA_NORM, intercept)
    for name, form in EXACT.items():
        got = clipped_total(form(X), y, loss, theta, clip_norm, intercept)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12, err_msg=name)
    for name, form in SINGLE.items():
        got = clipped_total(form(X), y, loss, theta, clip_norm, intercept)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=3e-5, err_msg=name)


def test_labels_may_be_lists_tensors_or_integers(naive):
    X, y = table(4, 10, 3, Logistic())
    theta = theta_for(4, 3)
    expected = naive.clipped_gradient(Logistic(), X, y, theta, 0.5, DATA_NORM)
    for form in (list, torch.from_numpy, lambda y: y.astype(int), lambda y: (y > 0).astype(int)):
        got = clipped_total(torch.from_numpy(X), form(y), Logistic(), theta, 0.5, 0.0)
        np.testing.assert_allclose(got, expected, atol=1e-12)
    integers = (10 * X).astype(int)
    expected = naive.clipped_gradient(Logistic(), integers, y, theta, 0.5, DATA_NORM)
    for form in (np.asarray, torch.from_numpy):
        got = clipped_total(form(integers), y, Logistic(), theta, 0.5, 0.0)
        np.testing.assert_allclose(got, expected, atol=1e-12)


@every_loss
@with_and_without_intercept
@pytest.mark.parametrize(("n", "p"), [(0, 3), (1, 3), (1, 1), (5, 1), (0, 1)])
def test_small_shapes(naive, loss, intercept, n, p):
    X, y = table(5, n, p, loss)
    theta = theta_for(5, p + (intercept > 0))
    expected = naive.clipped_gradient(loss, X, y, theta, 0.4, DATA_NORM, intercept)
    for name, form in EXACT.items():
        got = clipped_total(form(X), y, loss, theta, 0.4, intercept)
        assert got.shape == theta.shape
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13, err_msg=name)


def test_an_intercept_alone_is_a_model(naive):
    y = np.array([1.0, -1.0, 1.0])
    for X in (np.empty((3, 0)), sp.csr_array((3, 0)), torch.empty((3, 0), dtype=torch.float64)):
        got = clipped_total(X, y, Logistic(), np.array([0.3]), 0.4, 2.0)
        expected = naive.clipped_gradient(
            Logistic(), np.empty((3, 0)), y, [0.3], 0.4, DATA_NORM, 2.0
        )
        np.testing.assert_allclose(got, expected, atol=1e-14)


# ------------------------------------------------------------ blocks and threads
@pytest.fixture
def many_blocks(monkeypatch):
    monkeypatch.setattr(dense_blocks, "BLOCK_BYTES", 1)  # the least block has 64 rows
    monkeypatch.setattr(dense_blocks, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(threads, "_workers", lambda: 2)


@pytest.mark.parametrize("form", [*EXACT.values()][:5] + [*SINGLE.values()][:2])
@pytest.mark.parametrize("n", [64, 65, 128, 5 * 64 + 7])
def test_blocks_and_threads_change_nothing(naive, many_blocks, form, n):
    X, y = table(6, n, 3, Logistic())
    X[n // 2] = np.nan  # so that every per-record vector exists and must be cut like the rows
    theta = theta_for(6, 4)
    bounds = RowBounds(DATA_NORM, 0.7)
    rows = make_rows(form(X), y, bounds, True)
    atol = 1e-12 if form(X).dtype == np.float64 else 1e-4
    got = ClippedGradient(Logistic(), 0.3).total(rows, theta)
    expected = naive.clipped_gradient(Logistic(), X, y, theta, 0.3, DATA_NORM, 0.7)
    np.testing.assert_allclose(got, expected, atol=atol)
    objective = Objective(rows, Logistic())
    facts = Logistic(), X, y, theta, DATA_NORM, 0.7
    assert objective.value(theta) == pytest.approx(naive.value(*facts), abs=atol * n)
    np.testing.assert_allclose(objective.gradient(theta), naive.gradient(*facts), atol=atol)
    H = np.array(naive.hessian(*facts))
    np.testing.assert_allclose(objective.hessian(theta), H, atol=atol)
    v = np.arange(1.0, 5.0)
    product = objective.hessian_product(objective.curvatures(theta), v)
    np.testing.assert_allclose(product, H @ v, atol=20 * atol)
    assert CountRecords().total(rows, theta) == [n - 1]


def test_two_threads_work_at_the_same_time(many_blocks):
    X, y = table(7, 128, 2, Logistic())
    both, names = threading.Barrier(2, timeout=20), []

    def weigh(z, labels, sizes):
        both.wait()  # one thread alone would wait here for ever
        names.append(threading.current_thread().name)
        assert len(z) == len(labels) == len(sizes) == 64
        return labels

    rows = make_rows(X, y, RowBounds(DATA_NORM), True)
    total = rows.weighted_sum(np.zeros(2), weigh)
    clipped = X * np.minimum(1, DATA_NORM / np.linalg.norm(X, axis=1))[:, None]
    np.testing.assert_allclose(total, y @ clipped, atol=1e-12)
    assert len(names) == 2
    assert all(name.startswith("privopt") for name in names)


def test_threads_are_not_used_for_small_data():
    X, y = table(8, 100, 2, Logistic())
    seen = []
    rows = make_rows(X, y, RowBounds(DATA_NORM), True)
    rows.weighted_sum(np.zeros(2), lambda z, y, s: seen.append(threading.current_thread()) or y)
    assert seen == [threading.current_thread()]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_parts_and_choices_of_rows(naive, form):
    X, y = table(9, 30, 3, Huber(0.4))
    X[4] = np.nan
    theta = theta_for(9, 4)
    rows = make_rows(form(X), y, RowBounds(DATA_NORM, 0.7), False)
    query = ClippedGradient(Huber(0.4), 0.3)
    for indices in ([], [4], [29, 0, 4, 7], list(range(30))):
        got = query.total(rows.take(np.array(indices, dtype=int)), theta)
        expected = naive.clipped_gradient(
            Huber(0.4), X[indices], y[indices], theta, 0.3, DATA_NORM, 0.7
        )
        np.testing.assert_allclose(got, expected, atol=1e-13)
    for start, stop in [(0, 0), (0, 30), (3, 5), (29, 30)]:
        part = rows.part(start, stop)
        assert part.count == stop - start
        expected = naive.clipped_gradient(
            Huber(0.4), X[start:stop], y[start:stop], theta, 0.3, DATA_NORM, 0.7
        )
        np.testing.assert_allclose(query.total(part, theta), expected, atol=1e-13)


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, torch.from_numpy, sp.csr_array])
def test_the_users_arrays_stay_as_they_were(form):
    X, y = table(10, 20, 3, Logistic())
    X[0], X[1], y[2] = np.nan, 1e300, np.nan
    held, labels = form(X), y.copy()
    rows = make_rows(held, labels, RowBounds(DATA_NORM, 1.0), True)
    ClippedGradient(Logistic(), 0.3).total(rows, np.ones(4))
    after = held.toarray() if sp.issparse(held) else np.asarray(held)
    np.testing.assert_array_equal(after, X)
    np.testing.assert_array_equal(labels, y)


# ------------------------------------------------------------ the objective
@every_smooth_loss
@with_and_without_intercept
@pytest.mark.parametrize("form", [*EXACT.values()], ids=[*EXACT])
def test_objective_is_the_naive_sum(naive, loss, intercept, form):
    X, y = table(11, 33, 3, loss)
    theta = theta_for(11, 3 + (intercept > 0))
    rows = make_rows(form(X), y, RowBounds(DATA_NORM, intercept), loss.classification)
    objective = Objective(rows.precise(), loss)
    facts = loss, X, y, theta, DATA_NORM, intercept
    assert objective.dimension == theta.size
    assert objective.value(theta) == pytest.approx(naive.value(*facts), rel=1e-13)
    np.testing.assert_allclose(objective.gradient(theta), naive.gradient(*facts), atol=1e-12)
    H = np.array(naive.hessian(*facts))
    np.testing.assert_allclose(objective.hessian(theta), H, atol=1e-12)
    curvatures = objective.curvatures(theta)
    for v in np.eye(theta.size):
        np.testing.assert_allclose(objective.hessian_product(curvatures, v), H @ v, atol=1e-12)


@every_smooth_loss
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_derivatives_agree_with_finite_differences(loss, form):
    X, y = table(12, 40, 3, loss)
    theta, h = theta_for(12, 4), 1e-6
    rows = make_rows(form(X), y, RowBounds(DATA_NORM, 0.7), loss.classification)
    objective = Objective(rows, loss)
    steps = h * np.eye(4)
    slopes = [(objective.value(theta + s) - objective.value(theta - s)) / (2 * h) for s in steps]
    np.testing.assert_allclose(objective.gradient(theta), slopes, rtol=1e-7, atol=1e-7)
    curves = [
        (objective.gradient(theta + s) - objective.gradient(theta - s)) / (2 * h) for s in steps
    ]
    np.testing.assert_allclose(objective.hessian(theta), curves, rtol=1e-7, atol=1e-7)
    v = np.array([0.3, -1.0, 2.0, 0.5])
    product = objective.hessian_product(objective.curvatures(theta), v)
    np.testing.assert_allclose(product, objective.hessian(theta) @ v, rtol=1e-12, atol=1e-12)


@every_smooth_loss
@with_and_without_intercept
@pytest.mark.parametrize("form", SINGLE.values(), ids=[*SINGLE])
def test_precise_sums_of_single_precision_rows(naive, loss, intercept, form):
    # Rows inside the bound: their single-precision entries are exact, so the sums can be too.
    X, y = table(13, 3000, 4, loss, spread=0.2)
    assert np.linalg.norm(X, axis=1).max() < DATA_NORM
    theta = theta_for(13, 4 + (intercept > 0))
    rows = make_rows(form(X), y, RowBounds(DATA_NORM, intercept), loss.classification)
    objective = Objective(rows.precise(), loss)
    facts = loss, X, y, theta, DATA_NORM, intercept
    expected = np.array(naive.gradient(*facts))
    error = np.linalg.norm(objective.gradient(theta) - expected)
    assert error <= 1e-9 * np.linalg.norm(expected)
    assert objective.value(theta) == pytest.approx(naive.value(*facts), rel=1e-9)
    rough = np.linalg.norm(Objective(rows, loss).gradient(theta) - expected)
    assert rough > 10 * error  # the promise is not empty: plain sums are single precision
    part, chosen = rows.precise().part(10, 900), rows.precise().take(np.arange(10, 900))
    expected = naive.gradient(loss, X[10:900], y[10:900], theta, DATA_NORM, intercept)
    for some in (part, chosen):
        np.testing.assert_allclose(
            Objective(some, loss).gradient(theta), expected, rtol=1e-9, atol=1e-9
        )


def test_precise_rows_of_double_precision_are_the_same_object():
    X, y = table(14, 5, 2, Logistic())
    for form in (np.asarray, torch.from_numpy, sp.csr_array):
        rows = make_rows(form(X), y, RowBounds(1.0), True)
        assert rows.precise() is rows


@every_smooth_loss
def test_facts_bound_gradient_and_curvature_of_one_record_tightly(loss):
    """Random search: never above the constants, and near them where the loss has them."""
    bounds, rng = RowBounds(0.8, 0.6), np.random.default_rng(0)
    facts = function_facts(loss, bounds, 4)
    assert (facts.rank, facts.subspace, facts.dimension) == (1, 1, 4)
    steepest = sharpest = 0.0
    for _ in range(300):
        X = rng.normal(size=(1, 3)) * 10.0 ** rng.uniform(-2, 2)
        y = rng.choice([-1.0, 1.0], size=1) if loss.classification else 3 * rng.normal(size=1)
        objective = Objective(make_rows(X, y, bounds, loss.classification), loss)
        theta = rng.normal(size=4) * 10.0 ** rng.uniform(-2, 2)
        steepest = max(steepest, np.linalg.norm(objective.gradient(theta)))
        sharpest = max(sharpest, np.linalg.norm(objective.hessian(theta), 2))
    assert sharpest <= facts.smoothness * (1 + 1e-12)
    assert sharpest >= 0.98 * facts.smoothness
    assert steepest <= facts.lipschitz * (1 + 1e-12)
    if np.isfinite(facts.lipschitz):
        assert steepest >= 0.98 * facts.lipschitz
