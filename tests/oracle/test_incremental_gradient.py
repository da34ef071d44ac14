"""The gradient along a path of vertices: exact against the plain gradient, stale against its
definition record by record, and what one record can move."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import Refused
from privopt.losses import Huber, Logistic, Squared
from privopt.noise import SilentSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.sealed import KEY

CLIPPED = RowBounds(math.inf, 0.0, 1.0)
CONSTANT = RowBounds(math.inf, 0.5, 1.0)
SHORT = RowBounds(0.7, 0.0)


def sparse(n=40, p=9, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, size=(n, p)) * (rng.random((n, p)) < density)
    X[3], X[:, 2] = 0.0, 0.0  # an empty row and an empty column
    return sp.csr_array(X), np.where(rng.random(n) < 0.5, 1.0, -1.0)


def view_of(X, y, bounds, relation="zero_out"):
    return Oracle.over(
        X, y, neighbouring=relation, bounds=bounds, source=SilentSource()
    ).everything()


def opened(sealed):
    return sealed.open(KEY)


def walk(path, steps, dimension, size=3.0, seed=1, rule=lambda t: 2 / (t + 2)):
    """A random public path; yields theta after each step, computed the plain way."""
    rng, theta = np.random.default_rng(seed), np.zeros(dimension)
    for t in range(steps):
        k, value, step = int(rng.integers(dimension)), size * rng.choice([-1, 1]), rule(t)
        theta = (1 - step) * theta
        theta[k] += step * value
        path.move(k, value, step)
        yield k, value, theta


# ------------------------------------------------------------ exact
@pytest.mark.parametrize("bounds", [CLIPPED, CONSTANT, SHORT])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Squared(residual_clip=0.4)])
def test_the_exact_gradient_is_the_gradient(bounds, loss):
    X, y = sparse()
    X.data[5] = np.nan  # an empty record
    view, p = view_of(X, y, bounds), 9 + (bounds.intercept > 0)
    query = CoordinateClippedGradient(loss, loss.lipschitz, bounds, p)
    start = np.full(p, 3.0 / p)
    path = view.follow(query, start)
    incremental_gradient = opened(path.gradient())
    np.testing.assert_allclose(
        incremental_gradient.gradient(), opened(view.ask(query, start)), atol=1e-12
    )
    for *_, theta in walk(path, 30, p):
        plain = opened(view.ask(query, theta))
        np.testing.assert_allclose(incremental_gradient.gradient(), plain, atol=1e-12)
        each = [incremental_gradient.coordinate(k) for k in range(p)]
        np.testing.assert_allclose(each, plain, atol=1e-12)
        np.testing.assert_allclose(path.theta(), theta, atol=1e-12)


def test_storage_does_not_matter():
    """Duplicates, stored zeros and unsorted columns are the same matrix, in both modes."""
    X, y = sparse()
    X = sp.csr_array(X.toarray().clip(-1, 1))
    rows = [slice(a, b) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]

    def stored(data, indices):
        """The matrix with each row's entries stored in another way."""
        data, indices = [data(X.data[r]) for r in rows], [indices(X.indices[r]) for r in rows]
        ends = np.cumsum([0, *map(len, data)])
        return sp.csr_array((np.concatenate(data), np.concatenate(indices), ends), shape=X.shape)

    twice = stored(lambda x: np.append(x / 2, x / 2), lambda j: np.append(j, j))
    turned = stored(lambda x: x[::-1], lambda j: j[::-1])
    zeros = stored(lambda x: np.append(x, 0.0), lambda j: np.append(j, 2))
    assert (twice.nnz, zeros.nnz) == (2 * X.nnz, X.nnz + X.shape[0])
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 9)
    for stale in (False, True):
        found = []
        for matrix in (X, twice, turned, zeros, X.tocoo(), X.astype(np.float32)):
            before = matrix.copy()
            path = view_of(matrix, y, CLIPPED).follow(query, np.zeros(9), stale=stale)
            for _ in walk(path, 12, 9):
                pass
            found.append(opened(path.gradient()).gradient())
            assert (abs(matrix - before)).max() == 0
        for other in found[1:-1]:
            np.testing.assert_allclose(other, found[0], atol=1e-12)
        np.testing.assert_allclose(found[-1], found[0], atol=1e-5)


def test_a_long_path_does_not_underflow():
    """Steps of 9/10 shrink what was there by 10^-400."""
    X, y = sparse()
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 9)
    view = view_of(X, y, CLIPPED)
    for stale in (False, True):
        path = view.follow(query, np.zeros(9), stale=stale)
        for *_, theta in walk(path, 400, 9, rule=lambda t: 0.9):  # noqa: B007
            pass
        np.testing.assert_allclose(path.theta(), theta, atol=1e-12)
    fresh = view.follow(query, np.zeros(9))
    for *_, theta in walk(fresh, 400, 9, rule=lambda t: 0.9):  # noqa: B007
        pass
    plain = opened(view.ask(query, theta))
    np.testing.assert_allclose(opened(fresh.gradient()).gradient(), plain, atol=1e-12)


# ------------------------------------------------------------ stale
def stale_gradient(X, y, moves, slope):
    """The definition: each record sees its own row, the moves and the public schedule."""
    total = np.zeros(X.shape[1])
    for row, label in zip(X, y, strict=True):
        margin = seen = 0.0
        factor = renewed = 1.0
        for t, (k, value) in enumerate(moves):
            step = 2 / (t + 2)
            margin = (1 - step) * margin + step * value * row[k]
            factor = 1.0 if t == 0 else factor * (1 - step)
            renew = t == 0 or factor < 0.25 * renewed
            renewed = factor if renew else renewed
            seen = margin if renew or row[k] else seen
        total += slope(seen, label) * row
    return total


def test_the_stale_gradient_is_what_it_says():
    X, y = sparse()
    dense = X.toarray().clip(-1, 1)
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 9)
    path = view_of(X, y, CLIPPED).follow(query, np.zeros(9), stale=True)
    incremental_gradient, moves, gaps = opened(path.gradient()), [], []
    for k, value, theta in walk(path, 25, 9):
        moves.append((k, value))
        expected = stale_gradient(
            dense, y, moves, lambda z, label: -label / (1 + np.exp(label * z))
        )
        np.testing.assert_allclose(incremental_gradient.gradient(), expected, atol=1e-12)
        gaps.append(abs(expected - opened(view_of(X, y, CLIPPED).ask(query, theta))).max())
    assert max(gaps) > 0.05  # it is not the gradient


def drifted_apart(incremental_gradient, threshold=0.25):
    """A tempting rule: renew all slopes once some record's has drifted. It looks at all records."""
    now = incremental_gradient._margins * incremental_gradient._shrunk
    if np.abs(now - incremental_gradient._seen).max() > threshold:
        incremental_gradient._seen = now.copy()


@pytest.mark.parametrize("tempting", [False, True])
def test_one_record_moves_the_stale_gradient_by_its_own_share(tempting):
    """3000 records drift a little, one drifts far. If that one triggers a renewal of all slopes, it
    moves the others' share of the gradient too; with slopes renewed by their own rows, the
    transcript and the public schedule it does not."""
    n, size = 3000, 2.0
    X = np.zeros((n + 1, 3))
    X[:n, 0], X[n, 0] = 0.14, 1.0
    y = np.ones(n + 1)
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 3)
    gradients = []
    for last in (X[n], np.zeros(3)):
        data = X.copy()
        data[n] = last
        path = view_of(sp.csr_array(data), y, CLIPPED).follow(query, np.zeros(3), stale=True)
        incremental_gradient = opened(path.gradient())
        seen = []
        for k in (0, 1, 2):
            path.move(k, size, 0.3)
            if tempting:
                drifted_apart(incremental_gradient)
            seen.append(incremental_gradient.gradient())
        gradients.append(np.array(seen))
    moved = np.abs(gradients[0] - gradients[1]).max()
    assert moved > 3 * query.radius() if tempting else moved <= query.radius()


# ------------------------------------------------------------ the door
def test_a_path_shows_nothing_of_the_records():
    X, y = sparse()
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 9)
    path = view_of(X, y, CLIPPED).follow(query, np.zeros(9))
    public = [name for name in dir(path) if not name.startswith("_")]
    assert public == ["gradient", "move", "theta"]
    assert repr(path) == "VertexPath(dimension=9, view=1)"
    with pytest.raises(Refused, match="pickled"):
        pickle.dumps(path)
    assert repr(path.gradient()) == "Sealed(linf, view 1)"
    for relation, factor in (("zero_out", 1), ("add_remove", 1), ("replace_one", 2)):
        sensitivity = (
            view_of(X, y, CLIPPED, relation).follow(query, np.zeros(9)).gradient().sensitivity
        )
        assert sensitivity.radius == factor
        assert (sensitivity.norm, sensitivity.single) == ("linf", 1.0)


def test_refusals():
    X, y = sparse()
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 9)
    with pytest.raises(Refused, match="sparse matrix"):
        view_of(X.toarray(), y, CLIPPED).follow(query, np.zeros(9))
    with pytest.raises(Refused, match="bounds"):
        view_of(X, y, SHORT).follow(query, np.zeros(9))
    path = view_of(X, y, CLIPPED).follow(query, np.zeros(9))
    for step in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="step"):
            path.move(0, 1.0, step)


def test_no_records_and_no_entries():
    query = CoordinateClippedGradient(Logistic(), 1.0, CLIPPED, 4)
    for X in (sp.csr_array((0, 4)), sp.csr_array((3, 4))):
        path = view_of(X, np.ones(X.shape[0]), CLIPPED).follow(query, np.zeros(4))
        path.move(1, 2.0, 1.0)
        np.testing.assert_array_equal(opened(path.gradient()).gradient(), np.zeros(4))
        np.testing.assert_array_equal(path.theta(), [0.0, 2.0, 0.0, 0.0])
