"""Properties that every constraint set must have."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.geometry import (
    Box,
    Domain,
    L1Ball,
    L2Ball,
    LpBall,
    Polytope,
    Simplex,
    WholeSpace,
)

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}
CLOUD = np.random.default_rng(5).normal(size=(9, 3))
FLAT = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, -1.0, 0.0], [0.1, 0.1, 0.0]])
BOUNDED = {
    "l2": L2Ball(1.5),
    "l2 off centre": L2Ball(0.7, centre=(1.0, -2.0, 3.0)),
    "l1": L1Ball(2.0),
    "l1 by its exponent": LpBall(1.0, 2.0),
    "l1.3": LpBall(1.3, 1.5),
    "l2 by its exponent": LpBall(2.0, 1.5),
    "l4": LpBall(4.0, 0.7),
    "linf": LpBall(math.inf, 2.0),
    "cube": Box(-1.0, 1.0),
    "box": Box((-1.0, 0.0, 2.0), (0.5, 4.0, 2.5)),
    "box with a flat side": Box((-1.0, 0.0, 2.0), (0.5, 4.0, 2.0)),
    "simplex": Simplex(),
    "simplex scaled": Simplex(3.0),
    "polytope": Polytope(CLOUD),
    "polytope flat": Polytope(FLAT),
    "polytope point": Polytope([[1.0, 2.0, 3.0]]),
}
ALL = BOUNDED | {"whole": WholeSpace()}
every = pytest.mark.parametrize("domain", ALL.values(), ids=ALL.keys())
every_bounded = pytest.mark.parametrize("domain", BOUNDED.values(), ids=BOUNDED.keys())

vectors = st.lists(st.floats(-8, 8), min_size=3, max_size=3).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def points_of(domain: Domain, seed: int, count: int = 40) -> np.ndarray:
    """Points of the set: its extreme points in random directions, and mixtures of them."""
    rng = np.random.default_rng(seed)
    if not domain.bounded:
        return rng.normal(size=(count, 3)) * 5
    extreme = np.array([domain.linear_minimiser(g) for g in rng.normal(size=(count // 2, 3))])
    return np.vstack([extreme, rng.dirichlet(np.ones(len(extreme)), len(extreme)) @ extreme])


@every
@settings(max_examples=60, deadline=None)
@given(x=vectors, seed=seeds)
def test_projection_satisfies_the_variational_inequality(domain, x, seed):
    q = domain.project(x)
    assert domain.contains(q)
    assert ((points_of(domain, seed) - q) @ (x - q)).max() <= 1e-8


@every
@settings(max_examples=40, deadline=None)
@given(x=vectors, y=vectors)
def test_projection_is_idempotent_and_non_expansive(domain, x, y):
    px, py = domain.project(x), domain.project(y)
    np.testing.assert_allclose(domain.project(px), px, atol=1e-9)
    assert np.linalg.norm(px - py) <= np.linalg.norm(x - y) + 1e-9


@every
def test_projection_keeps_members_and_never_aliases(domain):
    for x in points_of(domain, 3):
        before = x.copy()
        q = domain.project(x)
        np.testing.assert_allclose(q, x, atol=1e-9)
        assert not np.shares_memory(q, x)
        q[:] = np.nan
        assert (x == before).all()
    for fresh in (domain.centre, lambda _: domain.project(domain.centre(3))):
        array = fresh(3)
        array[:] = np.nan
        assert np.isfinite(domain.centre(3)).all()


@every_bounded
@pytest.mark.parametrize("size", [1e10, 1e100, 1e300])
def test_projection_of_huge_points(domain, size):
    directions = [*np.random.default_rng(7).normal(size=(10, 3)), np.ones(3), np.eye(3)[0]]
    for u in directions:
        q = domain.project(size * u)
        assert domain.contains(q)
        support = (points_of(domain, 1) - q) @ u
        assert support.max() <= 1e-9
        # Huge points do not lie in a bounded set.
        assert not domain.contains(size * u)
        assert domain.gauge(size * u) > 1.0


@every_bounded
@settings(max_examples=40, deadline=None)
@given(g=vectors, seed=seeds)
def test_linear_minimiser_is_a_member_no_member_beats(domain, g, seed):
    best = domain.linear_minimiser(g)
    assert domain.contains(best)
    # Members are made here from projections, not from the minimiser itself.
    members = [domain.project(x) for x in np.random.default_rng(seed).normal(size=(20, 3)) * 4]
    assert (np.array(members) @ g).min() >= g @ best - 1e-9


@every
@settings(max_examples=30, deadline=None)
@given(x=vectors)
def test_gauge_agrees_with_bisection_on_contains(domain, x):
    centre = domain.centre(3)
    # Stay on the affine hull, where the gauge is finite.
    x = centre + (domain.project(x) - centre) * 1.7
    if np.linalg.norm(x - centre) < 1e-3:
        # Division by a tiny t would blow rounding up.
        assert domain.gauge(x) < 0.1
        return
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = 0.5 * (low + high)
        if domain.contains(centre + (x - centre) / middle, tolerance=1e-11):
            high = middle
        else:
            low = middle
    assert domain.gauge(x) == pytest.approx(high, abs=1e-8, rel=1e-8)


@pytest.mark.parametrize("name", ["simplex", "polytope flat", "box with a flat side"])
def test_gauge_is_infinite_off_the_affine_hull(name):
    domain = BOUNDED[name]
    assert domain.gauge(domain.centre(3) + 0.1) == math.inf
    assert domain.gauge(domain.centre(3)) == 0.0


@every_bounded
@pytest.mark.parametrize("norm", NORMS)
def test_radius_and_diameter_are_attained_and_never_exceeded(domain, norm):
    # Sign patterns lead to the worst points of the balls in every norm.
    directions = np.array([*itertools.product((-1.0, 0.0, 1.0), repeat=3)])
    directions = np.vstack([directions, np.random.default_rng(11).normal(size=(400, 3))])
    points = np.array([domain.linear_minimiser(g) for g in directions])
    away = np.linalg.norm(points - domain.centre(3), NORMS[norm], axis=1).max()
    apart = max(np.linalg.norm(points - q, NORMS[norm], axis=1).max() for q in points)
    assert domain.radius(norm, 3) == pytest.approx(away, rel=1e-9)
    assert domain.diameter(norm, 3) == pytest.approx(apart, rel=1e-9)


@every
def test_equal_by_value_hashable_and_picklable(domain):
    copy = pickle.loads(pickle.dumps(domain))
    assert copy == domain
    assert hash(copy) == hash(domain)
    domain.project(np.ones(3))
    assert pickle.loads(pickle.dumps(domain)) == domain
    assert len({*ALL.values(), copy}) == len(ALL)
    assert type(domain).__name__ in repr(domain)


@every
def test_points_of_the_wrong_kind_are_refused(domain):
    with pytest.raises(ValueError, match="vector"):
        domain.project(np.ones((2, 3)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        domain.project([1.0, np.nan, 2.0])
    assert not domain.contains([np.inf, 0.0, 0.0])
    with pytest.raises(ValueError, match="at least 1"):
        domain.check_dimension(0)
    if domain.dimension is None:
        domain.check_dimension(17)
    else:
        with pytest.raises(ValueError, match=r"dimension 3.*dimension 4"):
            domain.radius("l2", 4)
    with pytest.raises(ValueError, match="'l1', 'l2', 'linf'"):
        domain.diameter("l3", 3)


def test_whole_space_is_unbounded():
    whole = WholeSpace()
    assert not whole.bounded
    assert all(domain.bounded for domain in BOUNDED.values())
    assert whole.gauge([1e300, -1e300]) == 0.0
    assert whole.radius("l2", 4) == whole.diameter("l1", 4) == math.inf
    with pytest.raises(ValueError, match="unbounded"):
        whole.linear_minimiser([1.0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L2Ball(0.0), "positive finite radius"),
        (lambda: L2Ball(math.nan), "positive finite radius"),
        (lambda: L2Ball(1.0, centre=[math.nan]), "centre"),
        (lambda: L2Ball(1.0, centre=3.0), "centre"),
        (lambda: L1Ball(-1.0), "positive finite radius"),
        (lambda: L1Ball(math.inf), "positive finite radius"),
        (lambda: LpBall(0.5, 1.0), "p >= 1"),
        (lambda: LpBall(math.nan, 1.0), "p >= 1"),
        (lambda: LpBall(1.5, 0.0), "positive finite radius"),
        (lambda: Box(1.0, 0.0), "lower <= upper"),
        (lambda: Box(0.0, [1.0, -1.0]), "lower <= upper"),
        (lambda: Box(0.0, math.inf), "finite"),
        (lambda: Box([0.0, 0.0], [1.0, 1.0, 1.0]), "equal length"),
        (lambda: Box([], []), "nonempty"),
        (lambda: Simplex(0.0), "positive finite scale"),
        (lambda: Simplex(math.nan), "positive finite scale"),
        (lambda: Polytope([]), "nonempty"),
        (lambda: Polytope([[1.0], [math.inf]]), "finite"),
        (lambda: Polytope([1.0, 2.0]), "nonempty list of vertices"),
    ],
)
def test_invalid_sets_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
