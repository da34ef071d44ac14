"""A private quantile of one column: laws, exact privacy, and what it refuses."""

import math

import numpy as np
import pytest
from scipy import stats

import privopt
from privopt import Budget, Certificate
from privopt.audit import hostile_pairs, replay
from privopt.losses import Quantile
from privopt.mechanisms import Gate, RankQuantile
from privopt.mechanisms.density.draws import CELLS
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY

ALARM = 1e-6
RELATIONS = ("zero_out", "add_remove", "replace_one")
every_relation = pytest.mark.parametrize("neighbouring", RELATIONS)
every_method = pytest.mark.parametrize("method", ["loss", "rank"])


def sealed_column(values, q, neighbouring="zero_out"):
    oracle = Oracle.over(
        np.ones((len(values), 1)),
        np.asarray(values, dtype=float),
        neighbouring=neighbouring,
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=False,
    )
    return oracle.everything().function(Quantile(q))


# ------------------------------------------------------------ rank: exact privacy
def rank_law(mechanism, values, q, neighbouring):
    """The released density as a step function, normalised."""
    sealed = sealed_column(values, q, neighbouring)
    knots, scores = mechanism.scores(sealed.open(KEY))
    knots = knots / CELLS  # of the interval from 0 to 1
    movement = 2.0 if neighbouring == "replace_one" else 2 * max(q, 1 - q)
    heights = -scores / (mechanism.multiplier * movement)
    top = heights.max()
    mass = np.sum(np.diff(knots) * np.exp(heights - top))
    heights = heights - top - math.log(mass)
    return lambda t: heights[np.clip(np.searchsorted(knots, t) - 1, 0, len(heights) - 1)]


def pairs(neighbouring, values, one, other):
    if neighbouring == "add_remove":
        return [*values, one], list(values)
    return [*values, one], [*values, math.nan if neighbouring == "zero_out" else other]


@every_relation
@pytest.mark.parametrize("q", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_rank_density_is_within_epsilon(q, neighbouring):
    """Enumerated on data that pushes hard; an exponent of epsilon would show 1.8 at q = 0.9."""
    mechanism = RankQuantile(1.0, 0.0, 1.0, 1e-3)
    at = np.linspace(1e-6, 1 - 1e-6, 40_001)
    worst = 0.0
    rng = np.random.default_rng(0)
    for values in (np.full(60, 0.2), np.full(60, 0.8), rng.random(60), np.repeat([0.3, 0.7], 30)):
        for one, other in ((0.0, 1.0), (1.0, 0.0), (0.5, 0.1), (0.25, 0.75)):
            first, second = pairs(neighbouring, values, one, other)
            ratio = rank_law(mechanism, first, q, neighbouring)(at) - rank_law(
                mechanism, second, q, neighbouring
            )(at)
            worst = max(worst, np.ptp(ratio), np.abs(ratio).max())
    assert 0.5 < worst <= 1 + 1e-9


@pytest.mark.statistical
@every_relation
@pytest.mark.parametrize("q", [0.5, 0.9])
def test_rank_releases_follow_that_density(q, neighbouring):
    """The exponent is written out in ``rank_law``; twice or half of it is another law."""
    values = np.random.default_rng(1).random(15)
    sealed = sealed_column(values, q, neighbouring)
    mechanism = RankQuantile(0.7, 0.0, 1.0, 1e-3)
    gate = Gate(SeededSource(2))
    theta = np.array([gate.release(mechanism, sealed)[0] for _ in range(3000)])
    grid = np.linspace(0, 1, 20_001)
    middle = (grid[1:] + grid[:-1]) / 2
    heights = rank_law(mechanism, values, q, neighbouring)(middle)
    for power, same in ((1.0, True), (2.0, False), (0.5, False)):
        total = np.concatenate([[0.0], np.cumsum(np.exp(power * (heights - heights.max())))])
        law = stats.kstest(theta, lambda t, f=total / total[-1]: np.interp(t, grid, f))
        assert bool(law.pvalue > ALARM) is same


def test_widening_finds_an_atom():
    """Half of the records share one value; without widening it would have no length."""
    rng = np.random.default_rng(3)
    values = np.concatenate([np.full(600, 0.3), rng.random(400)])
    found = [
        privopt.quantile(values, 0.5, bounds=(0, 1), method="rank", random_state=i)[0]
        for i in range(20)
    ]
    assert np.mean(np.abs(np.array(found) - 0.3) <= 1e-4) == 1.0


# ------------------------------------------------------------ known numbers
@pytest.mark.statistical
def test_rank_is_far_more_precise_on_continuous_data():
    """Excess 0.0014 against 0.45 at n = 1000; at least twenty times."""
    data = np.random.default_rng(4).random(1000)
    best = np.abs(data - np.median(data)).sum()

    def excess(method):
        found = [
            privopt.quantile(data, 0.5, bounds=(0, 1), method=method, random_state=i)[0]
            for i in range(150)
        ]
        return np.mean([np.abs(data - t).sum() - best for t in found])

    assert excess("rank") < excess("loss") / 20


# ------------------------------------------------------------ the function
@every_relation
@every_method
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_it_finds_the_quantile_and_certifies(q, method, neighbouring):
    values = np.linspace(0.0, 10.0, 2001)
    found, certificate = privopt.quantile(
        values,
        q,
        bounds=(-5.0, 20.0),
        epsilon=5.0,
        neighbouring=neighbouring,
        method=method,
        random_state=0,
    )
    assert found == pytest.approx(10 * q, abs=0.7)
    assert certificate.epsilon == pytest.approx(5.0)
    assert certificate.delta == 0.0
    assert certificate.neighbouring == neighbouring
    assert certificate.assumptions == ()
    assert Certificate.from_json(certificate.to_json()) == certificate


@every_relation
@every_method
def test_replay_on_hostile_neighbours(method, neighbouring):
    def run(X, y):
        value, certificate = privopt.quantile(
            y,
            0.3,
            bounds=(-1.0, 1.0),
            neighbouring=neighbouring,
            method=method,
            random_state=0,
        )
        return value, certificate.to_json()

    for pair in hostile_pairs(neighbouring, classification=False):
        assert replay(run, pair) == []


@every_method
def test_hostile_values_do_not_matter(method):
    values = np.concatenate([np.linspace(0, 1, 500), [np.nan, np.inf, -np.inf, 1e300, -1e300]])
    found, _ = privopt.quantile(values, 0.5, bounds=(0, 1), epsilon=8.0, method=method)
    assert found == pytest.approx(0.5, abs=0.1)
    nothing, _ = privopt.quantile([], 0.5, bounds=(0, 1), method=method)
    assert 0 <= nothing <= 1


def test_silence_gives_a_best_rank():
    sealed = sealed_column([0.1, 0.2, 0.3, 0.9], 0.5)
    theta = Gate(SilentSource()).release(RankQuantile(1.0, 0.0, 1.0, 1e-3), sealed)
    assert 0.199 <= theta[0] <= 0.301


# ------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"bounds": (0.0, math.inf)}, "bounds"),
        ({"bounds": (1.0, 1.0)}, "bounds"),
        ({"bounds": (2.0, 1.0)}, "bounds"),
        ({"q": 0.0}, "level"),
        ({"q": 1.0}, "level"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"neighbouring": "bounded"}, "neighbouring"),
        ({"method": "mean"}, "method"),
        ({"widening": 0.1}, "rank"),
        ({"method": "rank", "widening": 0.0}, "widening"),
        ({"values": np.ones((3, 2))}, "one column"),
    ],
)
def test_bad_arguments(change, word):
    base = {"values": [0.1, 0.2], "q": 0.5, "bounds": (0.0, 1.0)}
    with pytest.raises(ValueError, match=word):
        privopt.quantile(**{**base, **change})


def test_text_in_the_column_is_not_quoted():
    with pytest.raises(ValueError, match="numbers") as caught:
        privopt.quantile(["1.0", "secret"], 0.5, bounds=(0.0, 1.0))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_budget_is_the_same_object_as_elsewhere():
    _, certificate = privopt.quantile([0.5], 0.5, bounds=(0, 1), epsilon=2.0, random_state=0)
    assert certificate.epsilon <= Budget(2.0).epsilon
    assert not certificate.private
