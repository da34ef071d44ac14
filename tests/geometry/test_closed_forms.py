"""Sets with vertices: closed forms against enumeration, and polytopes against closed forms."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt.geometry import Box, L1Ball, L2Ball, Polytope, Simplex

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


def pairs(p: int):
    """The closed-form set and the list of its vertices."""
    eye = np.eye(p)
    corners = np.array([*itertools.product((0, 1), repeat=p)], dtype=float)
    low, high = np.arange(p) - 1.5, np.arange(p) ** 2 + 1.0
    return {
        "simplex": (Simplex(2.0), 2.0 * eye),
        "l1": (L1Ball(1.5), np.vstack([1.5 * eye, -1.5 * eye])),
        "cube": (Box(-0.5, 2.0), corners * 2.5 - 0.5),
        "box": (Box(low, high), low + corners * (high - low)),
    }


cases = pytest.mark.parametrize("name", ["simplex", "l1", "cube", "box"])
dimensions = pytest.mark.parametrize("p", [1, 2, 3, 5])


@cases
@dimensions
@pytest.mark.parametrize("norm", ORDER)
def test_radius_and_diameter_by_enumeration(name, p, norm):
    domain, vertices = pairs(p)[name]
    away = np.linalg.norm(vertices - domain.centre(p), ORDER[norm], axis=1).max()
    apart = max(np.linalg.norm(vertices - v, ORDER[norm], axis=1).max() for v in vertices)
    for candidate in (domain, Polytope(vertices)):
        assert candidate.radius(norm, p) == pytest.approx(away, abs=1e-12)
        assert candidate.diameter(norm, p) == pytest.approx(apart, abs=1e-12)


@cases
@dimensions
def test_linear_minimiser_by_enumeration(name, p):
    domain, vertices = pairs(p)[name]
    hull = Polytope(vertices)
    for g in [*np.random.default_rng(p).normal(size=(30, p)), np.zeros(p), np.ones(p)]:
        for scale in (1.0, 1e300):
            best = (vertices @ g).min()
            assert domain.linear_minimiser(scale * g) @ g == pytest.approx(best, abs=1e-12)
            assert hull.linear_minimiser(scale * g) @ g == pytest.approx(best, abs=1e-12)
        assert (vertices == domain.linear_minimiser(g)).all(axis=1).any()


@cases
@dimensions
def test_polytope_projection_agrees_with_the_closed_form(name, p):
    domain, vertices = pairs(p)[name]
    hull = Polytope(vertices)
    rng = np.random.default_rng(10 + p)
    points = rng.normal(size=(60, p)) * rng.choice([0.1, 1.0, 10.0, 1e4], size=(60, 1))
    for x in [*points, *vertices, domain.centre(p), np.ones(p), np.zeros(p)]:
        scale = max(1.0, np.abs(x).max())
        np.testing.assert_allclose(hull.project(x), domain.project(x), atol=1e-11 * scale)


@cases
@dimensions
def test_polytope_gauge_agrees_with_the_closed_form(name, p):
    domain, vertices = pairs(p)[name]
    hull = Polytope(vertices)
    for x in np.random.default_rng(20 + p).normal(size=(15, p)) * 3.0:
        if name == "simplex":
            x = x - (x.sum() - 2.0) / p
        assert hull.gauge(x) == pytest.approx(domain.gauge(x), rel=1e-9, abs=1e-9)


def test_polytope_with_many_redundant_vertices_in_higher_dimension():
    p = 12
    rng = np.random.default_rng(30)
    inner = rng.dirichlet(np.ones(p), size=200)
    hull = Polytope(np.vstack([np.eye(p), inner, np.eye(p)]))
    for x in rng.normal(size=(40, p)) * 0.4:
        np.testing.assert_allclose(hull.project(x), Simplex().project(x), atol=1e-12)


def test_thin_polytope_has_an_exact_gauge():
    hull = Polytope([[-1.0, -1e-7], [1.0, -1e-7], [1.0, 1e-7], [-1.0, 1e-7]])
    assert hull.gauge([0.0, 3e-7]) == pytest.approx(3.0, rel=1e-9)
    assert hull.gauge([0.5, 0.0]) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("domain", [L1Ball(1.0), Simplex(1.0), L2Ball(1.0), Box(0.0, 0.3)])
def test_projection_agrees_with_a_generic_solver(domain):
    constraint = {
        L1Ball: [{"type": "ineq", "fun": lambda s: 1.0 - s.sum()}],
        Simplex: [{"type": "eq", "fun": lambda s: 1.0 - s.sum()}],
        L2Ball: [{"type": "ineq", "fun": lambda s: 1.0 - s @ s}],
        Box: [],
    }[type(domain)]
    top = 0.3 if isinstance(domain, Box) else None
    # For nonnegative x all four projections lie in the nonnegative orthant.
    for x in np.random.default_rng(40).uniform(0.0, 2.0, size=(10, 4)):
        solution = minimize(
            lambda s, x=x: 0.5 * ((s - x) ** 2).sum(),
            np.full(4, 0.1),
            jac=lambda s, x=x: s - x,
            bounds=[(0.0, top)] * 4,
            constraints=constraint,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(domain.project(x), solution.x, atol=1e-6)


def test_l1_projection_keeps_signs_and_hits_the_sphere():
    x = np.array([1e300, -1e300, 1.0, 0.0])
    np.testing.assert_array_equal(L1Ball(1.0).project(x), [0.5, -0.5, 0.0, 0.0])
    np.testing.assert_array_equal(Simplex().project(x), [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(Simplex().project(np.full(4, 1e300)), 0.25)


def test_scalar_and_vector_bounds_describe_the_same_box():
    assert Box(0.0, [1.0, 2.0]) == Box((0, 0), np.array([1, 2]))
    assert Box(0, 1) != Box((0, 0), (1, 1))
    assert L2Ball(1, centre=[0, 1]) == L2Ball(radius=1.0, centre=np.array([0.0, 1.0]))
    assert hash(Polytope([[0.0, 1.0]])) == hash(Polytope([[-0.0, 1.0]]))
    with pytest.raises(ValueError, match="read-only"):
        Polytope([[0.0, 1.0]]).vertices[0, 0] = 1.0
