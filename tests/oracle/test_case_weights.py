"""Records with weights: sums against the same sums of repeated records, and bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import CappedExponential, Huber, Logistic, Softmax
from privopt.noise import SeededSource
from privopt.oracle import ClassCounts, ClassGradient, ClippedGradient, Oracle, RowBounds, RowMap

FORMS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sp.csr_array,
    "torch": torch.from_numpy,
}
MAPS = {
    "as they are": None,
    "shortened": RowMap(np.full(3, 0.1), np.array([1.0, 2.0, 0.5]), 1.0, 1.2),
    "weighted": RowMap(np.full(3, 0.1), np.array([1.0, 2.0, 0.5]), 1.0, 1.2, shortening=0.3),
}
THETA = np.array([0.7, -1.1, 0.4, 0.3])
TIMES = 4
X = np.random.default_rng(3).normal(size=(40, 3))
Y = np.where(X[:, 0] + X[:, 1] ** 2 > 0.5, 1.0, -1.0)
COUNTS = np.random.default_rng(4).integers(0, TIMES + 1, len(X))


def held(X, y, weights, row_map, classes=False):
    norm = 1.5 if row_map is None else np.inf
    oracle = Oracle.over(
        X,
        y,
        neighbouring="replace_one",
        bounds=RowBounds(norm, 1.0),
        source=SeededSource(0),
        classification=not classes,
        weights=weights,
    )
    return oracle if row_map is None else oracle.mapped(row_map)


def pairs(form, name, y=Y, classes=False):
    """Records with weights k/4, and each of them k times."""
    many = np.repeat(np.arange(len(X)), COUNTS)
    yield held(form(X), y, COUNTS / TIMES, MAPS[name], classes)
    yield held(form(X[many]), y[many], None, MAPS[name], classes)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])
def test_sums_are_those_of_repeated_records(form, name):
    """Of gradients, values, curvatures and enclosures; a weight of zero is no record."""
    one, many = (oracle.everything() for oracle in pairs(form, name))
    tolerance = 1e-5 if form is FORMS["float32"] else 1e-11
    for loss in (Logistic(), CappedExponential(), Huber(0.3)):
        query = ClippedGradient(loss, 100.0)  # a clip that binds acts before the weight
        answers = [view.ask(query, THETA)._payload for view in (one, many)]
        np.testing.assert_allclose(TIMES * answers[0], answers[1], rtol=tolerance, atol=1e-6)
        first, second = (view.function(loss)._payload for view in (one, many))
        assert TIMES * first.value(THETA) == pytest.approx(second.value(THETA), rel=1e-10)
        for method in ("gradient", "hessian"):
            found = [getattr(part, method)(THETA) for part in (first, second)]
            np.testing.assert_allclose(TIMES * found[0], found[1], rtol=1e-9, atol=1e-9)
        exact = first.gradient(THETA)
        for quick in (False, True):
            enclosed = first.enclosed(THETA, np.zeros(4), quick)
            assert np.linalg.norm(enclosed.value - exact) <= enclosed.error + 1e-13
        product = [part.hessian_product(part.curvatures(THETA), THETA) for part in (first, second)]
        np.testing.assert_allclose(TIMES * product[0], product[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
def test_sums_of_classes_are_those_of_repeated_records(form, name):
    labels = np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)
    one, many = (oracle.everything() for oracle in pairs(form, name, labels, classes=True))
    thetas = np.stack([THETA, -THETA, THETA[::-1]])
    gradient = ClassGradient(Softmax(3), 20.0)
    answers = [view.ask_all(gradient, thetas)._payload for view in (one, many)]
    np.testing.assert_allclose(TIMES * answers[0], answers[1], rtol=1e-4, atol=1e-2)
    resolution = 2.0**12
    counts = [view.ask(ClassCounts(3), resolution=resolution)._payload for view in (one, many)]
    assert np.abs(TIMES * counts[0] - counts[1]).max() <= TIMES * len(X)  # of 4096 a record
    assert np.all(TIMES * counts[0] <= counts[1])


@pytest.mark.parametrize("weight", [0.0, 1e-12, 0.3, 1.0, 7.0, 1e300, -3.0, np.nan, np.inf])
@pytest.mark.parametrize("name", MAPS)
def test_no_weight_carries_a_record_beyond_its_bound(name, weight):
    """In floating point and in integers, for rows far beyond the clip too."""
    generator = np.random.default_rng(5)
    for scale in (0.1, 3.0, 1e8):
        row, label = scale * generator.normal(size=(1, 3)), np.array([1.0])
        view = held(row, label, [weight], MAPS[name]).everything()
        query = ClippedGradient(Logistic(), 0.4)
        assert np.linalg.norm(view.ask(query, THETA)._payload) <= 0.4 * (1 + 1e-12)
        counted = view.ask(query, THETA, resolution=1000.0)
        assert np.linalg.norm(counted._payload * counted.sensitivity.grid.step) <= 0.4
        function = view.function(CappedExponential())
        assert np.linalg.norm(function._payload.gradient(THETA)) <= function.sensitivity.radius
        raw = held(row, label, [weight], None).everything()
        counts = raw.ask(ClassCounts(2), resolution=1000.0)
        assert 0 <= counts._payload.sum() * counts.sensitivity.grid.step <= 1
