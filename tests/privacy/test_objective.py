"""Gaussian objective perturbation against the densities of what it really releases.

theta minimises F(theta) + loss(theta) + lambda theta^2 / 2 + b theta with b ~ N(0, sigma^2). The
map from b to theta is a bijection, so the density of theta is that of b times the second derivative
of the objective; the hockey-stick divergence of two such densities is an integral on a line.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from privopt.privacy import Accountant, charge_of
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian

LAMBDA = 1.0


# ------------------------------------------------------------------ losses of one record in 1-D
def nothing():
    zero = np.zeros_like
    return SimpleNamespace(slope=zero, curvature=zero, breaks=())


def logistic(sign, lipschitz, smoothness, at=0.0):
    """Slope sign L sigmoid(sign a (theta - at)), curvature at most L a / 4: one-signed."""
    a = 4 * smoothness / lipschitz

    def sigmoid(theta):
        return 0.5 * (1 + np.tanh(sign * a * (theta - at) / 2))

    return SimpleNamespace(
        slope=lambda theta: sign * lipschitz * sigmoid(theta),
        curvature=lambda theta: lipschitz * a * sigmoid(theta) * (1 - sigmoid(theta)),
        breaks=at + np.linspace(-8, 8, 33) / a,
    )


def ramp(low, high, smoothness, at=0.0):
    """Slope grows from low to high at the largest allowed rate: the extreme loss of its class."""
    end = at + (high - low) / smoothness
    return SimpleNamespace(
        slope=lambda theta: np.clip(low + smoothness * (theta - at), low, high),
        curvature=lambda theta: np.where((theta > at) & (theta < end), smoothness, 0.0),
        breaks=(at, end),
    )


def released(record, others, sigma):
    """Density of the minimiser."""

    def density(theta):
        b = LAMBDA * theta + record.slope(theta) + others.slope(theta)
        stretch = LAMBDA + record.curvature(theta) + others.curvature(theta)
        return np.exp(-((b / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi)) * stretch

    return density


def divergence(exact, first, second, others, sigma, epsilon, mu_g=0.0):
    """Hockey-stick divergence of the two releases, composed with a mu_g-GDP one."""
    sensitivity = (9 * sigma + 2.5) / LAMBDA
    fine = np.linspace(-sensitivity, sensitivity, 120)
    breaks = np.concatenate([first.breaks, second.breaks, others.breaks])
    theta, w = exact.rule(np.concatenate([fine, np.clip(breaks, -sensitivity, sensitivity)]))
    p, q = (released(record, others, sigma)(theta) for record in (first, second))
    assert np.sum(w * p) == pytest.approx(1, abs=1e-9)
    assert np.sum(w * q) == pytest.approx(1, abs=1e-9)
    if mu_g == 0:
        return float(np.sum(w * np.maximum(p - math.exp(epsilon) * q, 0.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0, np.log(p) - np.log(q), 0.0)
    return float(np.sum(w * p * exact.gaussian_delta_mills(epsilon - loss, mu_g)))


def pairs(kind, smoothness, sigma):
    """Pairs (with, without) or (one, other) of records of one class, and the other records."""
    crowd = logistic(-1, 0.7, 0.4, at=0.5)
    for at in (-sigma, 0.0, sigma, -6 * sigma, 6 * sigma):
        if kind == "one_signed":
            for sign in (-1, 1):
                yield logistic(sign, 1.0, smoothness, at), nothing(), crowd
            yield ramp(0.0, 1.0, smoothness, at), nothing(), nothing()
            yield ramp(-1.0, 0.0, smoothness, at), nothing(), crowd
        elif kind == "two_signed":
            yield ramp(-1.0, 1.0, smoothness, at), nothing(), nothing()
            yield ramp(-1.0, 1.0, smoothness, at - 1 / smoothness), nothing(), nothing()
            yield ramp(-1.0, 1.0, smoothness, at), nothing(), crowd
            yield ramp(-0.3, 1.0, smoothness, at), nothing(), nothing()
        else:
            yield ramp(-1.0, 1.0, smoothness, at), ramp(-1.0, 1.0, smoothness, -at), nothing()
            yield logistic(-1, 1.0, smoothness, at), logistic(1, 1.0, smoothness, at), crowd
            yield ramp(-1.0, 0.0, smoothness, at), ramp(0.0, 1.0, smoothness, at), nothing()
            yield ramp(-1.0, 1.0, smoothness, 999.0), ramp(-1.0, 1.0, smoothness, -999.0), nothing()


# (class of records, relation) and a bound on the ratio of the accountant's delta to the worst true
# delta among the pairs above, for a log-determinant that is small (a record cannot have its largest
# curvature at every theta at once). A loss of two signs and replace_one pay for |Z| in place of Z,
# replace_one for a union over two directions as well.
CASES = [("one_signed", "zero_out", 1.2), ("two_signed", "add_remove", 2.1)]
CASES += [("replace", "replace_one", 3.2)]


@pytest.mark.parametrize("mu_g", [0.0, 0.5])
@pytest.mark.parametrize(("records", "relation", "factor"), CASES)
def test_the_true_densities_stay_below_the_accountant(exact, records, relation, factor, mu_g):
    accountant = Accountant(relation)
    settings = [(1.0, 0.02), (0.5, 1.0), (2.0, 0.3)]
    if relation == "replace_one" and mu_g:
        settings = settings[:1]  # the same code path as above and a dear quadrature
    for mu, smoothness in settings:
        kind = ObjectiveGaussian(mu, math.log1p(smoothness / LAMBDA), records == "one_signed")
        charge = charge_of(kind)
        if mu_g:
            charge += charge_of(GaussianKind(mu_g, mu_g))
        for epsilon in (0.5, 2.5):
            worst = max(
                divergence(exact, p, q, others, 1 / mu, epsilon, mu_g)
                for first, second, others in pairs(records, smoothness, 1 / mu)
                for p, q in ((first, second), (second, first))
            )
            # At a delta that is just too small for epsilon, the accountant must not say epsilon.
            case = (mu, smoothness, epsilon, worst)
            assert accountant.epsilon(charge, worst * (1 - 1e-6)) > epsilon, case
            if smoothness < 0.1 and factor * worst < 0.9:
                assert accountant.epsilon(charge, factor * worst) <= epsilon, case


# ------------------------------------------------------------------ two records in the plane
def plane_density(theta, direction, sign, smoothness, sigma):
    """Density of the minimiser of a logistic loss of <direction, theta> in two dimensions."""
    z = direction[0] * theta[0] + direction[1] * theta[1]
    record = logistic(sign, 1.0, smoothness)
    b = [LAMBDA * t + record.slope(z) * d for t, d in zip(theta, direction, strict=True)]
    stretch = LAMBDA * (LAMBDA + record.curvature(z))
    return np.exp(-(b[0] ** 2 + b[1] ** 2) / (2 * sigma**2)) / (2 * math.pi * sigma**2) * stretch


@pytest.mark.parametrize("angle", [0.0, 0.7, math.pi / 2, 2.5, math.pi])
def test_two_records_of_any_angle_stay_below_the_replace_one_profile(exact, angle):
    mu, smoothness = 0.8, 0.4
    x, w = exact.rule(np.linspace(-12, 12, 14))
    plane, weight = np.meshgrid(x, x), np.outer(w, w)
    kind = ObjectiveGaussian(mu, math.log1p(smoothness / LAMBDA), True)
    turned = (math.cos(angle), math.sin(angle))
    for sign in (-1, 1):
        p = plane_density(plane, (1.0, 0.0), 1, smoothness, 1 / mu)
        q = plane_density(plane, turned, sign, smoothness, 1 / mu)
        assert np.sum(weight * p) == pytest.approx(1, abs=1e-8)
        for epsilon in (0.5, 2.0):
            for one, other in ((p, q), (q, p)):
                gap = one - math.exp(epsilon) * other
                delta = float(np.sum(weight * np.maximum(gap, 0.0)))
                if delta > 1e-9:  # same record: nothing to tell
                    found = Accountant("replace_one").epsilon(charge_of(kind), delta * (1 - 1e-3))
                    assert found > epsilon


# ------------------------------------------------------------------ several of them together
def nodes(exact, shape, mu, c):
    """Values and probabilities of one dominating loss, as the documentation of the kind states."""
    if shape == "truncated":  # c + (mu^2/2 + mu Z)_+
        z, w = exact.rule([-mu / 2, 0.0, 2.0, 4.5, 9.0])
        value, chance = mu**2 / 2 + mu * z, w * exact.density(z)
        value, chance = np.append(value, 0.0), np.append(chance, ndtr(-mu / 2))
    else:  # c + mu^2/2 + mu |Z|
        z, w = exact.rule([0.0, 2.0, 4.5, 9.0])
        value, chance = mu**2 / 2 + mu * z, 2 * w * exact.density(z)
    return c + value, chance


def together(exact, losses, mu_g):
    """E over all losses of the Gaussian profile at what is left of epsilon: one exact sum."""
    total, chance = np.zeros(1), np.ones(1)
    for value, weight in losses:
        total = np.add.outer(total, value).ravel()
        chance = np.multiply.outer(chance, weight).ravel()
        total, chance = total[chance > 1e-17], chance[chance > 1e-17]
    return lambda epsilon: float(chance @ exact.gaussian_delta_mills(epsilon - total, mu_g))


@pytest.mark.parametrize("one_signed", [True, False])
@pytest.mark.parametrize(
    ("parts", "mu_g"),
    [
        ([(0.5, 0.2), (0.8, 0.1), (0.3, 0.4)], 0.6),
        ([(0.5, 0.01), (0.4, 0.0), (0.6, 0.02)], 0.3),
        ([(0.05, 0.01), (0.04, 0.005), (0.03, 0.02)], 0.1),
    ],
)
def test_three_objectives_and_gaussians(exact, parts, mu_g, one_signed):
    """Not below the exact sum of the documented losses, and at most one per cent above it."""
    charge = charge_of(GaussianKind(mu_g / 2, mu_g / 2), count=4)
    for mu, c in parts:
        charge += charge_of(ObjectiveGaussian(mu, c, one_signed))
    back = "truncated" if one_signed else "folded"
    there = together(exact, [nodes(exact, "truncated", mu, c) for mu, c in parts], mu_g)
    again = together(exact, [nodes(exact, back, mu, 0.0) for mu, _ in parts], mu_g)
    for delta in (1e-3, 1e-7):
        found = Accountant("zero_out").epsilon(charge, delta)
        assert max(there(found), again(found)) <= delta * (1 + 1e-6)
        assert max(there(0.99 * found), again(0.99 * found)) > delta


def test_the_same_objective_twice(exact):
    mu, c, mu_g = 0.6, 0.15, 0.2
    charge = charge_of(ObjectiveGaussian(mu, c, True), count=2) + charge_of(
        GaussianKind(mu_g, mu_g)
    )
    truth = together(exact, [nodes(exact, "truncated", mu, c)] * 2, mu_g)
    found = Accountant("add_remove").epsilon(charge, 1e-5)
    assert truth(found) <= 1e-5 * (1 + 1e-6)
    assert truth(0.99 * found) > 1e-5


def test_replaced_objectives_together(exact):
    """Between one common direction (c + 2 mu^2 + 2 mu |Z|) and the longest possible projection."""
    parts, mu_g = [(0.3, 0.2), (0.4, 0.1)], 0.5
    charge = charge_of(GaussianKind(mu_g, mu_g / 2))
    for mu, c in parts:
        charge += charge_of(ObjectiveGaussian(mu, c, False))
    line = together(exact, [nodes(exact, "folded", 2 * mu, c) for mu, c in parts], mu_g)
    r, w = exact.rule([0.0, 2.0, 4.5, 9.0])
    longest = [(c + 2 * mu**2 + 2 * mu * r, w * r * np.exp(-(r**2) / 2)) for mu, c in parts]
    found = Accountant("replace_one").epsilon(charge, 1e-5)
    assert line(found) <= 1e-5
    assert together(exact, longest, mu_g)(0.99 * found) > 1e-5


def test_a_wider_subspace_is_bounded_by_its_chi_loss(exact):
    """Three dimensions: mu^2/2 + mu chi_3, with the log-determinant when the record is present."""
    mu, c, mu_g = 0.5, 0.3, 0.4
    r, w = exact.rule([0.0, 2.0, 4.5, 9.5])
    chance = w * r**2 * np.exp(-(r**2) / 2) * math.sqrt(2 / math.pi)
    truth = together(exact, [(c + mu**2 / 2 + mu * r, chance)], mu_g)
    charge = charge_of(ObjectiveGaussian(mu, c, False, 3), GaussianKind(mu_g, mu_g))
    found = Accountant().epsilon(charge, 1e-6)
    assert truth(found) <= 1e-6 * (1 + 1e-6)
    assert truth(0.99 * found) > 1e-6


def test_a_subspace_is_never_cheaper_than_a_line():
    for relation in ("zero_out", "replace_one"):
        known = [
            Accountant(relation).epsilon(charge_of(ObjectiveGaussian(0.5, 0.1, False, m)), 1e-5)
            for m in (1, 2, 5)
        ]
        assert known == sorted(known)
        assert known[0] < known[1] < known[2]


@pytest.mark.parametrize(
    "arguments", [(0.0, 0.1, True), (1.0, -0.1, True), (1.0, math.inf, True), (1.0, 0.1, True, 0)]
)
def test_an_impossible_objective_is_refused(arguments):
    with pytest.raises(ValueError, match=r"must be"):
        ObjectiveGaussian(*arguments)
