"""Laws of the exponential mechanism, sampler by sampler, and its privacy.

Seeded. On a fresh seed each comparison would raise a false alarm with a probability of 1e-6.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_trapezoid

from privopt.geometry import Box, L1Ball, L2Ball, Near, Polytope, Simplex, WholeSpace
from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared
from privopt.mechanisms import ExponentialDensity, Gate
from privopt.mechanisms.density import body_of, sandwich
from privopt.mechanisms.density.target import checked
from privopt.mechanisms.exponential_density import loss_range
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.kinds import BoundedRange, GaussianKind
from privopt.privacy.profiles import gaussian_delta
from tests.covering import in_turn

ALARM = 1e-6
RELATIONS = {"zero_out": 1, "add_remove": 1, "replace_one": 2}
every_relation = pytest.mark.parametrize("neighbouring", RELATIONS)


def agrees(sample, cdf):
    return stats.kstest(np.ravel(sample), cdf).pvalue > ALARM


def over(X, y, loss, neighbouring="zero_out", bounds=None):
    oracle = Oracle.over(
        np.asarray(X, dtype=float),
        np.asarray(y, dtype=float),
        neighbouring=neighbouring,
        bounds=bounds or RowBounds(1.0),
        source=SeededSource(0),
        classification=loss.classification,
    )
    return oracle.everything().function(loss)


def releases(mechanism, sealed, count, seed):
    if mechanism.method == "sandwich":
        # The envelope does not depend on the noise: one serves for all draws.
        target, source = target_of(mechanism, sealed), SeededSource(seed)
        envelope = sandwich.best_envelope(target)
        points = [sandwich.under(envelope, target, source) for _ in range(count)]
        return target.body.thetas(np.array(points))
    gate = Gate(SeededSource(seed))
    return np.array([gate.release(mechanism, sealed) for _ in range(count)])


def target_of(mechanism, sealed):
    return mechanism.target(sealed.open(KEY), sealed.sensitivity, 1 / mechanism.multiplier)


def along_axes(p, copies):
    return np.repeat(np.eye(p), copies, axis=0)


# ------------------------------------------------------------ a cone: kappa * excess is Gamma(p)
CONES = [
    ("piecewise_linear", 1, Box(-1.0, 1.0)),
    ("tangents", 1, L2Ball(1.0)),
    ("cells", 1, Box(-1.0, 1.0)),
    ("cells", 2, Box(-1.0, 1.0)),
    ("cells", 3, L2Ball(1.0)),
    ("cells", 4, L2Ball(1.0)),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("cone", "neighbouring"), in_turn(CONES, [*RELATIONS]))
def test_a_cone_has_a_gamma_law(cone, neighbouring):
    """Sum of |theta_j|; the exponent is written out here, so a doubled or halved one is seen."""
    (method, p, domain), copies, multiplier = cone, 5, 0.05 / 6
    X = along_axes(p, copies)
    sealed = over(X, np.zeros(len(X)), Absolute(), neighbouring)
    theta = releases(ExponentialDensity("pure", multiplier, domain, method), sealed, 400, 1)
    # Lipschitz constant 1 times the diameter: 2 for a ball, 2 sqrt(p) for a box.
    omega = 2.0 * (math.sqrt(p) if isinstance(domain, Box) else 1.0)
    kappa = 1 / (multiplier * RELATIONS[neighbouring] * omega)
    excess = kappa * copies * np.abs(theta).sum(axis=1)
    assert agrees(excess, stats.gamma(p).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * excess, stats.gamma(p).cdf)


# ------------------------------------------------------------ a quadratic: Gamma(p/2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("case", "neighbouring"),
    in_turn([("tangents", 1), ("cells", 3), ("sandwich", 2), ("sandwich", 10)], [*RELATIONS]),
)
def test_a_quadratic_has_a_gamma_law_of_half_the_dimension(case, neighbouring):
    method, p = case
    copies, width, multiplier = 10, 4.0, 0.000625
    X = along_axes(p, copies)
    sealed = over(X, np.zeros(len(X)), Huber(width), neighbouring)
    mechanism = ExponentialDensity("pure", multiplier, L2Ball(1.0), method)
    theta = releases(mechanism, sealed, 900 if p == 1 else 300, 2)
    omega = width * 2.0
    kappa = 1 / (multiplier * RELATIONS[neighbouring] * omega)
    excess = kappa * copies / 2 * np.sum(theta**2, axis=1)
    assert agrees(excess, stats.gamma(p / 2).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * excess, stats.gamma(p / 2).cdf)


@pytest.mark.statistical
@every_relation
def test_the_regularised_density_on_no_slope_is_gaussian(neighbouring):
    """Empty records: k lambda ||theta - centre||^2 / 2 is Gamma(p/2), k = lambda (mu / (a L))^2."""
    lam, mu, p = 3.0, 40.0, 3
    sealed = over(np.full((5, p), np.nan), np.ones(5), Logistic(), neighbouring)
    mechanism = ExponentialDensity("gaussian", 1 / mu, L2Ball(1.0), "sandwich", lam, (0.1, 0, 0.2))
    theta = releases(mechanism, sealed, 500, 3) - [0.1, 0, 0.2]
    k = lam * (mu / RELATIONS[neighbouring]) ** 2
    energy = k * lam / 2 * np.sum(theta**2, axis=1)
    assert agrees(energy, stats.gamma(p / 2).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * energy, stats.gamma(p / 2).cdf)


# ------------------------------------------------------------ against quadrature
def logistic_data(n, p, length, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.normal(size=p)
    theta *= length / np.linalg.norm(theta)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)


def marginals(mechanism, sealed, points=200):
    """Distribution functions of the body's coordinates, in two dimensions, by quadrature."""
    target = target_of(mechanism, sealed)
    body = target.body
    axes = [np.linspace(body.low[j], body.high[j], points) for j in range(2)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = body.inside(grid)
    heights = np.full(len(grid), -np.inf)
    heights[inside] = -target.potentials(grid[inside])
    mass = np.exp(heights - heights.max()).reshape(points, points)
    for j in range(2):
        total = cumulative_trapezoid(mass.sum(axis=1 - j), axes[j], initial=0.0)
        yield lambda t, at=axes[j], law=total / total[-1]: np.interp(t, at, law)


BODIES = [
    L2Ball(1.0),
    L2Ball(3.0),
    L2Ball(1.0, centre=(4.0, 8.0)),
    Box(-1.0, (0.5, 2.0)),
    L1Ball(1.5),
    Near(WholeSpace(), np.array([0.5, -0.3]), 0.8),
    Near(Box(-1.0, (0.5, 2.0)), np.array([0.4, 1.0]), 0.7),
    Near(L1Ball(1.5), np.array([1.5, 0.0]), 0.5),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("domain", "method"), in_turn(BODIES, ["cells", "sandwich"]), ids=repr)
def test_two_dimensional_laws(domain, method):
    """Optima inside, at the sphere, at a face and at a corner."""
    X, y = logistic_data(100, 2, 3.0)
    sealed = over(X, y, Logistic())
    mechanism = ExponentialDensity("pure", 0.15, domain, method)
    theta = releases(mechanism, sealed, 300, 4)
    assert all(domain.contains(t) for t in theta)
    for j, law in enumerate(marginals(mechanism, sealed)):
        assert agrees(theta[:, j], law)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("domain", "loss"),
    in_turn(
        [
            Simplex(2.0),
            Polytope([[0, 0, 0], [1, 0, 0], [0, 2, 0]]),
            Near(Simplex(2.0), np.array([0.3, 0.7, 1.0]), 0.6),
        ],
        [Hinge(), SmoothedHinge(0.3)],
    ),
    ids=repr,
)
def test_flat_domains(domain, loss):
    """A flat domain has its own dimension and the uniform measure on itself."""
    X, y = logistic_data(60, 3, 2.0)
    sealed = over(X, y, loss)
    mechanism = ExponentialDensity("pure", 0.5, domain, "cells")
    theta = releases(mechanism, sealed, 400, 5)
    assert all(domain.contains(t) for t in theta)
    body = body_of(domain, 3)
    points = (theta - body.origin) @ body.axes
    for j, law in enumerate(marginals(mechanism, sealed)):
        assert agrees(points[:, j], law)


@pytest.mark.statistical
@pytest.mark.parametrize("method", ["tangents", "cells", "sandwich"])
@pytest.mark.parametrize("length", [0.5, 6.0])
def test_one_dimensional_logistic(method, length):
    X, y = logistic_data(80, 1, length)
    sealed = over(X, y, Logistic())
    mechanism = ExponentialDensity("pure", 0.4, L2Ball(1.5), method)
    theta = releases(mechanism, sealed, 1500, 6)
    target = target_of(mechanism, sealed)
    grid = np.linspace(-1.5, 1.5, 4001)
    density = np.exp(-target.potentials(grid[:, None]) + target.potentials(np.zeros((1, 1))))
    total = cumulative_trapezoid(density, grid, initial=0.0)
    assert agrees(theta, lambda t: np.interp(t, grid, total / total[-1]))
    other = cumulative_trapezoid(density**2, grid, initial=0.0)
    assert not agrees(theta, lambda t: np.interp(t, grid, other / other[-1]))


@pytest.mark.statistical
@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Quantile(0.2)], ids=repr)
def test_kinks_by_inversion(loss):
    """Rows of both signs turn the kinks around; segments of all lengths, some outside."""
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(30, 1)), rng.choice([-1.0, 1.0, 0.3], size=30)
    sealed = over(X, y, loss)
    mechanism = ExponentialDensity("pure", 0.5, Box(-2.0, 3.0), "piecewise_linear")
    theta = releases(mechanism, sealed, 1500, 8)
    grid = np.linspace(-2.0, 3.0, 4001)
    heights = -target_of(mechanism, sealed).potentials(grid[:, None])
    for power, same in ((1.0, True), (2.0, False), (0.5, False)):
        density = np.exp(power * (heights - heights.max()))
        total = cumulative_trapezoid(density, grid, initial=0.0)
        assert agrees(theta, lambda t, law=total / total[-1]: np.interp(t, grid, law)) == same


@pytest.mark.statistical
def test_the_grid_has_its_exact_probabilities():
    X, y = logistic_data(20, 2, 2.0)
    sealed = over(X, y, Hinge())
    mechanism = ExponentialDensity("pure", 2.0, L2Ball(1.0), "grid", spacing=0.5)
    theta = releases(mechanism, sealed, 3000, 10)
    target = target_of(mechanism, sealed)
    points, counts = np.unique(theta, axis=0, return_counts=True)
    mass = np.exp(-target.potentials(points) + target.potentials(np.zeros((1, 2))))
    assert len(points) == 12
    assert stats.chisquare(counts, 3000 * mass / mass.sum()).pvalue > ALARM
    assert stats.chisquare(counts, 3000 * mass**2 / np.sum(mass**2)).pvalue < ALARM


# ------------------------------------------------------------ envelopes
@pytest.mark.parametrize(
    ("n", "p", "length", "least"),
    [(10_000, 2, 0.5, 0.80), (10_000, 10, 0.5, 0.29), (1000, 2, 3.0, 0.56), (10_000, 10, 3.0, 0.2)],
)
def test_acceptance_rates(n, p, length, least):
    """A plainer envelope reaches 0.80 and 0.29; nested bounds and the edge do no worse."""
    X, y = logistic_data(n, p, length)
    sealed = over(X, y, Logistic())
    target = target_of(ExponentialDensity("pure", 1.0, L2Ball(1.0), "sandwich"), sealed)
    envelope = sandwich.best_envelope(target)
    points, tops = envelope.draw(SeededSource(0), 1000)
    inside = target.body.inside(points)
    log_acceptance = -target.potentials(points) - tops
    assert log_acceptance.max() <= 1e-9
    assert np.mean(np.exp(log_acceptance) * inside) >= 0.9 * least


@pytest.mark.parametrize("length", [0.5, 3.0])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), SmoothedHinge(0.5)], ids=repr)
@pytest.mark.parametrize("n", [0, 30, 3000])
def test_both_envelopes_lie_above_the_density(loss, n, length):
    """Acceptance never exceeds one, anywhere in the ball, whatever the data."""
    X, y = logistic_data(n, 4, length)
    sealed = over(X, y, loss)
    mechanism = ExponentialDensity("pure", 1.0, L2Ball(1.0), "sandwich", 0.01)
    target = target_of(mechanism, sealed)
    push = np.zeros(4)
    eta, anchor = sandwich._inside(target, push)
    envelopes = [sandwich.Interior(target, push, f * eta, anchor) for f in (1.0, 10.0, 100.0)]
    edge = sandwich.Edge.at(target, anchor)
    if edge is not None:
        envelopes.append(edge)
    assert n < 3000 or length < 1 or edge is not None
    for envelope in envelopes:
        points, tops = envelope.draw(SeededSource(1), 3000)
        inside = target.body.inside(points)
        assert inside.any() or n == 3000
        points, tops = points[inside], tops[inside]
        if len(points):
            assert (-target.potentials(points) - tops).max() <= 1e-9


def test_an_exceeded_envelope_is_refused_with_constant_text():
    np.testing.assert_array_equal(checked(np.array([-1.0, 1e-9])), [-1.0, 1e-9])
    with pytest.raises(Refused, match="envelope"):
        checked(np.array([-1.0, 1e-3]))


# ------------------------------------------------------------ known numbers
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "uniform", "two_points"), [(0.1, 5.0, 10.1), (1.0, 0.47, 1.01), (4.0, 0.13, 0.25)]
)
def test_median_excess(epsilon, uniform, two_points):
    """Known values, within 30 %. The standard error of the mean is 3 % to 5 %."""
    rng = np.random.default_rng(11)
    n = 1000
    mechanism = ExponentialDensity("pure", 1 / epsilon, Box(0.0, 1.0), "piecewise_linear")
    pairs = [(rng.random(n), uniform), (np.where(np.arange(n) < 0.8 * n, 0.3, 0.8), two_points)]
    for data, expected in pairs:
        theta = releases(mechanism, over(np.ones((n, 1)), data, Absolute()), 900, 12)
        best = np.abs(data - np.median(data)).sum()
        excess = np.abs(theta - data).sum(axis=1).mean() - best
        assert excess == pytest.approx(expected, rel=0.3)


# ------------------------------------------------------------ privacy, exactly
def log_densities(mechanism, sealed, points, weights):
    """Normalised log density at quadrature points."""
    heights = -target_of(mechanism, sealed).potentials(points)
    top = heights.max()
    return heights - top - math.log(float(np.sum(np.exp(heights - top) * weights)))


def neighbours(neighbouring, X, y, record, other):
    """The data with a record, and its neighbour: without it, or with another."""
    (x, label), (x2, label2) = record, other
    with_it = np.vstack([X, [x]]), np.append(y, label)
    if neighbouring == "add_remove":
        return with_it, (X, y)
    if neighbouring == "zero_out":
        return with_it, (np.vstack([X, np.full((1, X.shape[1]), np.nan)]), np.append(y, 1.0))
    return with_it, (np.vstack([X, [x2]]), np.append(y, label2))


WORST = {
    # loss: (domain, data for which one record weighs most, record, its opposite)
    "absolute": (Absolute(), Box(0.0, 1.0), (1.0, 0.0), ([1.0], 1.0), ([1.0], 0.0)),
    "median": (Quantile(0.5), Box(0.0, 1.0), (1.0, 0.0), ([1.0], 1.0), ([1.0], 0.0)),
    "quantile": (Quantile(0.9), Box(0.0, 1.0), (1.0, 0.0), ([1.0], 1.0), ([1.0], 0.0)),
    "far quantile": (Quantile(0.1), Box(10.0, 11.0), (1.0, 11.0), ([1.0], 10.0), ([1.0], 11.0)),
    "hinge": (Hinge(), Box(-1.0, 1.0), (1.0, -1.0), ([1.0], 1.0), ([1.0], -1.0)),
    "logistic": (Logistic(), L2Ball(3.0), (1.0, -1.0), ([1.0], 1.0), ([1.0], -1.0)),
}


@every_relation
@pytest.mark.parametrize("case", WORST)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_log_ratio_is_within_epsilon_and_reaches_it(case, neighbouring, epsilon):
    """Quadrature of both neighbours' densities: bounded range, pure, and no slack to give away."""
    loss, domain, (x, label), record, other = WORST[case]
    n = 8000
    X, y = np.full((n, 1), x), np.full(n, label)
    one, two = neighbours(neighbouring, X, y, record, other)
    mechanism = ExponentialDensity("pure", 1 / epsilon, domain, "tangents")
    body = body_of(domain, 1)
    # Midpoints, finer at the ends where the mass is.
    share = np.sort(
        np.concatenate([np.geomspace(1e-7, 0.5, 300), 1 - np.geomspace(1e-7, 0.5, 300)])
    )
    edges = body.low[0] + np.concatenate([[0.0], share, [1.0]]) * (body.high[0] - body.low[0])
    points, weights = (edges[1:] + edges[:-1])[:, None] / 2, np.diff(edges)
    first = log_densities(mechanism, over(*one, loss, neighbouring), points, weights)
    second = log_densities(mechanism, over(*two, loss, neighbouring), points, weights)
    loss_of_privacy = first - second
    assert np.ptp(loss_of_privacy) <= epsilon * (1 + 1e-6)
    worst = np.abs(loss_of_privacy).max()
    assert worst <= epsilon * (1 + 1e-6)
    # Replacing a record at an outer quantile moves the loss by less than twice its range: 1 / 1.8.
    outer = neighbouring == "replace_one" and "quantile" in case
    assert worst >= (0.54 if outer else 0.97) * epsilon


@every_relation
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Absolute()], ids=repr)
def test_log_ratio_in_two_dimensions(loss, neighbouring):
    """The grid by enumeration and the density by quadrature, on random neighbours."""
    rng = np.random.default_rng(13)
    X, y = logistic_data(40, 2, 3.0)
    for domain in (L2Ball(2.0), Box(-1.0, 2.0), L1Ball(1.5)):
        mechanism = ExponentialDensity("pure", 1.0, domain, "grid", spacing=0.1)
        from privopt.mechanisms.density import grid

        points = grid.points(body_of(domain, 2), 0.1)
        for _ in range(5):
            records = [(5 * rng.normal(size=2), rng.choice([-1.0, 1.0])) for _ in range(2)]
            one, two = neighbours(neighbouring, X, y, *records)
            first = log_densities(mechanism, over(*one, loss, neighbouring), points, 1.0)
            second = log_densities(mechanism, over(*two, loss, neighbouring), points, 1.0)
            assert np.ptp(first - second) <= 1 + 1e-9


@pytest.mark.parametrize(("neighbouring", "mu"), in_turn([*RELATIONS], [0.2, 1.0]))
def test_the_regularised_density_is_gdp(neighbouring, mu):
    """Hockey-stick by quadrature, below the Gaussian's and near it where only slopes change."""
    lam = 2.0
    # Labels far on both sides: slopes that cancel, and no kink on the domain.
    X, y = np.full((50, 1), 1.0), np.where(np.arange(50) < 25, -500.0, 500.0)
    one, two = neighbours(neighbouring, X, y, ([1.0], 100.0), ([1.0], -100.0))
    for domain, loss, tight in ((L2Ball(60.0), Absolute(), True), (L2Ball(1.0), Huber(0.3), False)):
        mechanism = ExponentialDensity("gaussian", 1 / mu, domain, "tangents", lam)
        radius = domain.size
        grid = np.linspace(-radius, radius, 40_001)
        points, weights = (grid[1:] + grid[:-1])[:, None] / 2, grid[1] - grid[0]
        first = log_densities(mechanism, over(*one, loss, neighbouring), points, weights)
        second = log_densities(mechanism, over(*two, loss, neighbouring), points, weights)
        for epsilon in (0.0, 0.1, 0.5, 1.0):
            expected = gaussian_delta(epsilon, mu)
            for p, q in ((first, second), (second, first)):
                delta = np.sum(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0)) * weights
                assert delta <= expected + 2e-6
                if tight:
                    assert delta >= 0.97 * expected - 1e-7


# ------------------------------------------------------------ what the exponent is made of
def test_loss_range_in_closed_form():
    assert loss_range(Quantile(0.9), 1.0, Box(10.0, 11.0), 1) == pytest.approx(0.9)
    assert loss_range(Absolute(), 2.0, Box(0.0, 1.0), 1) == pytest.approx(2.0)
    assert loss_range(Logistic(), 1.0, L2Ball(5.0), 3) == pytest.approx(5.0)
    assert loss_range(Hinge(), 1.0, L2Ball(5.0), 3) == pytest.approx(6.0)
    assert loss_range(Huber(0.5), 2.0, L2Ball(3.0), 3) == pytest.approx(6.0)
    assert loss_range(Logistic(), 1.0, L2Ball(5.0, centre=(100.0,)), 1) == pytest.approx(10.0)
    assert loss_range(Squared(), 1.0, L2Ball(1.0), 1) == math.inf


@every_relation
def test_neither_the_exponent_nor_the_kind_depends_on_the_data(neighbouring):
    mechanism = ExponentialDensity("pure", 0.7, L2Ball(2.0), "sandwich")
    empty = Oracle.empty(
        2, neighbouring=neighbouring, bounds=RowBounds(1.0), source=SeededSource(0)
    )
    declared = empty.everything().function(Logistic())
    expected = 1 / (0.7 * RELATIONS[neighbouring] * 2.0)
    for sealed in (
        declared,
        over(np.eye(2) / 9, np.ones(2), Logistic(), neighbouring),
        over(np.full((9, 2), 1e300), np.ones(9), Logistic(), neighbouring),
    ):
        assert target_of(mechanism, sealed).inverse_temperature == pytest.approx(expected)
        assert mechanism.kinds(sealed.sensitivity) == (BoundedRange(1 / 0.7),)


def test_kinds_of_the_regularised_density():
    mechanism = ExponentialDensity("gaussian", 4.0, L2Ball(2.0), "sandwich", 1.0)
    for neighbouring, single in (("zero_out", 0.25), ("replace_one", 0.125)):
        sealed = over(np.eye(2), np.ones(2), Logistic(), neighbouring)
        assert mechanism.kinds(sealed.sensitivity) == (GaussianKind(0.25, single),)


@pytest.mark.parametrize("loss", [Absolute(), Quantile(0.3), Huber(0.5)], ids=repr)
def test_a_huge_label_does_not_swallow_the_others(loss):
    """In a naive sum 1e300 leaves nothing of the other records: the density would become flat."""
    X, y = logistic_data(50, 2, 1.0)
    points = np.random.default_rng(14).normal(size=(20, 2))
    mechanism = ExponentialDensity("pure", 1.0, L2Ball(3.0), "cells")
    found = []
    for label in (1e300, 40.0):
        y[3] = label
        found.append(target_of(mechanism, over(X, y, loss)).potentials(points))
    np.testing.assert_allclose(np.diff(found[0]), np.diff(found[1]), atol=1e-9)
    assert np.ptp(found[0]) > 1


# ------------------------------------------------------------ total, silent, refusals
HOSTILE = np.vstack(
    [
        np.random.default_rng(15).normal(size=(20, 2)),
        [[np.nan, 0.0], [np.inf, 1.0], [1e300, 1.0], [1e160, -1e160], [1e-300, 0.0], [0.0, 0.0]],
    ]
)


@pytest.mark.parametrize("method", ["cells", "sandwich", "grid"])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Huber(0.5), Absolute()], ids=repr)
def test_hostile_rows_do_not_make_it_fail(loss, method):
    if method == "sandwich" and loss.smoothness == math.inf:
        return
    y = np.where(np.arange(len(HOSTILE)) % 3, 1.0, -1.0)
    y[[0, 1]] = np.nan, 1e300
    sealed = over(HOSTILE, y, loss)
    mechanism = ExponentialDensity("pure", 1.0, L2Ball(2.0), method, spacing=0.2)
    theta = Gate(SeededSource(0)).release(mechanism, sealed)
    assert np.linalg.norm(theta) <= 2.0


@pytest.mark.parametrize("method", ["piecewise_linear", "tangents"])
def test_hostile_rows_on_a_line(method):
    y = np.where(np.arange(len(HOSTILE)) % 3, 1e300, -2.0)
    sealed = over(HOSTILE[:, :1], y, Absolute())
    theta = Gate(SeededSource(0)).release(
        ExponentialDensity("pure", 1.0, Box(-1.0, 2.0), method), sealed
    )
    assert -1.0 <= theta[0] <= 2.0


@pytest.mark.parametrize("domain", [L2Ball(1.0), Box(-1.0, 0.25), L1Ball(0.5)], ids=repr)
def test_silence_gives_the_minimiser(domain):
    X, y = logistic_data(300, 2, 3.0)
    sealed = over(X, y, Logistic())
    mechanism = ExponentialDensity("pure", 1.0, domain, "sandwich")
    theta = Gate(SilentSource()).release(mechanism, sealed)
    objective = sealed.open(KEY)
    slope = objective.gradient(theta)
    # No direction into the domain descends.
    gap = slope @ (theta - domain.linear_minimiser(slope))
    assert 0 <= gap + 1e-9 < 1e-3
    empty = Oracle.empty(2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0))
    still = Gate(SilentSource()).release(mechanism, empty.everything().function(Logistic()))
    np.testing.assert_allclose(still, domain.centre(2))


def test_a_domain_of_one_point_needs_no_noise():
    sealed = over(np.eye(2), np.ones(2), Logistic())
    mechanism = ExponentialDensity("pure", 1.0, Box((1.0, 2.0), (1.0, 2.0)), "cells")
    np.testing.assert_array_equal(Gate(SeededSource(0)).release(mechanism, sealed), [1.0, 2.0])


def test_refusals():
    gate = Gate(SeededSource(0))
    with pytest.raises(Refused, match="Lipschitz"):
        gate.release(
            ExponentialDensity("pure", 1.0, L2Ball(1.0), "cells"),
            over(np.eye(2), np.ones(2), Squared()),
        )
    oracle = Oracle.over(
        np.eye(2),
        np.ones(2),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
    )
    with pytest.raises(Refused, match="not a sample"):
        gate.release(
            ExponentialDensity("pure", 1.0, L2Ball(1.0), "cells"),
            oracle.poisson(0.5).function(Logistic()),
        )
    assert len(gate.log) == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"noise": "laplace"}, "noise"),
        ({"method": "metropolis"}, "method"),
        ({"multiplier": 0.0}, "multiplier"),
        ({"multiplier": math.inf}, "multiplier"),
        ({"regularisation": -1.0}, "regularisation"),
        ({"noise": "gaussian"}, "regularisation"),
        ({"noise": "gaussian", "regularisation": 1.0, "method": "grid"}, "grid"),
        ({"method": "grid"}, "spacing"),
    ],
)
def test_parameters_are_checked(change, word):
    base = dict(noise="pure", multiplier=1.0, domain=L2Ball(1.0), method="cells")
    with pytest.raises(ValueError, match=word):
        ExponentialDensity(**{**base, **change})


def test_an_unbounded_domain_is_refused():
    from privopt.geometry import WholeSpace

    with pytest.raises(ValueError, match="bounded"):
        ExponentialDensity("pure", 1.0, WholeSpace(), "cells")
