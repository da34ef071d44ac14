"""Second moments at a point: what one record can move, exactly, and what they are sums of."""

import numpy as np
import pytest
import scipy.sparse as sp

from privopt.losses import CappedExponential, Huber, Poisson
from privopt.mechanisms import gaussian_noise
from privopt.noise import SilentSource
from privopt.numerics.trust_region import unsvec
from privopt.oracle import Curvature, Oracle, RowBounds, RowMap
from privopt.oracle.mapped import MappedRows
from privopt.oracle.oracle import make_rows
from privopt.privacy import Refused

LOSSES = [CappedExponential(), Huber(0.7), Poisson(0.8, 3.0)]


def mapped(X, y, loss, shortening=0.0):
    p = X.shape[1]
    row_map = RowMap(np.full(p, 0.1), np.full(p, 1.5), 1.0, 1.2, shortening=shortening)
    base = make_rows(X, y, RowBounds(np.inf, 1.0), loss.classification)
    return MappedRows.build(base, row_map), row_map


def labels(rng, n, loss):
    return np.where(rng.random(n) < 0.5, 1.0, -1.0) if loss.classification else rng.random(n) * 2


def by_hand(X, y, loss, at, row_map):
    """The two matrices, record by record."""
    M, S = np.zeros((2, len(at), len(at)))
    for x, label in zip(X, y, strict=True):
        v = np.append(row_map.scale * (x - row_map.centre), row_map.column)
        weight = min(1.0, (row_map.clip_norm / np.linalg.norm(v)) ** 2)
        row = v / row_map.clip_norm
        z = row @ at
        M += weight * loss.expected_curvature(z, label) * np.outer(row, row)
        S += (weight * loss.slope(z, label)) ** 2 * np.outer(row, row)
    return M / loss.most_expected, S / (2 * loss.lipschitz**2)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_are_those_of_the_records(loss, sparse):
    rng = np.random.default_rng(0)
    X, at = rng.standard_normal((60, 3)), np.array([0.5, -0.2, 0.3, 0.1])
    y = labels(rng, 60, loss)
    rows, row_map = mapped(sp.csr_array(X) if sparse else X, y, loss)
    M, S = by_hand(X, y, loss, at, row_map)
    step = 1e-7
    for found in (
        Curvature(loss).total(rows, at),
        Curvature(loss).count(rows, at, step) * step,
    ):
        assert unsvec(found[:10]) == pytest.approx(M, abs=4e-5)
        assert unsvec(found[10:]) == pytest.approx(S, abs=4e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("step", [1e-2, 1e-5])
def test_one_record_stays_within_the_radius_and_two_within_the_diameter(loss, step):
    """In integers too, for rows from tiny to absurd, in any direction."""
    rng, query = np.random.default_rng(1), Curvature(loss)
    found = []
    for size in (1e-3, 0.5, 0.8, 1.0, 3.0, 1e6, 1e200):
        for _ in range(12):
            X = rng.standard_normal((1, 3)) * size
            rows, _ = mapped(X, labels(rng, 1, loss), loss)
            found.append(query.count(rows, 3 * rng.standard_normal(4), step) * step)
    found = np.array(found)
    assert np.linalg.norm(found, axis=1).max() <= query.radius()
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    assert apart.max() <= query.diameter()


def test_both_bounds_are_attained():
    """Rows of norm 1 with all of the slope and curvature: the constants are no larger than that."""
    loss, query = Huber(1e-9), Curvature(Huber(1e-9))
    at = np.zeros(3)
    out = []
    for axis in (0, 1):
        X = np.zeros((1, 2))
        X[0, axis] = 1e6
        row_map = RowMap(np.zeros(2), np.ones(2), 1e-9, 1.0, shortening=0.0)
        base = make_rows(X, np.array([1e-9]), RowBounds(np.inf, 1.0), False)
        out.append(query.total(MappedRows.build(base, row_map), at))
    # Weighted: a long row's slope counts little, its curvature fully.
    assert np.linalg.norm(out[0]) == pytest.approx(1.0)
    short = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    row_map = RowMap(np.zeros(2), np.ones(2), 1e-9, 1.0, shortening=0.0)
    full = [
        query.total(
            MappedRows.build(
                make_rows(X, np.array([1e-9]), RowBounds(np.inf, 1.0), False), row_map
            ),
            at,
        )
        for X in short
    ]
    assert np.linalg.norm(full[0]) == pytest.approx(query.radius())
    assert np.linalg.norm(full[0] - full[1]) == pytest.approx(query.diameter())
    assert loss.lipschitz == 1e-9


def test_an_empty_record_adds_nothing():
    loss = CappedExponential()
    X = np.array([[0.3, -0.2], [np.nan, 1.0]])
    rows, _ = mapped(X, np.array([1.0, -1.0]), loss)
    alone, _ = mapped(X[:1], np.array([1.0]), loss)
    at = np.array([0.2, 0.1, -0.4])
    query = Curvature(loss)
    assert query.count(rows, at, 1e-6).tolist() == query.count(alone, at, 1e-6).tolist()
    assert query.total(rows, at) == pytest.approx(query.total(alone, at))


def test_rows_that_are_not_clipped_are_refused():
    oracle = Oracle.over(
        np.ones((3, 2)),
        np.ones(3),
        neighbouring="zero_out",
        bounds=RowBounds(2.0, 1.0),
        source=SilentSource(),
    )
    with pytest.raises(Refused):
        oracle.everything().ask(
            Curvature(CappedExponential()), resolution=gaussian_noise(1.0, True).resolution
        )


def test_the_expected_curvature_is_the_mean_of_the_observed_one():
    """Over labels of the logistic model; it is largest at 0, with 1/4."""
    loss, z = CappedExponential(), np.linspace(-6, 6, 49)
    chance = 1 / (1 + np.exp(-z))
    mean = chance * loss.curvature(z, 1.0) + (1 - chance) * loss.curvature(z, -1.0)
    away = z != 0
    assert loss.expected_curvature(z, 1.0)[away] == pytest.approx(mean[away])
    assert loss.expected_curvature(z, 1.0).max() == loss.most_expected == 0.25
