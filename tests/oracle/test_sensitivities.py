"""Every question of the oracle: two records that take its declared reaches to their very end.

Replay shows that nothing moves further than declared. This shows that nothing is declared half as
large, nor twice as large, as it is; and a question without such records does not come in.
"""

import math

import numpy as np
import pytest

import privopt.oracle as room
from privopt.losses import Absolute, EuclideanDistance, Huber, Softmax
from privopt.noise import SilentSource
from privopt.oracle import (
    ClassCounts,
    ClassGradient,
    ClippedGradient,
    ClippedVectorGradient,
    ColumnHistograms,
    CoordinateClippedGradient,
    CountPositive,
    CountRecords,
    Curvature,
    Embedded,
    GradientDifference,
    GramGradient,
    LabelMoments,
    LeastSquaresMoments,
    Moments,
    NormHistogram,
    Oracle,
    RowBounds,
    RowSum,
    SquaresAlong,
    Votes,
)
from privopt.oracle.sealed import KEY

BALL = RowBounds(2.0)
ENTRIES = RowBounds(math.inf, 0.0, 3.0)
COORDINATE = CoordinateClippedGradient(Huber(0.5), 0.5, ENTRIES, 2)
EACH = CoordinateClippedGradient(Huber(0.5), 0.5, ENTRIES, 2, "coordinates")
EMPTY = (np.full(2, np.nan), 0.0)
HALF = math.sqrt(0.75)


def record(x, y):
    return np.array(x, dtype=float), float(y)


# Question, rows' bounds, where it is asked, a record at its radius, the pair at its diameter, and
# both movements as numbers that are not taken from the code.
CASES = [
    (
        ClippedGradient(Absolute(), 1.5),
        BALL,
        (0, 0),
        record((2, 0), 9),
        (record((2, 0), 9), record((2, 0), -9)),
        (1.5, 3.0),
    ),
    (
        COORDINATE,
        ENTRIES,
        (0, 0),
        record((3, 3), 9),
        (record((3, 3), 9), record((3, 3), -9)),
        (1.5, 3.0),
    ),
    (
        EACH,
        ENTRIES,
        (0, 0),
        record((3, 3), 9),
        (record((3, 3), 9), record((3, 3), -9)),
        ((1.5, 1.5), (3.0, 3.0)),
    ),
    # Where the margin is at its bound, slopes have one sign: only rows can oppose each other.
    (
        GramGradient(2.5, 1.0, ENTRIES, 2),
        ENTRIES,
        (0.5, 0),
        record((3, 3), -9),
        (record((3, 3), -9), record((3, -3), -9)),
        ((7.5, 7.5), (15.0, 15.0)),
    ),
    (
        SquaresAlong(1, ENTRIES, 2),
        ENTRIES,
        (0, 0),
        record((0, -3), 1),
        (record((0, -3), 1), record((3, 0), 1)),
        (9.0, 9.0),
    ),
    (RowSum(2.0), BALL, (0, 0), record((9, 0), 1), (record((9, 0), 1), record((-9, 0), 1)), (2, 4)),
    (
        Votes(3.0),
        ENTRIES,
        (0, 0),
        record((3, -3), 0),
        (record((3, -3), 0), record((-3, 3), 0)),
        (6.0, 12.0),
    ),
    (CountRecords(), BALL, (0, 0), record((1, 0), 1), (record((1, 0), 1), EMPTY), (1, 1)),
    (
        CountPositive(),
        BALL,
        (0, 0),
        record((1, 0), 1),
        (record((1, 0), 1), record((1, 0), -1)),
        (1, 1),
    ),
    (
        ClassCounts(3),
        BALL,
        (0, 0),
        record((1, 0), 2),
        (record((1, 0), 0), record((1, 0), 2)),
        (1, math.sqrt(2)),
    ),
    # At equal scores a residual is sqrt(1 - 1/3) long: rows of 2 go beyond, and may oppose.
    (
        ClassGradient(Softmax(3), 1.5),
        BALL,
        ((0, 0), (0, 0), (0, 0)),
        record((2, 0), 0),
        (record((2, 0), 0), record((-2, 0), 0)),
        (1.5, 3.0),
    ),
    (
        LabelMoments(),
        BALL,
        (0, 0),
        record((1, 0), 9),
        (record((1, 0), 9), record((1, 0), -9)),
        (math.sqrt(2), 2),
    ),
    (
        NormHistogram((0.5, 1.0)),
        BALL,
        (0, 0),
        record((0.1, 0), 1),
        (record((0.1, 0), 1), record((9, 0), 1)),
        (1, math.sqrt(2)),
    ),
    # An empty record is in no bin: a zero row moves by sqrt(J) when it is emptied, not sqrt(2 J).
    (
        ColumnHistograms(((0, -1.0, 1.0), (1, -1.0, 1.0))),
        BALL,
        (0, 0),
        record((0, 0), 1),
        (record((0.9, 0.9), 1), record((-0.9, -0.9), 1)),
        (math.sqrt(2), 2),
    ),
    (
        ColumnHistograms(((1, -1.0, 1.0),), "l1"),
        BALL,
        (0, 0),
        record((0, 0), 1),
        (record((0.9, 0.9), 1), record((-0.9, -0.9), 1)),
        (1, 2),
    ),
    (
        LeastSquaresMoments(BALL, 0.5),
        BALL,
        (0, 0),
        record((2, 0), 9),
        (record((2, 0), 9), record((1, 2 * HALF), -9)),
        (math.sqrt(2), 1.5 * math.sqrt(2)),
    ),
    # A convex loss changes slopes in one direction: only rows can oppose each other.
    (
        GradientDifference(COORDINATE, np.array([-9.0, 0.0]), 1.0, 0.6),
        ENTRIES,
        (9, 0),
        record((3, 3), 0),
        (record((3, 3), 0), record((3, -3), 0)),
        (1.8, 3.6),
    ),
    (
        ClippedVectorGradient(EuclideanDistance(), 0.75),
        BALL,
        (0, 0),
        record((2, 0), 1),
        (record((2, 0), 1), record((-2, 0), 1)),
        (0.75, 1.5),
    ),
    (
        Embedded(RowSum(2.0), 1, 4),
        BALL,
        (0, 0),
        record((9, 0), 1),
        (record((9, 0), 1), record((-9, 0), 1)),
        (1, 2),
    ),
]
BOUND_IN_PARTS = {Moments}
"""Squares and values are bounded apart, and no pair of records takes both to their end at once;
tests of moments say how near they come."""
ATTAINED_ELSEWHERE = {Curvature}
"""Two matrices of mapped rows: ``test_curvature`` has the records."""


def total(query, bounds, at, one):
    """The sum over two records, of which the second never changes."""
    X, y = np.array([one[0], (0.3, 0.2)]), np.array([one[1], 1.0])
    view = Oracle.over(
        X,
        y,
        neighbouring="replace_one",
        bounds=bounds,
        source=SilentSource(),
        classification=isinstance(query, CountPositive),
    ).everything()
    point = np.array(at, dtype=float)
    sealed = view.ask_all(query, point) if point.ndim == 2 else view.ask(query, point)
    return sealed.open(KEY), sealed.sensitivity


def size(change, norm):
    if norm == "coordinates":
        return np.abs(change)
    if norm == "range":
        return np.ptp(change)
    return np.linalg.norm(change, {"l1": 1, "l2": 2, "linf": np.inf}[norm])


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:40])
def test_declared_sensitivities_are_attained(case):
    query, bounds, at, lone, (one, other), (radius, diameter) = case
    np.testing.assert_allclose(query.radius(), radius)
    np.testing.assert_allclose(query.diameter(), diameter)
    close = 2e-5 if isinstance(query, ClassGradient) else 1e-7  # it is always counted
    (alone, sensitivity), (gone, _) = (total(query, bounds, at, each) for each in (lone, EMPTY))
    np.testing.assert_allclose(sensitivity.single, radius)
    np.testing.assert_allclose(sensitivity.radius, diameter)
    np.testing.assert_allclose(np.max(size(alone - gone, query.norm)), np.max(radius), close)
    (first, _), (second, _) = (total(query, bounds, at, each) for each in (one, other))
    np.testing.assert_allclose(np.max(size(first - second, query.norm)), np.max(diameter), close)


def test_every_question_is_here():
    questions = {
        found
        for found in (getattr(room, name) for name in room.__all__)
        if isinstance(found, type)
        and all(hasattr(found, part) for part in ("radius", "diameter", "total"))
        and not getattr(found, "_is_protocol", False)
    }
    assert questions == {type(case[0]) for case in CASES} | BOUND_IN_PARTS | ATTAINED_ELSEWHERE
