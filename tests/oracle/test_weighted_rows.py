"""Records that are weighted instead of shortened: a loss s^2 f(z / s), s what the clip leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Gamma, Huber, Poisson
from privopt.oracle import RowMap
from privopt.oracle.mapped import MappedRows
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows

from .test_mapped import BOUNDS, HOSTILE, MAPS, THETAS, table

FORMS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sp.csr_array,
    "torch": torch.from_numpy,
}
LOSSES = [Huber(0.3), Poisson(0.8, 3.0), Gamma(2.0)]
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def weighted(row_map: RowMap, centre: float = 0.1, scale: float = 0.5) -> RowMap:
    return replace(row_map, label_centre=centre, label_scale=scale, shortening=0.0)


def rows_of(X, y, row_map, form=np.asarray):
    return MappedRows.build(make_rows(form(X), y, BOUNDS, False), row_map)


def explicit(X, y, row_map):
    """Rows that keep their length, labels, and weights, one by one."""
    V = np.column_stack([(X - row_map.centre) * row_map.scale, np.full(len(X), row_map.column)])
    norms = np.linalg.norm(V, axis=1)
    w = np.minimum(1.0, (row_map.clip_norm / norms) ** 2)
    return V / row_map.clip_norm, (y - row_map.label_centre) / row_map.label_scale, w


@every_form
@every_loss
@pytest.mark.parametrize("name", MAPS)
def test_the_objective_is_the_weighted_sum(form, loss, name):
    X, _ = table()
    y = np.random.default_rng(1).uniform(0, 1, len(X))
    row_map = weighted(MAPS[name])
    V, t, w = explicit(X, y, row_map)
    objective = Objective(rows_of(X, y, row_map, form), loss)
    tolerance = 1e-5 if form is FORMS["float32"] else 1e-10
    for theta in THETAS:
        z = V @ theta
        assert objective.value(theta) == pytest.approx(w @ loss.value(z, t), rel=tolerance)
        np.testing.assert_allclose(
            objective.gradient(theta), (w * loss.slope(z, t)) @ V, atol=tolerance
        )
        H = V.T @ ((w * loss.curvature(z, t))[:, None] * V)
        np.testing.assert_allclose(objective.hessian(theta), H, atol=tolerance)
        product = objective.hessian_product(objective.curvatures(theta), THETAS[0])
        np.testing.assert_allclose(product, H @ THETAS[0], atol=tolerance)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@every_loss
def test_no_record_pulls_or_bends_beyond_the_constants(form, loss):
    """Hostile rows and labels, at points where rows are far out."""
    hostile, labels = zip(*HOSTILE.values(), strict=True)
    X, y = np.vstack([table()[0], hostile]), np.append(np.ones(40), labels)
    rng = np.random.default_rng(2)
    for name in MAPS:
        rows = rows_of(X, y, weighted(MAPS[name]), form)
        for theta in (*THETAS, *rng.normal(0, 30, (3, 4))):
            for index in range(rows.count):
                one = Objective(rows.part(index, index + 1), loss)
                assert np.linalg.norm(one.gradient(theta)) <= loss.lipschitz * (1 + 1e-9)
                bend = np.linalg.eigvalsh(one.hessian(theta))
                assert bend.min() >= -1e-9
                assert bend.max() <= loss.smoothness * (1 + 1e-9)


def test_an_empty_record_adds_nothing():
    hostile = [HOSTILE[name][0] for name in ("NaN", "inf", "-inf")]
    X = np.vstack([table()[0], hostile])
    y = np.append(np.full(40, 0.3), np.ones(3))
    row_map = weighted(MAPS["clip mixed"])
    with_them, without = rows_of(X, y, row_map), rows_of(X[:40], y[:40], row_map)
    for loss in LOSSES:
        for theta in THETAS:
            one, other = Objective(with_them, loss), Objective(without, loss)
            np.testing.assert_array_equal(one.gradient(theta), other.gradient(theta))
            assert one.value(theta) == other.value(theta)
            np.testing.assert_array_equal(
                one.enclosed(theta, 0 * theta).value, other.enclosed(theta, 0 * theta).value
            )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@every_loss
def test_the_gradient_is_enclosed(form, loss):
    """The exact gradient, in extended precision, lies within the error that is stated."""
    X, _ = table()
    y = np.random.default_rng(3).uniform(0, 1, len(X))
    y[:3] = 1e6, 1e-9, 0.0
    for name in MAPS:
        rows = rows_of(X, y, weighted(MAPS[name]), form)
        parts = rows.effective(lambda E, t, _, s: (E.copy(), t.copy(), s.copy()), 1 << 12)
        E, t, s = (np.concatenate(some).astype(np.longdouble) for some in zip(*parts, strict=True))
        for theta in THETAS:
            z = (E @ theta.astype(np.longdouble)) / s
            exact = (s * loss.slope(z, t)) @ E
            found = Objective(rows, loss).enclosed(theta, np.zeros(4))
            gap = float(np.linalg.norm((found.value - exact).astype(float)))
            assert gap <= found.error
            assert found.error < 1e-10 * math.sqrt(len(X)) * max(1.0, loss.smoothness)
