"""Standard errors from released moments: closed forms, Fieller's set, and what must not be left
out."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from privopt.inference import Parts, Sandwich
from privopt.inference.noisy_hessian import MOST, NoisyHessian


def sandwich(q=3, **changes):
    rng = np.random.default_rng(q)
    B, C = rng.standard_normal((2, q, q))
    given = {
        "theta": rng.standard_normal(q),
        "shift": np.zeros(q),
        "ridge": np.zeros(q),
        "hessian": 50 * (B @ B.T + 0.5 * np.eye(q)),
        "scores": 50 * (C @ C.T + 0.5 * np.eye(q)),
        "hessian_noise": 0.0,
        "score_noise": 0.0,
        "objective_noise": 0.0,
        "output_noise": 0.0,
        "records": 10**9,
        "quadratic": True,
        "pure": False,
    }
    return Sandwich(**{**given, **changes})


def test_without_noise_it_is_the_textbook_sandwich():
    one = sandwich()
    inverse = np.linalg.inv(one.hessian)
    errors = np.sqrt(np.diag(inverse @ one.scores @ inverse))
    assert one.std_err == pytest.approx(errors, rel=1e-6)
    assert one.std_err_sampling == pytest.approx(errors, rel=1e-6)
    half = norm.ppf(0.95) * errors
    assert one.interval(0.9) == pytest.approx(
        np.column_stack([one.theta - half, one.theta + half]), rel=1e-6
    )
    assert one.p_values() == pytest.approx(2 * norm.sf(np.abs(one.theta) / errors), rel=1e-5)


def test_noise_and_ridge_enter_as_derived():
    one = sandwich(objective_noise=3.0, output_noise=0.01, shift=np.array([1.0, -2.0, 0.5]))
    A = np.linalg.inv(one.hessian)
    assert one.value == pytest.approx(one.theta + A @ one.shift)
    whole = A @ one.scores @ A + 9 * A @ A + 1e-4 * np.eye(3)
    assert one.std_err == pytest.approx(np.sqrt(np.diag(whole)), rel=1e-6)
    own = sandwich(ridge=np.full(3, 7.0), shift=np.ones(3))
    inside = np.linalg.inv(own.hessian + 7 * np.eye(3))
    assert own.value == pytest.approx(own.theta + inside @ own.shift)


def test_noise_of_the_hessian_by_its_formula():
    """E[N u u' N] = tau^2/2 (|u|^2 I + u u') for symmetric N, by simulation; coverage would not
    tell if it were left out. A million draws: 1 % of the largest entry is twelve errors."""
    rng, tau, u = np.random.default_rng(3), 0.7, np.array([1.0, -2.0, 0.5])
    N = rng.standard_normal((200_000, 3, 3)) * tau
    N = np.tril(N) + np.swapaxes(np.tril(N, -1), 1, 2)
    away = ~np.eye(3, dtype=bool)
    N[:, away] /= math.sqrt(2)
    seen = N @ u
    covariance = seen.T @ seen / len(seen)
    formula = tau**2 / 2 * (u @ u * np.eye(3) + np.outer(u, u))
    assert covariance == pytest.approx(formula, abs=0.02 * formula.max())
    one = sandwich(hessian_noise=0.7, shift=np.array([4.0, -1.0, 2.0]))
    A = np.linalg.inv(one.hessian)
    v = A @ one.shift
    inside = 0.7**2 / 2 * (v @ v * A @ A + np.outer(A @ v, A @ v))
    assert one._readings[0].parts["moved"] == pytest.approx(inside)


def fieller(m, moved, s2, tau, z):
    """The set of all d with (m d - moved)^2 <= z^2 (s2 + tau^2 d^2)."""
    a, b, c = m**2 - z**2 * tau**2, m * moved, moved**2 - z**2 * s2
    root = math.sqrt(b**2 - a * c)
    return (b - root) / a, (b + root) / a


@pytest.mark.parametrize("moved", [0.0, 2.0, -5.0])
def test_in_one_dimension_it_is_fiellers_set(moved):
    """But for the noise that is added for the unknown part of the move, which only widens it."""
    m, s, tau = 12.0, 4.0, 1.0
    one = sandwich(
        1,
        theta=np.zeros(1),
        shift=np.array([moved]),
        hessian=np.array([[m]]),
        scores=np.array([[s**2]]),
        hessian_noise=tau,
    )
    z = norm.ppf(0.975)
    low, high = fieller(m, moved, s**2, tau, z)
    (found,) = one.interval(0.95)
    assert found.mean() == pytest.approx((low + high) / 2)
    assert found[0] <= low < high <= found[1]
    assert found[1] - found[0] < 1.15 * (high - low)


@pytest.mark.parametrize(("hessian_noise", "identified"), [(2.4, True), (2.5, False)])
def test_too_much_noise_in_the_hessian_says_nothing(hessian_noise, identified):
    one = sandwich(1, hessian=np.array([[10.0]]), hessian_noise=hessian_noise)
    assert one.kappa == pytest.approx(min((hessian_noise / 10) ** 2, MOST))
    assert one.identified.tolist() == [identified]
    assert np.isfinite(one.interval(0.95)).all() == identified
    assert np.isinf(one.interval(0.9999)).all()
    if not identified:
        assert one.std_err == math.inf
        assert math.isnan(one.p_values()[0])
        assert one.value == one.theta


def test_a_hessian_that_noise_made_indefinite_says_nothing_of_that_direction():
    one = sandwich(2, hessian=np.diag([100.0, -1.0]), hessian_noise=0.1, reach=3.0)
    assert one.identified.tolist() == [True, False]
    assert one.conditional
    assert np.isinf(one.interval(0.95)[1]).all()
    assert not sandwich(2, hessian=np.diag([100.0, -1.0]), hessian_noise=0.1).conditional


def test_one_weak_direction_widens_the_others_by_what_it_hides():
    """Two columns nobody can tell apart, and one beside them that leans on them a little."""
    twins = 50 * np.array([[1.0, 0.999, 0.002], [0.999, 1.0, 0.0], [0.002, 0.0, 2.0]])
    given = {"hessian": twins, "scores": 50 * np.eye(3), "hessian_noise": 0.1}
    one = sandwich(3, **given, reach=2.0)
    assert one.identified.tolist() == [False, False, True]
    known = NoisyHessian.of(twins, 0.1)
    hidden = 2.0 * np.linalg.norm(known.lost[2])
    assert 0 < hidden < 0.01
    apart = sandwich(3, **given, reach=0.0)
    assert one._readings[0]._unseen[2] == pytest.approx(hidden)
    wider = one.std_err[2] - apart.std_err[2]
    assert hidden / norm.ppf(0.975) < wider < 0.5 * apart.std_err[2]
    assert sandwich(3, **given, reach=1e4).identified.tolist() == [False, False, False]


def test_intervals_move_with_the_units():
    one, matrix = sandwich(objective_noise=1.0), np.diag([2.0, -0.1, 5.0])
    other = one.mapped(matrix, np.array([1.0, 0.0, 0.0]))
    assert other.std_err == pytest.approx(np.abs(np.diag(matrix)) * one.std_err)
    again = other.mapped(np.linalg.inv(matrix), -np.array([0.5, 0.0, 0.0]))
    assert again.interval(0.8) == pytest.approx(one.interval(0.8))


def test_norm_gamma_noise_has_heavier_tails():
    """The quantile of one coordinate of norm-Gamma noise in 3 dimensions, within 4 %."""
    q, rng = 3, np.random.default_rng(0)
    direction = rng.standard_normal((400_000, q))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    noise = direction[:, 0] * rng.gamma(q, size=len(direction))
    true = np.quantile(np.abs(noise), 0.95) / math.sqrt(q + 1)
    one = sandwich(q, objective_noise=1e6, pure=True)
    assert one._readings[0].quantile(0.95) == pytest.approx(true, rel=0.04)
    assert one._readings[0].quantile(0.95) > 1.99
    assert sandwich(q, objective_noise=1e6)._readings[0].quantile(0.95) == pytest.approx(1.959964)


def test_fits_on_parts_have_students_interval():
    fits = np.random.default_rng(0).standard_normal((8, 2))
    one = Parts(fits).mapped(np.array([[2.0, 0.0]]), np.array([1.0]))
    values = 2 * fits[:, 0] + 1
    error = values.std(ddof=1) / math.sqrt(8)
    assert one.std_err == pytest.approx([error])
    low, high = t.interval(0.9, 7, values.mean(), error)
    assert one.interval(0.9) == pytest.approx(np.array([[low, high]]))
    assert one.p_values() == pytest.approx([2 * t.sf(abs(values.mean()) / error, 7)])


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_is_a_probability(level):
    for one in (sandwich(), Parts(np.zeros((4, 2)))):
        with pytest.raises(ValueError, match="level must lie between 0 and 1"):
            one.interval(level)
