"""Private standardisation: what it learns without noise, how noise enters, what it survives.

Seeded. On a fresh seed each comparison would raise a false alarm with a probability of 1e-6.
"""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats

from privopt.mechanisms import Gate, Standardizer
from privopt.mechanisms import standardizer as module
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Refused
from privopt.privacy.kinds import GaussianKind, Pure

ALARM = 1e-6
BOUNDS = RowBounds(math.inf, 1.0)
RELATIONS = ("zero_out", "add_remove", "replace_one")
every_relation = pytest.mark.parametrize("relation", RELATIONS)
every_noise = pytest.mark.parametrize("noise", ["gaussian", "pure"])


def agrees(sample, cdf):
    return stats.kstest(np.ravel(sample), cdf).pvalue > ALARM


def over(X, relation="zero_out"):
    return Oracle.over(
        X, np.ones(X.shape[0]), neighbouring=relation, bounds=BOUNDS, source=SeededSource(0)
    )


def over_nothing(features, relation="zero_out"):
    return Oracle.empty(features + 1, neighbouring=relation, bounds=BOUNDS, source=SeededSource(0))


class Recorder:
    """A gate's hook that keeps payloads, sensitivities and results."""

    def __init__(self):
        self.payloads, self.sensitivities, self.results = [], [], []

    def __call__(self, mechanism, payload, sensitivity, event, run):
        self.payloads.append(payload)
        self.sensitivities.append(sensitivity)
        self.results.append(run())
        return self.results[-1]


def learn(oracle, source=None, **arguments):
    settings = dict(n=1000, noise="gaussian", norm_multiplier=5.0, moment_multiplier=3.0)
    hook = Recorder()
    gate = Gate(source or SilentSource(), hook=hook)
    row_map = Standardizer(**{**settings, **arguments}).run(oracle, gate)
    return row_map, gate, hook


@pytest.fixture(scope="module")
def records():
    """20 000 rows in [-1, 1] with columns of very different centres and spreads."""
    rng = np.random.default_rng(0)
    n = 20_000
    return np.column_stack(
        [
            np.clip(rng.normal(0.3, 0.2, n), -1, 1),
            rng.choice([0.0, 1.0], size=n, p=[0.9, 0.1]),
            np.clip(rng.normal(-0.05, 0.01, n), -1, 1),
            rng.uniform(-1, 1, n),
            np.zeros(n),
        ]
    )


# ------------------------------------------------------------ without noise
@every_noise
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_mean_and_variance_are_recovered(records, noise, form):
    """Unclipped (the quantile is the largest norm) and with noise that is planned tiny."""
    tiny = dict(norm_multiplier=1e-6, moment_multiplier=1e-6, quantile=1.0)
    row_map, _, _ = learn(over(form(records)), n=20_000, noise=noise, **tiny)
    np.testing.assert_allclose(row_map.centre, records.mean(axis=0), atol=1e-12)
    spread = records[:, :4].std(axis=0)
    np.testing.assert_allclose(row_map.scale[:4], 1 / spread, rtol=1e-4)
    assert row_map.column == 2.0
    # Four columns of unit variance, one of none (half of its planned noise), the constant.
    assert row_map.clip_norm == pytest.approx(0.8 * math.sqrt(4 + 0.5 + 4), rel=1e-4)


def test_rows_beyond_the_quantile_are_clipped_while_moments_are_taken(records):
    row_map, _, hook = learn(over(records), n=20_000, moment_multiplier=1e-6)
    norms = np.linalg.norm(records, axis=1)
    edges = np.geomspace(0.01, 1.0, 64) * math.sqrt(5)
    bound = edges[np.searchsorted(edges, np.quantile(norms, 0.9))]
    assert (norms > bound).mean() > 0.05
    clipped = records * np.minimum(1, bound / norms)[:, None]
    np.testing.assert_allclose(row_map.centre, clipped.mean(axis=0), atol=1e-12)
    second = min(bound, bound**2)
    sizes = np.maximum(np.linalg.norm(records**2, axis=1), second)[:, None]
    square = second * (records**2 / sizes).mean(axis=0)
    variance = square - clipped.mean(axis=0) ** 2
    noise = 1e-6 * math.sqrt(2) * second / 20_000
    np.testing.assert_allclose(row_map.scale, 1 / np.sqrt(variance + noise), rtol=1e-7)
    assert hook.payloads[0].sum() == 20_000


# ------------------------------------------------------------ the quantile
def bounds_of_moments(monkeypatch):
    asked, original = [], module.Moments

    def spy(*arguments):
        asked.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(module, "Moments", spy)
    return asked


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 1.0])
def test_the_norm_bound_is_the_first_edge_that_holds_the_quantile(monkeypatch, quantile):
    asked = bounds_of_moments(monkeypatch)
    rng = np.random.default_rng(1)
    X = np.clip(rng.standard_t(2, size=(997, 4)) * 0.1, -1, 1)
    learn(over(X), n=997, quantile=quantile)
    norms = np.linalg.norm(X, axis=1)
    edges = np.geomspace(0.01, 1.0, 64) * 2.0
    enough = [edge for edge in edges if (norms <= edge).sum() >= quantile * 997]
    assert asked == [
        (pytest.approx(enough[0], rel=1e-12), pytest.approx(min(enough[0], enough[0] ** 2)))
    ]


def test_the_bound_of_squares_is_the_smaller_of_the_bound_and_its_square(monkeypatch):
    asked = bounds_of_moments(monkeypatch)
    learn(over(np.full((50, 9), 0.9)), n=50)
    learn(over(np.full((50, 9), 0.1)), n=50)
    (large, large_second), (small, small_second) = asked
    assert large > 1
    assert large_second == large
    assert small < 1
    assert small_second == small**2


def test_counts_that_never_sensitivity_the_quantile_take_the_largest_edge(monkeypatch):
    asked = bounds_of_moments(monkeypatch)
    learn(over_nothing(4), n=50)
    learn(over(np.full((10, 4), 0.1)), n=1000)  # a declared n far above the truth
    assert [first for first, _ in asked] == [pytest.approx(2.0), pytest.approx(2.0)]


# ------------------------------------------------------------ how noise enters
@pytest.mark.statistical
@every_relation
def test_gaussian_noise_of_both_releases(relation):
    """Standard deviation multiplier x movement: 1 and sqrt(2), or sqrt(2) and sqrt(6)."""
    first, second = [], []
    for seed in range(60):
        _, _, hook = learn(
            over_nothing(3, relation),
            SeededSource(seed),
            norm_multiplier=7.0,
            moment_multiplier=4.0,
        )
        first.append(hook.results[0])
        second.append(hook.results[1])
    replace = relation == "replace_one"
    z = np.array(first) / (7.0 * (math.sqrt(2) if replace else 1.0))
    w = np.array(second) / (4.0 * (math.sqrt(6) if replace else math.sqrt(2)))
    assert z.shape == (60, 64)
    assert w.shape == (60, 6)
    assert agrees(z, stats.norm.cdf)
    assert agrees(w, stats.norm.cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * z, stats.norm.cdf)
        assert not agrees(factor * w, stats.norm.cdf)
    chi = stats.chi2(z.size)
    assert ALARM / 2 < chi.cdf(np.sum(z**2)) < 1 - ALARM / 2


@pytest.mark.statistical
@every_relation
def test_pure_noise_of_both_releases(relation):
    """Laplace per bin with the l1 movement; moments with norm-Gamma noise in 2p dimensions."""
    first, second = [], []
    for seed in range(300):
        _, _, hook = learn(
            over_nothing(3, relation),
            SeededSource(seed),
            noise="pure",
            norm_multiplier=7.0,
            moment_multiplier=4.0,
        )
        first.append(hook.results[0])
        second.append(np.linalg.norm(hook.results[1]))
    replace = relation == "replace_one"
    z = np.array(first) / (7.0 * (2.0 if replace else 1.0))
    w = np.array(second) / (4.0 * (math.sqrt(6) if replace else math.sqrt(2)))
    assert agrees(z, stats.laplace.cdf)
    assert agrees(w, stats.gamma(6).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * z, stats.laplace.cdf)
        assert not agrees(factor * w, stats.gamma(6).cdf)


def test_noise_is_added_to_the_sums_of_the_data(records):
    """Result minus payload is what a twin source draws."""
    _, _, hook = learn(over(records[:500]), SeededSource(3), n=500)
    twin = SeededSource(3).noise
    for payload, result, scale in zip(
        hook.payloads, hook.results, (5.0, 3.0 * math.sqrt(2)), strict=True
    ):
        drawn = scale * twin.standard_normal(payload.size)
        np.testing.assert_allclose(result - payload, drawn, atol=1e-9)


@every_noise
@every_relation
def test_two_events_and_their_kinds(noise, relation):
    _, gate, hook = learn(
        over_nothing(3, relation), noise=noise, norm_multiplier=8.0, moment_multiplier=4.0
    )
    assert len(gate.log) == 2
    kinds = [event.kinds for event in gate.log]
    if noise == "pure":
        assert kinds == [(Pure(0.125),), (Pure(0.25),)]
        assert [sensitivity.norm for sensitivity in hook.sensitivities] == ["l1", "l2"]
    else:
        assert [kind.mu for (kind,) in kinds] == [0.125, 0.25]
        assert all(isinstance(kind, GaussianKind) for (kind,) in kinds)
        single = [sensitivity.single / sensitivity.radius for sensitivity in hook.sensitivities]
        assert [kind.single / kind.mu for (kind,) in kinds] == pytest.approx(single)
    _, with_data, _ = learn(
        over(np.full((9, 3), 0.5), relation),
        noise=noise,
        norm_multiplier=8.0,
        moment_multiplier=4.0,
    )
    assert [event.kinds for event in with_data.log] == kinds


def test_the_map_depends_on_nothing_but_the_released_values(records):
    """Frozen releases on another data set: the map is post-processing."""
    row_map, _, hook = learn(over(records), SeededSource(5), n=20_000)
    frozen = iter(hook.results)
    gate = Gate(SilentSource(), hook=lambda *arguments: next(frozen))
    other = Standardizer(20_000, "gaussian", 5.0, 3.0).run(over(np.ones((7, 5))), gate)
    for name in ("centre", "scale", "column", "clip_norm"):
        np.testing.assert_array_equal(getattr(other, name), getattr(row_map, name))


# ------------------------------------------------------------ totality
@every_noise
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((0, 3)),
        np.full((4, 3), np.nan),
        np.zeros((4, 3)),
        np.full((1, 3), 1e300),
        np.full((4, 3), 1e15),
        np.array([[np.inf, 0.0, 0.0], [1e-300, 0.0, 1.0]]),
    ],
    ids=["none", "NaN", "zeros", "1e300", "1e15", "mixed"],
)
def test_a_map_comes_out_of_every_data_set(noise, X):
    for source in (SilentSource(), *map(SeededSource, range(20))):
        for n in (1, 4, 10**6):
            row_map, gate, _ = learn(over(X), source, n=n, noise=noise)
            assert len(gate.log) == 2
            for values in (row_map.centre, row_map.scale):
                assert values.shape == (3,)
                assert np.isfinite(values).all()
            assert (np.abs(row_map.centre) <= 1).all()
            assert (row_map.scale > 0).all()
            assert 0 < row_map.clip_norm < math.inf


def test_a_map_on_no_data_without_noise_is_neutral():
    row_map, _, _ = learn(over_nothing(4), n=100)
    np.testing.assert_array_equal(row_map.centre, 0.0)
    assert len(set(row_map.scale.tolist())) == 1


@pytest.mark.parametrize("name", ["norm_multiplier", "moment_multiplier"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_multiplier_must_be_positive_and_finite(name, value):
    with pytest.raises((ValueError, Refused), match="multiplier"):
        learn(over_nothing(2), **{name: value})


# ------------------------------------------------------------ shrinkage
@every_noise
def test_a_column_whose_variance_drowns_in_noise_is_shrunk(records, noise):
    """Scale at most 1/sqrt(planned noise): the mapped column stays small, it is not blown up."""
    row_map, _, hook = learn(over(records), n=20_000, noise=noise, moment_multiplier=40.0)
    edges = np.geomspace(0.01, 1.0, 64) * math.sqrt(5)
    norms = np.linalg.norm(records, axis=1)
    bound = edges[np.searchsorted(edges, np.quantile(norms, 0.9))]
    spread = math.sqrt(2) * (math.sqrt(11) if noise == "pure" else 1.0)
    planned = 40.0 * spread * min(bound, bound**2) / 20_000
    assert row_map.scale.max() <= 1 / math.sqrt(planned) * (1 + 1e-9)
    assert row_map.scale[4] == pytest.approx(1 / math.sqrt(planned), rel=1e-9)
    mapped = records.std(axis=0) * row_map.scale
    assert mapped[2] < 0.25  # spread 0.01: far below the noise
    assert mapped[3] > 0.8  # spread 0.58: far above it
    # d_eff counts a drowned column half at most, and never more than one per column.
    size = (row_map.clip_norm / 0.8) ** 2 - 4
    assert 2 < size < 5
    assert hook.sensitivities[1].radius == pytest.approx(math.sqrt(2))


def test_the_clip_is_the_stated_multiple_of_the_root_mean_square(records):
    one, _, _ = learn(over(records), n=20_000)
    half, _, _ = learn(over(records), n=20_000, clip=0.4)
    assert half.clip_norm == pytest.approx(one.clip_norm / 2, rel=1e-12)
    high, _, _ = learn(over(records), n=20_000, column=3.0)
    assert (high.clip_norm / 0.8) ** 2 - (one.clip_norm / 0.8) ** 2 == pytest.approx(5.0)
