"""Hard instances and rate formulas behind the benchmark of rates."""

import math

import numpy as np
import pytest

from benchmarks.hard_instances import (
    LINEAR,
    QUADRATIC,
    SCALE,
    best_huberization,
    code_instance,
    code_words,
    fingerprint_instance,
    fingerprint_size,
    huberization_formula,
    tracing_advantage,
)
from benchmarks.rates import fitted, rate


# ---------------------------------------------------------------- instances
def test_code_words_are_far_apart():
    words = code_words(128, 60)
    np.testing.assert_allclose(np.linalg.norm(words, axis=1), 1.0)
    gaps = np.linalg.norm(words[:, None] - words[None], axis=2) + 9 * np.eye(len(words))
    assert gaps.min() >= 1
    with pytest.raises(ValueError, match="2\\^"):
        code_words(16, 5)


@pytest.mark.parametrize("n", [200, 201])
def test_code_instances(n):
    """Rows fit the bound, all but the copies cancel, and the floor is that of the proof."""
    one = code_instance(256, 1.0, n, seed=3)
    assert len(one.X) == len(one.y) == n
    assert np.linalg.norm(one.X, axis=1).max() <= SCALE * (1 + 1e-12)
    np.testing.assert_allclose(one.X.sum(axis=0), SCALE * one.total, atol=1e-12)
    copies = np.linalg.norm(one.total)
    assert copies < (256 / 8 - 1) * math.log(2) < copies + 2
    assert one.floor == pytest.approx(copies / 16)
    best = one.total / copies
    assert one.linear_excess(best) == pytest.approx(0, abs=1e-9)
    assert one.linear_excess(-best) == pytest.approx(2 * copies)


@pytest.mark.parametrize("problem", [LINEAR, QUADRATIC])
def test_the_losses_are_linear_and_quadratic_on_the_domain(problem):
    """The library's objective differs from the instance's by a constant factor and offset."""
    one = code_instance(16, 1.0, 30, seed=1, copies=9)
    rng = np.random.default_rng(0)
    excess = one.quadratic_excess if problem.l2 else one.linear_excess
    values = []
    for _ in range(6):
        theta = problem.domain.project(rng.standard_normal(16))
        total = problem.loss.value(one.X @ theta, one.y).sum() + 15 * problem.l2 * theta @ theta
        values.append((total, SCALE * excess(theta)))
    gaps = np.array([a - b for a, b in values])
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-10)


def test_fingerprints_trace_the_plain_mean_and_not_a_constant():
    p, epsilon = 1024, 0.1
    assert fingerprint_size(p, epsilon) == math.floor(32 / (6 * math.expm1(0.1)))
    traced = {"plain": [], "fixed": []}
    for seed in range(5):
        one, means, fresh = fingerprint_instance(p, epsilon, 300, seed)
        members = one.X[: len(fresh)] / SCALE
        np.testing.assert_allclose(one.X.sum(axis=0), SCALE * one.total, atol=1e-10)
        traced["plain"].append(tracing_advantage(one.total / 300, members, fresh, means))
        traced["fixed"].append(tracing_advantage(np.ones(p), members, fresh, means))
    assert np.mean(traced["plain"]) > 4
    assert abs(np.mean(traced["fixed"])) < 2.5  # five draws of a standard normal: 5.6 deviations
    assert one.floor == pytest.approx(p / (432 * math.expm1(0.1) ** 2 * 300))


def test_huberization_fails_as_the_square_root_of_n():
    """Known values, within 30 %; the exponential mechanism's excess is 1."""
    found = {n: best_huberization(n, 1.0) for n in (10**3, 10**4, 10**5, 10**6)}
    for (n, value), known in zip(found.items(), (8.6, 26, 86, 280), strict=True):
        assert value == pytest.approx(known, rel=0.3)
        assert huberization_formula(n, 1.0) <= value
    assert np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0] == pytest.approx(
        0.5, abs=0.02
    )


# ---------------------------------------------------------------- rates
def book_rate(n, p, eps, delta=0.0, strong=0.0, smooth=False, bound="upper", previous=False):
    """Known bounds, case by case."""
    ld = math.log(1 / delta) if delta else None
    lower = bound == "lower"
    if not strong:
        if not delta:
            r = p * math.sqrt(n) / eps if previous and not smooth and not lower else p / eps
        elif lower:
            r = math.sqrt(p) / eps
        elif smooth:
            r = math.sqrt(p) * ld / eps
        elif previous:
            r = math.sqrt(p * n * ld) / eps
        else:
            r = math.sqrt(p) * math.log(n / delta) ** 2 / eps
    elif not delta:
        if lower:
            r = p * p / (n * eps**2)
        elif smooth:
            r = p * p / (n * strong * eps**2)
        elif previous:
            r = p * p / (math.sqrt(n) * strong * eps**2)
        else:
            r = math.log(n) / strong * p * p / (n * eps**2)
    elif lower:
        r = p / (n * eps**2)
    elif smooth:
        r = p * ld / (n * strong * eps**2)
    elif previous:
        r = p * ld / (math.sqrt(n) * strong * eps**2)
    else:
        r = math.log(n / delta) ** 3 / strong * p / (n * eps**2)
    return min(n, r)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("strong", [0.0, 0.3])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("previous", [False, True])
def test_table_one(delta, strong, smooth, previous):
    for n, p, epsilon in ((1_000, 5, 1.0), (1_000_000, 50, 0.3), (100, 1000, 0.1)):
        for bound in ("upper", "lower"):
            found = rate(
                n, p, epsilon, delta, strong=strong, smooth=smooth, bound=bound, previous=previous
            )
            known = book_rate(n, p, epsilon, delta, strong, smooth, bound, previous)
            assert found == pytest.approx(known)


def test_slopes_are_fitted_in_all_three_directions():
    cells = {
        ("x", n, p, e): 1e-3 * n**-1.5 * e**-1.0 * p**0.5
        for n in (100, 1000)
        for p in (2, 20)
        for e in (0.1, 1.0)
    }
    slopes, count = fitted("x", cells, {(n, p): 1.0 for n in (100, 1000) for p in (2, 20)})
    np.testing.assert_allclose(slopes, [-1.5, -1.0, 0.5], atol=1e-9)
    assert count == 8
    assert fitted("y", cells, {}) is None
