"""Mirror maps: closed-form steps against a general-purpose minimiser, and their constants."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt.geometry import L1Ball, L2Ball, LpBall, Simplex, mirror_of
from privopt.geometry.norms import ascent, dual_order, lp_norm

SETS = {
    "l1": L1Ball(1.5),
    "l1.2": LpBall(1.2, 0.8),
    "l1.5": LpBall(1.5, 2.0),
    "l2": LpBall(2.0, 1.0),
    "simplex": Simplex(1.5),
}
every = pytest.mark.parametrize("domain", SETS.values(), ids=SETS.keys())


def potential(mirror, x):
    if mirror.order == 1:
        return mirror.scale * float(np.sum(np.where(x > 0, x * np.log(np.maximum(x, 1e-300)), 0)))
    return lp_norm(x, mirror.exponent) ** 2 / (2 * (mirror.exponent - 1))


def divergence(mirror, x, other):
    return potential(mirror, x) - potential(mirror, other) - mirror.to_dual(other) @ (x - other)


def inside(domain, rng, count, p=3):
    return [domain.project(x) for x in rng.normal(size=(count, p)) * 2]


@every
def test_a_step_is_the_minimiser_that_no_point_of_the_set_beats(domain):
    rng = np.random.default_rng(0)
    mirror = mirror_of(domain, 3)
    for y in rng.normal(size=(8, 3)) * np.array([0.1, 1.0, 3.0])[:, None].repeat(3, 1)[0]:
        x = mirror.from_dual(rng.normal(size=3))
        found = mirror.step(x, y)
        assert domain.contains(found)

        def cost(z, x=x, y=y):
            return y @ z + divergence(mirror, z, x)

        for z in inside(domain, rng, 300):
            # Near the answer as well as far from it.
            for share in (1.0, 0.1, 0.01):
                assert cost(found) <= cost(found + share * (z - found)) + 1e-10


def test_a_step_on_the_l1_ball_against_a_general_minimiser():
    """Split signs make the constraint smooth: an independent solver agrees."""
    rng = np.random.default_rng(1)
    mirror = mirror_of(L1Ball(1.0), 4)
    for _ in range(5):
        x, y = mirror.from_dual(rng.normal(size=4)), 2 * rng.normal(size=4)

        def cost(parts, x=x, y=y):
            z = parts[:4] - parts[4:]
            return y @ z + divergence(mirror, z, x)

        best = minimize(
            cost,
            np.full(8, 0.1),
            bounds=[(0, 1)] * 8,
            constraints={"type": "ineq", "fun": lambda parts: 1 - parts.sum()},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        found = mirror.step(x, y)
        split = np.concatenate([np.maximum(found, 0), np.maximum(-found, 0)])
        assert cost(split) <= best.fun + 1e-7


@every
def test_strong_convexity_and_size(domain):
    rng = np.random.default_rng(2)
    mirror = mirror_of(domain, 5)
    centre = domain.centre(5)
    points = inside(domain, rng, 60, 5) + [domain.linear_minimiser(g) for g in np.eye(5)]
    for x in points:
        assert potential(mirror, x) - potential(mirror, centre) - (
            mirror.to_dual(centre) @ (x - centre)
        ) <= mirror.size * (1 + 1e-12)
        for z in points[:60:5]:
            z = 0.9 * z + 0.1 * centre
            gap = lp_norm(x - z, mirror.order) ** 2 / 2
            assert divergence(mirror, x, z) >= gap * (1 - 1e-9) - 1e-12


@pytest.mark.parametrize("order", [1.2, 1.5, 2.0])
def test_the_maps_invert_each_other_inside(order):
    mirror = mirror_of(LpBall(order, 100.0), 4)
    x = np.array([0.3, -2.0, 0.0, 1.0])
    np.testing.assert_allclose(mirror.from_dual(mirror.to_dual(x)), x, atol=1e-12)


def test_l2_is_projected_gradient_descent():
    mirror = mirror_of(LpBall(2.0, 1.0), 3)
    assert mirror == mirror_of(L2Ball(1.0), 3)
    x, y = np.array([0.5, 0.1, 0.0]), np.array([1.0, -2.0, 0.2])
    np.testing.assert_allclose(mirror.step(x, y), L2Ball(1.0).project(x - y), atol=1e-12)


@pytest.mark.parametrize("order", [1.0, 1.3, 2.0, 5.0, math.inf])
def test_hoelder_is_tight_along_the_ascent(order):
    for g in np.random.default_rng(3).normal(size=(20, 6)):
        u = ascent(g, order)
        assert lp_norm(u, order) == pytest.approx(1.0)
        assert g @ u == pytest.approx(lp_norm(g, dual_order(order)))


def test_sets_without_a_mirror_map():
    for domain in (LpBall(3.0, 1.0), LpBall(math.inf, 1.0), L2Ball(1.0, centre=[0.0, 1.0, 0.0])):
        with pytest.raises(ValueError, match="no mirror map"):
            mirror_of(domain, 3)
