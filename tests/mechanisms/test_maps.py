"""Declared maps: no pair of values moves further apart than the stretch says, and some reach it."""

import numpy as np
import pytest

from privopt.geometry import Box, L1Ball, Polytope, Simplex
from privopt.mechanisms.maps import (
    Coordinates,
    Linear,
    Loosen,
    Rescale,
    Scale,
    Shift,
    Spread,
    VertexScores,
)
from privopt.oracle import Sealed, Sensitivity
from privopt.oracle.sealed import KEY

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}
P = 6
RNG = np.random.default_rng(0)
TALL, WIDE = RNG.normal(size=(9, P)), RNG.normal(size=(2, P))
VERTICES = RNG.normal(size=(5, P))
MAPS = {
    **{f"Scale {norm}": Scale(-2.5, norm) for norm in ORDER},
    "Scale by a little": Scale(1e-9, "l2"),
    **{
        f"Loosen {one} {other}": Loosen(one, other)
        for i, one in enumerate(ORDER)
        for other in [*ORDER][i:]
    },
    **{f"Coordinates {norm}": Coordinates((4, 0, 5), norm) for norm in ORDER},
    "one coordinate": Coordinates((2,)),
    "all coordinates": Coordinates(tuple(range(P))),
    "vertices of an l1 ball": VertexScores(L1Ball(3.0), P),
    "vertices of a simplex": VertexScores(Simplex(2.0), P),
    "a list of vertices": VertexScores(Polytope(VERTICES), P),
    "vertices far from the origin": VertexScores(Polytope(VERTICES + 100.0), P),
    "Spread": Spread(),
    "Shift": Shift(np.arange(6.0), "linf"),
    "Linear tall": Linear(TALL),
    "Linear wide": Linear(WIDE),
    "Linear rank one": Linear(np.outer(np.arange(3.0), np.arange(P))),
    "Linear diagonal": Linear(np.diag([1e3, 1.0, 1e-3, 0.0, 2.0, -5e3])),
}
every_map = pytest.mark.parametrize("name", MAPS)


def norm(x, kind):
    if kind == "range":
        return float(np.ptp(x))
    return float(np.linalg.norm(x, ORDER[kind]))


def directions(map, count=400):
    """Corners, edges and random vectors: extreme points of all three balls among them."""
    rng = np.random.default_rng(1)
    yield from np.eye(P)
    yield np.ones(P)
    yield from rng.choice([-1.0, 1.0], size=(20, P))
    yield from rng.normal(size=(count, P))
    if isinstance(map, VertexScores) and isinstance(map.domain, Polytope):
        for one in map.domain.vertices:
            yield from np.sign(one - map.domain.vertices[map.domain.vertices[:, 0] != one[0]])
    if isinstance(map, Linear):
        v = np.ones(P)  # power iteration: the direction that A stretches most
        for _ in range(2000):
            v = map.matrix.T @ (map.matrix @ v)
            v /= np.linalg.norm(v)
        yield v


@every_map
@pytest.mark.parametrize("radius", [1e-3, 0.7, 40.0])
def test_pairs_stay_within_the_stretch_and_some_sensitivity_it(name, radius):
    map, worst = MAPS[name], 0.0
    allowed = map.stretch(radius)
    rng = np.random.default_rng(2)
    for direction in directions(map):
        x = rng.normal(size=P)
        step = radius * direction / norm(direction, map.norm_in)
        moved = norm(map.apply(x + step) - map.apply(x), map.norm_out)
        assert moved <= allowed * (1 + 1e-9) + 1e-12
        worst = max(worst, moved)
    assert worst >= 0.99 * allowed
    assert allowed > 0


@every_map
def test_sealed_values_follow_the_map(name):
    map, payload = MAPS[name], np.arange(1.0, P + 1)
    sealed = Sealed(KEY, payload, Sensitivity(map.norm_in, 2.0, 1.0, cells=((3,),), view=8))
    image = sealed.through(map)
    np.testing.assert_array_equal(image.open(KEY), map.apply(payload))
    assert image.sensitivity.norm == map.norm_out
    assert image.sensitivity.radius == map.stretch(2.0)
    assert image.sensitivity.single == map.stretch(1.0)
    assert (image.sensitivity.cells, image.sensitivity.view) == (((3,),), 8)
    np.testing.assert_array_equal(payload, np.arange(1.0, P + 1))


def test_what_the_maps_do():
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(Scale(-2.0).apply(x), [-2.0, 4.0, -6.0])
    np.testing.assert_array_equal(Loosen("l1", "linf").apply(x), x)
    np.testing.assert_array_equal(Coordinates((2, 0)).apply(x), [3.0, 1.0])
    np.testing.assert_array_equal(Linear([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]).apply(x), [2.0, -2.0])


@pytest.mark.parametrize("domain", [L1Ball(2.0), Simplex(2.0), Polytope(VERTICES[:, :3])])
def test_vertex_scores_rank_the_vertices(domain):
    """The largest score belongs to the vertex with the smallest inner product."""
    x = np.array([1.0, -5.0, 3.0])
    map = VertexScores(domain, 3)
    vertices = np.array([map.vertex(k) for k in range(map.count)])
    np.testing.assert_allclose(map.apply(x), -vertices @ x)
    np.testing.assert_array_equal(vertices[np.argmax(map.apply(x))], domain.linear_minimiser(x))
    assert all(domain.contains(vertex) for vertex in vertices)


def test_only_polytopes_have_vertices():
    with pytest.raises(ValueError, match="Box has no list"):
        VertexScores(Box(-1.0, 1.0), 3)


def test_coordinates_of_a_coordinatewise_bound():
    radius = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    picked = Coordinates((4, 0), "coordinates").stretch(radius)
    np.testing.assert_array_equal(picked, [5.0, 1.0])
    np.testing.assert_array_equal(Scale(-2.0, "coordinates").stretch(radius), 2 * radius)


@pytest.mark.parametrize(
    ("one", "other"), [("l2", "l1"), ("linf", "l1"), ("linf", "l2"), ("l2", "coordinates")]
)
def test_loosen_refuses_to_tighten(one, other):
    with pytest.raises(ValueError, match=r"gives none|not in list"):
        Loosen(one, other)
    with pytest.raises(ValueError, match="not in list"):
        Loosen("function", "l2")


def test_linear_maps_copy_their_matrix_and_are_rounded_up():
    matrix = np.diag([1.0, 3.0])
    map = Linear(matrix)
    matrix[:] = 0.0
    assert map.stretch(1.0) >= 3.0
    assert map.stretch(1.0) == pytest.approx(3.0, rel=1e-11)
    with pytest.raises(ValueError, match="read-only"):
        map.matrix[0, 0] = 9.0


@pytest.mark.parametrize("matrix", [np.ones(3), [[np.nan]], [[np.inf, 1.0]], np.ones((2, 2, 2))])
def test_linear_maps_need_a_finite_matrix(matrix):
    with pytest.raises(ValueError, match="finite two-dimensional"):
        Linear(matrix)


def test_a_bound_for_each_coordinate_as_a_range():
    """Two coordinates move apart by at most the sum of their bounds; the largest two count."""
    radius = np.array([1.0, 5.0, 2.0, 4.0])
    assert Spread("coordinates").stretch(radius) == 9.0
    assert np.ptp(radius * [0, 1, 0, -1]) == 9.0
    assert Rescale(radius).stretch(radius) == 1.0
    assert Rescale(np.full(4, 2.0)).stretch(radius) == 2.5
    np.testing.assert_array_equal(Rescale(radius).apply(2 * radius), np.full(4, 2.0))
    with pytest.raises(ValueError, match="not restated"):
        Spread("l2")
    with pytest.raises(ValueError, match="positive and finite"):
        Rescale([1.0, 0.0])
