"""Rows behind a public linear map against the explicit matrix of mapped rows."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import CappedExponential, CappedLogistic, Logistic
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds, RowMap
from privopt.oracle.mapped import MappedRows
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows

BOUNDS = RowBounds(math.inf, 1.0)
FORMS = {
    "dense": np.asarray,
    "Fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sp.csr_array,
    "CSR float32": lambda X: sp.csr_array(X.astype(np.float32)),
    "torch": torch.from_numpy,
    "torch float32": lambda X: torch.from_numpy(X.astype(np.float32)),
}
HOSTILE = {
    "NaN": ([np.nan, 0.1, 0.2], 1.0),
    "all NaN": ([np.nan] * 3, -1.0),
    "inf": ([np.inf, 0.0, 0.0], 1.0),
    "-inf": ([0.0, -np.inf, 0.3], -1.0),
    "NaN label": ([0.1, 0.2, 0.3], np.nan),
    "inf label": ([0.1, 0.2, 0.3], np.inf),
    "1e300": ([1e300, -1e300, 1e300], 1.0),
    "one 1e300": ([0.0, 1e300, 0.0], -1.0),
    "1e160": ([1e160, 1e160, -1e160], 1.0),
    "1e20": ([1e20, 1.0, -1e20], 1.0),
    "zero row": ([0.0, 0.0, 0.0], -1.0),
    "tiny": ([1e-300, 0.0, 5e-324], 1.0),
    "at the centre": ([0.25, -0.5, 0.0], 1.0),
    "huge label": ([0.4, 0.0, -0.4], 1e300),
}
MAPS = {
    "clip active": RowMap(np.array([0.25, -0.5, 0.0]), np.array([3.0, 0.5, 12.0]), 2.0, 1.5),
    "clip mixed": RowMap(np.array([0.25, -0.5, 0.0]), np.array([3.0, 0.5, 12.0]), 2.0, 6.0),
    "clip inactive": RowMap(np.array([0.25, -0.5, 0.0]), np.array([3.0, 0.5, 12.0]), 2.0, 100.0),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])
every_map = pytest.mark.parametrize("row_map", MAPS.values(), ids=[*MAPS])


def table(n=40):
    """Half of the entries are zero; all are exact in single precision."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3)) * (rng.random((n, 3)) < 0.5)
    return X.astype(np.float32).astype(float), rng.choice([-1.0, 1.0], size=n)


def with_hostile_rows():
    X, y = table()
    rows, labels = zip(*HOSTILE.values(), strict=True)
    return np.vstack([X, rows]), np.append(y, labels)


def explicit(X, y, row_map):
    """The materialised matrix in extended precision and range; an empty record is a row of 0."""
    X = np.asarray(X, dtype=np.longdouble)
    empty = ~(np.isfinite(X).all(axis=1) & np.isfinite(y))
    v = row_map.scale * (np.where(empty[:, None], 0.0, X) - row_map.centre)
    v = np.column_stack([v, np.full(len(X), row_map.column, dtype=np.longdouble)])
    v /= np.maximum(np.sqrt((v**2).sum(axis=1)), row_map.clip_norm)[:, None]
    v[empty] = 0.0
    return v.astype(float), np.where(y > 0, 1.0, -1.0), ~empty


def mapped(X, y, row_map, form=np.asarray):
    return MappedRows.build(make_rows(form(X), y, BOUNDS, True), row_map)


def weigh(z, y, size):
    """Depends on all three, and has both signs."""
    return y * (1.0 + z * z) - 0.5 * size


def check(rows, V, y, active, theta, atol=1e-10):
    z = V @ theta
    w = weigh(z, y, np.linalg.norm(V, axis=1)) * active
    assert rows.dimension == len(theta)
    assert rows.count == len(V)
    assert rows.bounds.size == 1.0
    np.testing.assert_allclose(rows.weighted_sum(theta, weigh), w @ V, atol=atol)
    assert rows.total(theta, weigh) == pytest.approx(w.sum(), abs=atol * max(1, len(V)))
    G = V.T @ (w[:, None] * V)
    np.testing.assert_allclose(rows.weighted_gram(theta, weigh), G, atol=atol)
    weights = rows.weights(theta, weigh)
    for vector in (theta, np.array([0.3, -1.0, 2.0, 0.5])):
        np.testing.assert_allclose(rows.weighted_product(weights, vector), G @ vector, atol=atol)


THETAS = [np.array([0.7, -1.1, 0.4, 0.2]), np.zeros(4)]


# ------------------------------------------------------------ sums
@every_form
@every_map
def test_every_sum_is_that_of_the_explicit_matrix(form, row_map):
    X, y = table()
    for theta in THETAS:
        check(mapped(X, y, row_map, form), *explicit(X, y, row_map), theta)


@every_map
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_hostile_rows(form, row_map):
    X, y = with_hostile_rows()
    for theta in THETAS:
        check(mapped(X, y, row_map, form), *explicit(X, y, row_map), theta, 1e-9)


@pytest.mark.parametrize("form", ["float32", "CSR float32", "torch float32"])
def test_hostile_rows_in_single_precision(form):
    X, y = hostile_rows_of(form)
    single = X.astype(np.float32)
    single[-len(HOSTILE) + 9] = [1e30, 1.0, -1e30]
    kinds = {"float32": np.asarray, "CSR float32": sp.csr_array, "torch float32": torch.from_numpy}
    row_map = MAPS["clip mixed"]
    for theta in THETAS:
        check(
            mapped(single, y, row_map, kinds[form]), *explicit(single, y, row_map), theta, atol=1e-9
        )


@every_form
def test_parts_choices_and_other_labels(form):
    X, y = table()
    row_map, theta = MAPS["clip mixed"], THETAS[0]
    V, signs, active = explicit(X, y, row_map)
    rows = mapped(X, y, row_map, form)
    for indices in ([], [3], [39, 0, 3, 7], list(range(40))):
        where = np.array(indices, dtype=int)
        check(rows.take(where), V[where], signs[where], active[where], theta)
    for start, stop in [(0, 0), (0, 40), (3, 5), (39, 40)]:
        cut = slice(start, stop)
        check(rows.part(start, stop), V[cut], signs[cut], active[cut], theta)
    check(rows.labelled(-y, True), V, -signs, active, theta)
    check(rows.labelled((y > 0).astype(int), True).take(np.arange(9)), V[:9], signs[:9], 1.0, theta)
    check(rows.precise(), V, signs, active, theta)
    check(rows.precise().part(2, 20).labelled(-y[2:20], True), V[2:20], -signs[2:20], 1.0, theta)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_an_empty_record_stays_empty_under_other_labels_and_choices(form):
    X, y = with_hostile_rows()
    row_map, theta = MAPS["clip mixed"], THETAS[0]
    V, _, active = explicit(X, y, row_map)
    signs = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    where = np.arange(len(X))[::-1].copy()
    rows = mapped(X, y, row_map, form).labelled(signs, True).take(where)
    check(rows, V[where], signs[where], active[where], theta, 1e-9)


@every_form
def test_no_records(form):
    rows = mapped(np.zeros((0, 3)), np.zeros(0), MAPS["clip mixed"], form)
    check(rows, np.zeros((0, 4)), np.zeros(0), np.zeros(0), THETAS[0])


@every_form
@pytest.mark.parametrize("loss", [Logistic(), CappedLogistic(), CappedLogistic(0.3)], ids=repr)
def test_the_objective_over_mapped_rows(form, loss):
    X, y = table()
    row_map, theta = MAPS["clip mixed"], THETAS[0]
    oracle = Oracle.over(
        form(X), y, neighbouring="zero_out", bounds=BOUNDS, source=SeededSource(0)
    ).mapped(row_map)
    assert oracle.dimension == 4
    assert oracle.bounds.size == 1.0
    sensitivity = oracle.everything().function(loss).sensitivity
    assert (
        sensitivity.facts.lipschitz == loss.lipschitz
    )  # rows of norm one: nothing else multiplies it
    assert sensitivity.facts.smoothness == loss.smoothness
    V, signs, _ = explicit(X, y, row_map)
    objective = Objective(mapped(X, y, row_map, form), loss)
    z = V @ theta
    assert objective.value(theta) == pytest.approx(loss.value(z, signs).sum(), rel=1e-12)
    np.testing.assert_allclose(objective.gradient(theta), loss.slope(z, signs) @ V, atol=1e-11)
    H = V.T @ (loss.curvature(z, signs)[:, None] * V)
    np.testing.assert_allclose(objective.hessian(theta), H, atol=1e-11)
    product = objective.hessian_product(objective.curvatures(theta), THETAS[0])
    np.testing.assert_allclose(product, H @ THETAS[0], atol=1e-11)


@every_form
@pytest.mark.parametrize("shortening", [0.0, 0.3, 0.75])
def test_long_rows_are_weighted_where_they_are_not_shortened(form, shortening):
    """Value, derivatives and the enclosed gradient are those of explicit rows and weights; and the
    gradient and the Hessian of one record stay within those of a row of norm one."""
    X, y = table()
    row_map, theta = replace(MAPS["clip mixed"], shortening=shortening), THETAS[0]
    signs = explicit(X, y, MAPS["clip mixed"])[1]
    raw = np.column_stack([(X - row_map.centre) * row_map.scale, np.full(len(X), row_map.column)])
    beyond = np.maximum(np.linalg.norm(raw, axis=1) / row_map.clip_norm, 1.0)
    assert beyond.max() > 1.2
    U = raw / (row_map.clip_norm * beyond**shortening)[:, None]
    w = beyond ** (2 * shortening - 2)
    assert (w * np.linalg.norm(U, axis=1)).max() <= 1 + 1e-15
    assert (w * np.linalg.norm(U, axis=1) ** 2).max() <= 1 + 1e-15
    loss = CappedExponential()
    objective = Objective(mapped(X, y, row_map, form), loss)
    z = U @ theta
    assert objective.value(theta) == pytest.approx(w @ loss.value(z, signs), rel=1e-12)
    gradient = (w * loss.slope(z, signs)) @ U
    np.testing.assert_allclose(objective.gradient(theta), gradient, atol=1e-11)
    H = U.T @ ((w * loss.curvature(z, signs))[:, None] * U)
    np.testing.assert_allclose(objective.hessian(theta), H, atol=1e-11)
    product = objective.hessian_product(objective.curvatures(theta), THETAS[0])
    np.testing.assert_allclose(product, H @ THETAS[0], atol=1e-11)
    enclosed = objective.enclosed(theta, np.zeros_like(theta))
    assert np.linalg.norm(enclosed.value - gradient) <= enclosed.error + 1e-12
    assert enclosed.error < 1e-10
    for i in range(len(X)):
        one = Objective(mapped(X[i : i + 1], y[i : i + 1], row_map, form), loss)
        assert np.linalg.norm(one.gradient(theta)) <= loss.lipschitz * (1 + 1e-9)
        top = np.linalg.eigvalsh(one.hessian(theta))[-1]
        assert top <= loss.smoothness * (1 + 1e-9)


# ------------------------------------------------------------ the clip
def norms_of(rows):
    """Norm of each effective row, read off sums over one record."""
    one = [rows.part(i, i + 1) for i in range(rows.count)]
    sums = [part.weighted_sum(np.zeros(rows.dimension), lambda z, y, s: y * y) for part in one]
    return np.array([np.linalg.norm(total) for total in sums])


def hostile_rows_of(form):
    """Single precision holds nothing beyond 1e38: rows of that size are empty records there."""
    X, y = with_hostile_rows()
    if "float32" not in form:
        return X, y
    with np.errstate(over="ignore"):
        return X.astype(np.float32).astype(float), np.where(y > 1, 1.0, y)


@pytest.mark.parametrize("form", FORMS)
@every_map
def test_no_mapped_row_is_longer_than_one(form, row_map):
    X, y = hostile_rows_of(form)
    norms = norms_of(mapped(X, y, row_map, FORMS[form]))
    assert norms.max() <= 1 + 1e-9
    expected = np.linalg.norm(explicit(X, y, row_map)[0], axis=1)
    np.testing.assert_allclose(norms, expected, atol=1e-9)
    ordinary = norms[:40]
    if row_map is MAPS["clip active"]:
        np.testing.assert_allclose(ordinary, 1.0, atol=1e-9)
    elif row_map is MAPS["clip inactive"]:
        assert 0 < ordinary.max() < 0.2
    else:
        assert 5 < (ordinary > 1 - 1e-6).sum() < 35


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
@pytest.mark.parametrize("size", [1e30, 1e76, 1e100, 1e150, 1.3e154, 1e200, 1.7e308])
def test_a_large_scale_and_a_large_row_overflow_into_the_clip(form, size):
    row_map = RowMap(np.array([0.25, -0.5, 0.0]), np.array([1e4, 1e5, 1e-3]), 2.0, 1.5)
    X, y = np.array([[size, 0.0, 0.0], [0.0, -size, size], [0.1, 0.0, 0.2]]), np.ones(3)
    rows = mapped(X, y, row_map, form)
    norms = norms_of(rows)
    assert np.isfinite(norms).all()
    assert norms.max() <= 1 + 1e-9
    if size <= 1e100:
        check(rows, *explicit(X, y, row_map), THETAS[0], 1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_cancellation_near_the_centre_does_not_lengthen_a_row(form):
    """A sparse row is not centred entry by entry, yet its clip must hold to the last digits."""
    rng = np.random.default_rng(1)
    centre = np.array([0.75, -0.5, 0.875])
    for spread in (1e-1, 1e-3, 1e-5, 1e-7, 0.0):
        X = centre + spread * rng.normal(size=(30, 3))
        X = X.astype(np.float32).astype(float)
        for scale in (1.0, 1e3, 1e6):
            for clip_norm in (1e-3, 0.05, 1.0):
                row_map = RowMap(centre, np.full(3, scale), 0.04, clip_norm)
                norms = norms_of(mapped(X, np.ones(30), row_map, FORMS[form]))
                assert norms.max() <= 1 + 1e-9


@every_map
def test_public_factors_are_those_of_the_rows(row_map):
    """Prediction clips with ``factors``; training with the rows' own."""
    X, _ = table()
    V, _, _ = explicit(X, np.ones(40), row_map)
    for form in (np.asarray, sp.csr_array):
        factors = row_map.factors(form(X))
        np.testing.assert_allclose(factors * row_map.column, V[:, -1], rtol=1e-9)
        for theta in THETAS:
            backward = row_map.backward(theta)
            scores = factors * (X @ backward[:-1] + backward[-1])
            np.testing.assert_allclose(scores, V @ theta, atol=1e-9)


# ------------------------------------------------------------ nothing is densified
def forbid_densifying(monkeypatch, shape):
    def guard(original):
        def guarded(self, *args, **kwargs):
            if self.shape == shape:
                raise AssertionError("the whole sparse matrix was made dense")
            return original(self, *args, **kwargs)

        return guarded

    for kind in (sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.csc_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, guard(getattr(kind, name)))


def test_a_sparse_matrix_is_never_densified(monkeypatch):
    X, y = with_hostile_rows()
    row_map, theta = MAPS["clip mixed"], THETAS[0]
    expected, S = explicit(X, y, row_map), sp.csr_array(X)
    forbid_densifying(monkeypatch, X.shape)
    with pytest.raises(AssertionError, match="made dense"):
        sp.csr_array(X).toarray()
    rows = mapped(S, y, row_map, lambda X: X)
    check(rows, *expected, theta, 1e-9)
    some = [part[:40] for part in explicit(X, -y, row_map)]
    check(rows.precise().labelled(-y, True).part(0, 40), *some, theta, 1e-9)
    factors = row_map.factors(sp.csr_array(table()[0]))
    assert factors.shape == (40,)


def test_a_wide_sparse_matrix_takes_no_dense_memory():
    """300 x 200 000 would be 480 MB."""
    X = sp.random_array((300, 200_000), density=1e-5, rng=np.random.default_rng(0), format="csr")
    row_map = RowMap(np.full(200_000, 1e-3), np.full(200_000, 2.0), 2.0, 3.0)
    tracemalloc.start()
    rows = mapped(X, np.ones(300), row_map, lambda X: X)
    total = rows.weighted_sum(np.full(200_001, 1e-3), weigh)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(total).all()
    assert peak < 60e6


# ------------------------------------------------------------ the map itself
def test_forward_backward_and_gram_are_one_matrix_and_its_transpose():
    row_map = MAPS["clip mixed"]
    A = np.column_stack([row_map.forward(e) for e in np.eye(4)])
    np.testing.assert_allclose(
        np.column_stack([row_map.backward(e) for e in np.eye(4)]), A.T, atol=1e-15
    )
    G = np.arange(16.0).reshape(4, 4)
    G += G.T
    np.testing.assert_allclose(row_map.gram(G.copy()), A @ G @ A.T, atol=1e-12)
    x = np.array([0.3, -0.2, 0.9])
    v = np.append(row_map.scale * (x - row_map.centre), row_map.column)
    np.testing.assert_allclose(A @ np.append(x, 1.0), v, atol=1e-15)
    assert row_map.dimension == 4
