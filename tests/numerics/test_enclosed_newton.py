"""The exact gradient at a minimiser is within the tolerance that its mask pays for."""

from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

from privopt.losses import (
    CappedExponential,
    CappedLogistic,
    Huber,
    Logistic,
    SmoothedHinge,
    SmoothedQuantile,
)
from privopt.numerics.convex import Enclosed
from privopt.numerics.enclosed_newton import (
    PROJECTION,
    Perturbed,
    _surely_below,
    mapped_below,
)
from privopt.numerics.newton import minimise_surely
from privopt.oracle import RowBounds
from privopt.oracle.enclosure import QUICK, Enclosing, add_up, slope_unit
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows

LOSSES = [
    SmoothedQuantile(0.3, 0.02),
    Huber(0.2),
    SmoothedHinge(0.1),
    CappedLogistic(),
    CappedExponential(),
    Logistic(),
]


def exact_slope(loss, z, y):
    match loss:
        case Logistic():
            return -y / (1 + mpmath.exp(y * z))
        case CappedExponential():
            return -y * mpmath.exp(-max(y * z, 0)) / 2
        case CappedLogistic(cap=c):
            return -y * min(1 / (1 + mpmath.exp(y * z)), mpmath.mpf(c))
        case Huber(width=w):
            return max(min(z - y, mpmath.mpf(w)), -mpmath.mpf(w))
        case SmoothedHinge(width=w):
            return -y * max(min((1 + mpmath.mpf(w) - y * z) / (2 * mpmath.mpf(w)), 1), 0)
        case SmoothedQuantile(q=q, width=w):
            u = max(min(z - y + mpmath.mpf(w), 2 * mpmath.mpf(w)), 0)
            return -mpmath.mpf(q) + u / (2 * mpmath.mpf(w))
    raise NotImplementedError


def exact_norm(loss, X, y, counts, lam, centre, linear, theta, rest):
    """In fifty digits, over distinct rows."""
    with mpmath.workdps(50):
        point = [mpmath.mpf(a) + mpmath.mpf(b) for a, b in zip(theta, rest, strict=True)]
        total = [
            mpmath.mpf(lam) * (t - mpmath.mpf(c)) + mpmath.mpf(b)
            for t, c, b in zip(point, centre, linear, strict=True)
        ]
        for row, label, count in zip(X, y, counts, strict=True):
            z = mpmath.fsum(mpmath.mpf(v) * t for v, t in zip(row, point, strict=True))
            slope = exact_slope(loss, z, mpmath.mpf(label)) * int(count)
            total = [g + slope * mpmath.mpf(v) for g, v in zip(total, row, strict=True)]
        return float(mpmath.sqrt(mpmath.fsum(g * g for g in total)))


def hostile(seed, loss, n):
    """Few distinct rows, one wide column and narrow ones, labels at kinks and far from them."""
    rng = np.random.default_rng(seed)
    k, p = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    X = rng.normal(size=(k, p)) * 10.0 ** rng.uniform(-4, 0, size=p)
    if rng.random() < 0.5:
        X[:, 0] = 0.9 + 1e-4 * rng.normal(size=k)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.001
    y = rng.choice([-1.0, 1.0], size=k) if loss.classification else rng.normal(size=k).round(1)
    counts = rng.multinomial(n, rng.dirichlet(np.ones(k)))
    return X, y, counts, 10.0 ** rng.uniform(-1, 2), rng.normal(size=p) * 10.0 ** rng.uniform(0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_hostile_problems_are_never_refused_and_never_over_the_tolerance(loss, form):
    for seed in range(5 if form is np.asarray else 2):
        n = 50_000 if form is np.asarray else 20_000
        X, y, counts, lam, linear = hostile(seed, loss, n)
        where = np.repeat(np.arange(len(X)), counts)
        rows = make_rows(form(X[where]), y[where], RowBounds(1.0), loss.classification)
        size = max(loss.lipschitz, 2.0**-52 * loss.smoothness)
        tolerance = 4 * 2.0**-52 * n * (4 + np.log2(n)) * size  # the least that a plan allows
        centre = np.zeros(X.shape[1])
        theta, rest = minimise_surely(
            Objective(rows, loss),
            regularisation=lam,
            centre=centre,
            linear=linear,
            gradient_norm=0.75 * tolerance,
            smoothness=n * loss.smoothness,
        )
        norm = exact_norm(loss, X, y, counts, lam, centre, linear, theta, rest)
        assert norm <= 0.75 * tolerance


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_enclosure_holds_and_is_narrow(loss):
    n = 20_000
    for seed in range(20, 26):
        X, y, counts, _, _ = hostile(seed, loss, n)
        where = np.repeat(np.arange(len(X)), counts)
        rows = make_rows(X[where], y[where], RowBounds(1.0), loss.classification)
        theta = np.random.default_rng(seed).normal(size=X.shape[1]) * 3
        found = Objective(rows, loss).enclosed(theta, np.zeros_like(theta))
        with mpmath.workdps(50):
            exact = [mpmath.mpf(0)] * X.shape[1]
            for row, label, count in zip(X, y, counts, strict=True):
                pairs = zip(row, theta, strict=True)
                z = mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(t) for a, t in pairs)
                slope = exact_slope(loss, z, mpmath.mpf(label)) * int(count)
                exact = [g + slope * mpmath.mpf(v) for g, v in zip(exact, row, strict=True)]
            off = [float(a - mpmath.mpf(b)) for a, b in zip(exact, found.value, strict=True)]
        assert np.linalg.norm(off) <= found.error
        assert found.error <= n * 2.0**-53 * (40 * max(loss.lipschitz, 1) + 40 * loss.smoothness)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("quick", [False, True], ids=["enclosed", "quick"])
def test_an_evaluated_error_covers_the_exact_one(loss, quick):
    """At points of every size, also where additions cancel; the rougher bound stays useful."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y, counts, _, linear = hostile(seed, loss, 3000)
        where = np.repeat(np.arange(len(X)), counts)
        if not len(where):
            continue
        rows = make_rows(X[where], y[where], RowBounds(1.0), loss.classification)
        head = linear * 10.0 ** rng.uniform(-2, 2)
        tail = head * 2.0**-55 * rng.normal(size=len(head)) * (seed % 2)
        found = Objective(rows, loss).enclosed(head, tail, quick)
        zero = np.zeros_like(head)
        off = exact_norm(loss, X, y, counts, 0.0, zero, -found.value, head, tail)
        assert off <= found.error
        assert found.error <= 1e-9 * 3000 * (1 + np.linalg.norm(head)) * max(loss.smoothness, 1)


def test_the_quick_bound_grows_with_the_number_of_additions():
    """Of ordinary sums: a bound of one record, or of one block, would not cover them."""
    X = np.full((200_000, 1), 0.1)
    for loss in (Logistic(), Huber(1.0)):
        rows = make_rows(X, np.ones(len(X)), RowBounds(1.0), loss.classification)
        found = Objective(rows, loss).enclosed(np.array([0.3]), np.zeros(1), True)
        few = Objective(rows.part(0, 100), loss).enclosed(np.array([0.3]), np.zeros(1), True)
        assert found.error > 1900 * few.error
        assert found.error < 1e-9 * len(X)


@pytest.mark.parametrize("quick", [False, True], ids=["enclosed", "quick"])
def test_margins_that_cancel_are_in_the_error(quick):
    """Large coefficients, nearly orthogonal to equal rows: each margin is off alike, and by far
    more than its own size tells."""
    lucky = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        row = rng.normal(size=24)
        row /= 1.001 * np.linalg.norm(row)
        head = rng.normal(size=24) * 1e8
        head -= row * (row @ head) / (row @ row)
        rows = make_rows(np.tile(row, (3000, 1)), np.ones(3000), RowBounds(1.0), True)
        found = Objective(rows, Logistic()).enclosed(head, np.zeros(24), quick)
        zero = np.zeros(24)
        one = row[None], np.ones(1), np.array([3000])
        off = exact_norm(Logistic(), *one, 0.0, zero, -found.value, head, zero)
        assert off <= found.error
        lucky += off < 1e-7
    assert lucky < 8 or not quick  # plain sums are off by what only the margins' error covers


def test_a_gradient_is_below_a_tolerance_with_all_its_error():
    assert _surely_below(Enclosed(np.array([0.5, 0.0]), 0.4), 1.0)
    assert not _surely_below(Enclosed(np.array([0.5, 0.0]), 0.6), 1.0)
    assert not _surely_below(Enclosed(np.array([1.1, 0.0]), 0.0), 1.0)


def test_a_projected_step_pays_for_the_rounding_of_the_projection():
    """At the very minimiser what is left is that rounding: three times it, for these constants."""

    class Nothing:
        def enclosed(self, head, tail, quick):
            return Enclosed(np.zeros_like(head), 0.0)

    point = np.array([3e9, 4e9])
    problem = Perturbed(Nothing(), 1.0, point, np.zeros(2))
    off = PROJECTION * 2.0**-53 * 2 * 1e10
    whole = SimpleNamespace(project=lambda at: at)
    # 6 units in the last place of three vectors of no length are the gradient's own error.
    assert mapped_below(problem, whole, point, 0.0, 3.01 * off) is not None
    assert mapped_below(problem, whole, point, 0.0, 2.9 * off) is None


@pytest.mark.parametrize("loss", [CappedExponential(), Logistic(), Huber(0.5)], ids=repr)
def test_the_quick_bound_covers_weighted_rows(loss):
    """Plain sums and the enclosure of the same weighted gradient lie within their errors."""
    rng = np.random.default_rng(6)
    for scale in (1e-3, 1.0, 1e6):
        X = rng.normal(size=(700, 5))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        shares = np.where(rng.random(700) < 0.3, 1.0, rng.uniform(1e-6, 1.0, 700))
        X *= shares[:, None]
        y = np.sign(X[:, 0]) if loss.classification else rng.normal(size=700)
        head, tail = rng.normal(size=5) * scale, rng.normal(size=5) * scale * 2.0**-54
        enclosing = Enclosing(loss, head, tail, 1.0)
        sizes = np.ones(700)
        quick = add_up([enclosing.quick(X, y, sizes, shares)], 5)
        exact = add_up([enclosing.block(X, y, shares)], 5)
        apart = float(np.linalg.norm(quick.value - exact.value))
        assert apart <= quick.error + exact.error
        assert exact.error < quick.error < 1e-9 * max(scale, 1.0)
        plain = (shares * loss.slope((X @ head) / shares, y)) @ X
        np.testing.assert_allclose(quick.value, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", [CappedExponential(), Huber(0.5)], ids=repr)
def test_no_part_of_the_quick_bound_of_weighted_rows_is_left_out(loss):
    """Every rounding, written out: of margins, of slopes at them, of products and of sums."""
    rng = np.random.default_rng(7)
    X, shares = rng.normal(size=(600, 4)) / 4, rng.uniform(0.1, 1.0, 600)
    sizes = np.linalg.norm(X, axis=1)
    y = np.sign(X[:, 0]) if loss.classification else rng.normal(size=600)
    unit = 2.0**-53
    for head in (rng.normal(size=4), np.zeros(4), rng.normal(size=4) * 1e5):
        enclosing = Enclosing(loss, head, np.zeros(4), 1.0)
        z = X @ head
        slopes = shares * loss.slope(z / shares, y)
        of_margins = loss.smoothness * (4 + 4) * unit * np.linalg.norm(head) * sizes.sum()
        of_slopes = 600 * slope_unit(loss) + 2 * unit * np.abs(slopes).sum()
        heights = np.abs(z).sum() + (0.0 if loss.classification else np.abs(y).sum())
        of_slopes += 2 * unit * loss.smoothness * heights
        of_sums = QUICK * unit * np.abs(slopes).sum()
        assert enclosing.quick(X, y, sizes, shares)[2] >= of_margins + of_slopes + of_sums
        alike = enclosing.quick(X, y, sizes, np.ones(600))[2]
        assert alike >= enclosing.quick(X, y, sizes)[2]
