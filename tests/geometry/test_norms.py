"""Norms, duals and the constants between norms."""

import itertools
import math

import numpy as np
import pytest

from privopt.geometry.norms import dual, norm, ratio

NORMS = ("l1", "l2", "linf")


@pytest.mark.parametrize(("which", "order"), [("l1", 1), ("l2", 2), ("linf", np.inf)])
def test_norm_agrees_with_numpy(which, order):
    x = np.random.default_rng(0).normal(size=17)
    assert norm(x, which) == pytest.approx(np.linalg.norm(x, order), rel=1e-14)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1e300])
def test_l2_norm_neither_overflows_nor_underflows(scale):
    assert norm(np.array([3.0, -4.0]) * scale, "l2") == pytest.approx(5.0 * scale, rel=1e-3)


@pytest.mark.parametrize("which", NORMS)
def test_norm_of_zero_and_input_untouched(which):
    x = np.array([1e300, -2e300])
    norm(x, which)
    assert x.tolist() == [1e300, -2e300]
    assert norm(np.zeros(3), which) == 0.0


@pytest.mark.parametrize("which", NORMS)
def test_dual_norm_is_the_best_holder_bound(which):
    x = np.random.default_rng(1).normal(size=6)
    peak = np.eye(6)[np.argmax(np.abs(x))] * np.sign(x)
    best = {"l1": peak, "l2": x / np.linalg.norm(x), "linf": np.sign(x)}[which]
    assert norm(best, which) == pytest.approx(1.0)
    assert x @ best == pytest.approx(norm(x, dual(which)))
    assert dual(dual(which)) == which


@pytest.mark.parametrize(("to", "frm"), [*itertools.product(NORMS, NORMS)])
@pytest.mark.parametrize("p", [1, 2, 7])
def test_ratio_is_attained_and_never_exceeded(to, frm, p):
    rng = np.random.default_rng(2)
    points = [np.ones(p), np.eye(p)[0], *rng.normal(size=(200, p))]
    ratios = [norm(x, to) / norm(x, frm) for x in points]
    assert max(ratios) == pytest.approx(ratio(to, frm, p), rel=1e-12)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="'l1', 'l2', 'linf'"):
        norm(np.ones(2), "l3")
    with pytest.raises(ValueError, match="at least 1"):
        ratio("l1", "l2", 0)
    assert math.isfinite(ratio("l1", "linf", 10**6))
