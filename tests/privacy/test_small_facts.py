"""Small facts of accounting, against closed forms and plain integration: random mutants showed that
nobody had asked about them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from scipy.stats import norm, rayleigh

from privopt.privacy import (
    Accountant,
    Budget,
    Certificate,
    Event,
    Log,
    Participation,
    RandomCount,
    charge_of,
    convolve,
    spend,
)
from privopt.privacy.accountant import _sampled_renyi_route
from privopt.privacy.amplified import compare_bands
from privopt.privacy.certificate import RUN
from privopt.privacy.events import Numerics
from privopt.privacy.factorizations.dense import Dense, DenseOptimal, FullHonaker
from privopt.privacy.factorizations.factorization import UNIT
from privopt.privacy.factorizations.tree import Tree, _complete_nodes
from privopt.privacy.filters import EPSILON_UNITS, MOST, Cost, Remaining, _up, rest
from privopt.privacy.groups import of_group
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
    SampledGaussian,
)
from privopt.privacy.profiles import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    rayleigh_tail,
    truncated_tail,
)
from privopt.privacy.sampled import poisson_distribution
from privopt.privacy.spend import Spend
from privopt.privacy.tuning import Tuned, _missed

PLACES = (-3.0, -0.4, 0.0, 0.3, 2.0)


# ---------------------------------------------------------------- profiles
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [-2.0, -0.1, 0.0, 0.5, 4.0])
def test_the_gaussian_profile_is_its_integral(mu, epsilon):
    found, _ = quad(
        lambda x: max(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0.0), -12, 12 + mu,
        limit=200, points=[(epsilon + mu**2 / 2) / mu],
    )  # fmt: skip
    assert gaussian_delta(epsilon, mu) == pytest.approx(found, abs=1e-9)


def test_no_loss_at_all_and_a_loss_beyond_all_tails():
    assert gaussian_delta(0.5, 0.0) == 0.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert gaussian_delta(1e6, 1.0) == 0.0


@pytest.mark.parametrize("scale", [0.3, 1.5])
@pytest.mark.parametrize("s", PLACES)
def test_the_tail_of_a_chi_variable_of_two_degrees(s, scale):
    law = rayleigh(scale=scale)
    found, _ = quad(
        lambda w: max(1 - math.exp(s - w), 0.0) * law.pdf(w), 0, 40 * scale, points=[max(s, 0.0)]
    )
    assert rayleigh_tail(np.array([s]), scale)[0] == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("mu", [0.3, 1.5])
@pytest.mark.parametrize("t", PLACES)
def test_the_tail_of_a_loss_cut_off_at_zero(t, mu):
    at_zero = max(1 - math.exp(t), 0.0) * norm.cdf(-mu / 2)
    found, _ = quad(
        lambda z: max(1 - math.exp(t - mu**2 / 2 - mu * z), 0.0) * norm.pdf(z), -mu / 2, 15,
        points=[(t - mu**2 / 2) / mu] if t > 0 else None,
    )  # fmt: skip
    assert truncated_tail(np.array([t]), mu)[0] == pytest.approx(at_zero + found, abs=1e-8)


# ---------------------------------------------------------------- groups and searches
def test_the_loss_of_two_records_is_twice_that_of_one_in_each_part():
    """The slope of two records together may change its sign."""
    found = of_group(ObjectiveGaussian(0.5, 0.1, True, 3), 2)
    assert found == ObjectiveGaussian(1.0, 0.2, False, 6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_what_a_run_misses_is_no_less_than_it_misses_and_not_far_more(epsilon):
    tuned = Tuned("poisson", 10.0, 0.0, (((GaussianKind(1.0, 1.0), 1),),))
    exact, found = gaussian_delta(epsilon, 1.0), _missed(tuned, epsilon, "zero_out")
    assert exact <= found <= min(1.0, 20 * exact)


@pytest.mark.parametrize(
    ("law", "eta"),
    [("geometric", None), ("logarithmic", None), ("poisson", None), ("negative_binomial", 0.5)],
)
def test_the_number_of_runs_has_the_mean_that_was_asked_for(law, eta):
    """The quantile function at the middles of a fine grid."""
    count = RandomCount.named(law, 5.0, eta)
    grid = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.array([count.at(float(u)) for u in grid])
    assert (np.diff(drawn) >= 0).all()
    assert drawn.mean() == pytest.approx(5.0, rel=2e-3)


# ---------------------------------------------------------------- streams
def test_patterns_of_a_rule_that_fills_all_steps():
    """Two passes of three steps: a later first step is the same as an earlier one's second pass."""
    assert Participation.epochs(2, 3).orders(6) == [(0, 3), (1, 4), (2, 5)]
    assert Participation.epochs(2, 3).orders(7) is not None
    assert len(Participation.epochs(2, 3).orders(7)) == 7
    assert Participation.single_pass().orders(3) == [(0,), (1,), (2,)]


class Small(Dense):
    """A matrix whose numbers are known."""

    name = "small"

    def encoder(self):
        return np.array([[2.0, 0.0], [1.0, 4.0]])


def test_the_rounding_of_a_small_matrix():
    """With ones on its diagonal it is (1, 0; 1/4, 1), as large in rows as its inverse: 5/4."""
    found = Small(2).rounding(1000.0)
    assert (found.least, found.most) == (1 / 4, 1 / 2)
    assert found.error == pytest.approx(4 * UNIT * 1.25 * 1250.0, rel=1e-5)
    assert found.error > 4 * UNIT * 1.25 * 1250.0
    assert found.rows == 1


@pytest.mark.parametrize("steps", [1, 5, 8])
def test_the_whole_tree_with_best_estimates(steps):
    """Norms in closed form are those of the matrix; a part of the stream is charged by its rows."""
    whole = FullHonaker(steps)
    np.testing.assert_allclose(whole.row_norms(), Dense.row_norms(whole), rtol=1e-9)
    patterns = [(0,), tuple(range(0, steps, 2))]
    nodes = Tree(steps, "nodes").losses_squared(patterns)
    np.testing.assert_allclose(whole.losses_squared(patterns), nodes)
    if steps > 1:
        rows = whole.encoder()[: steps - 1]
        wanted = [np.sum(rows[:, [s for s in p if s < steps]].sum(axis=1) ** 2) for p in patterns]
        np.testing.assert_allclose(whole.losses_squared(patterns, steps - 1), wanted, rtol=1e-9)


@pytest.mark.parametrize("factorization", [DenseOptimal(6), FullHonaker(6)])
def test_integers_of_a_matrix_are_its_noise_but_for_a_rounding(factorization):
    """C over its diagonal, times what was added, is what was drawn afresh."""
    rng, drawn, encoder = np.random.default_rng(0), [], factorization.encoder()

    def fresh(scale):
        drawn.append(rng.integers(-(10**9), 10**9, 3))
        return drawn[-1].copy()

    stream = factorization.stream()
    added = np.array([stream.next_whole(fresh) for _ in range(6)], dtype=float)
    unit = encoder / np.diag(encoder)[:, None]
    assert np.abs(unit @ added - np.array(drawn)).max() <= 0.5 + 1e-5


def test_bands_are_compared_at_powers_of_two_with_batches_of_one_size():
    found = compare_bands(Budget(1.0, 1e-6), 8, 64, 8)
    assert sorted(row.groups for row in found) == [1, 2, 4, 8]
    assert all(row.rate == row.groups * 8 / 64 for row in found)
    assert [row.mean_error for row in found] == sorted(row.mean_error for row in found)


# ---------------------------------------------------------------- sampling
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("rate", "mu"), [(0.05, 1.0), (0.5, 2.0), (0.95, 0.5)])
def test_the_profile_of_a_sampled_gaussian_is_its_integral(rate, mu, replaced):
    """Mixtures with the record and without, or with two that pull apart: rounded up, by little."""

    def mixed(x, moved):
        return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, moved)

    law = poisson_distribution(rate, mu, 1e-3, replaced)
    for epsilon in (0.1, 1.0):
        exact = max(
            quad(
                lambda x, a=a, b=b, e=epsilon: max(mixed(x, a) - math.exp(e) * mixed(x, b), 0.0),
                -15, 15, limit=800, epsabs=1e-13, epsrel=1e-9,
            )[0]
            for a, b in ([(mu, -mu)] if replaced else [(mu, 0.0), (0.0, mu)])
        )  # fmt: skip
        found = law.get_delta_for_epsilon(epsilon)
        assert exact * (1 - 1e-6) <= found <= exact * 1.02 + 1e-9


def test_a_sum_that_would_span_too_many_cells_takes_a_coarser_grid(monkeypatch):
    """Pessimistic, and close where epsilon is large: memory does not grow with epsilon."""
    charge = charge_of(SampledGaussian(0.5, 6.0), count=20)
    fine = Accountant().epsilon(charge, 1e-6)
    monkeypatch.setattr(convolve, "MOST_CELLS", 2**12)
    coarse = Accountant().epsilon(charge, 1e-6)
    assert fine <= coarse <= 1.01 * fine
    with pytest.raises(convolve.TooFine):
        convolve.composed([(SampledGaussian(0.5, 6.0).distribution(1e-3, "zero_out"), 20)])


@pytest.mark.parametrize("released", [1, 2, 3, 5, 8, 13])
def test_complete_nodes_are_those_whose_steps_were_all_released(released):
    leaf, owner = np.arange(1, released + 1), np.arange(released) % 2
    places, owners, values = _complete_nodes(leaf, owner, released)
    found = {(int(p) >> 6, int(p) & 63, int(o)) for p, o in zip(places, owners, strict=True)}
    expected = {
        (block, height, int(who))
        for step, who in zip(leaf, owner, strict=True)
        for height in range(5)
        for block in range(released)
        if block << height < step <= (block + 1) << height <= released
    }
    assert found == expected
    assert (
        len(places) == len(owners) == len(values) == sum(released // 2**h * 2**h for h in range(5))
    )
    assert set(values) == {1.0}
    assert [len(part) for part in _complete_nodes(leaf, owner, 0)] == [0, 0, 0]


# ---------------------------------------------------------------- what is left of a budget
@pytest.mark.parametrize("composition", ["basic", "auto", "gaussian"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_rest_of_a_budget_is_the_largest_fit_that_is_still_admitted(composition, share):
    """All of an account's budget before anything is charged; then what one fit leaves, to 1e-6."""
    budget = Budget(2.0, 1e-6)
    whole = left = Remaining.whole(budget, composition)
    expected = 2.0 * (1 - share)
    if composition == "gaussian" and share:
        left = replace(whole, square=round(whole.square * (1 - share)))
        expected = gaussian_epsilon(gaussian_mu(2.0, 1e-6) * math.sqrt(1 - share), 1e-6)
    elif share:
        left = replace(whole, epsilon=whole.epsilon - round(share * 2.0 * EPSILON_UNITS))
    epsilon, delta = rest(budget, left)
    assert (1 - 1e-6) * expected <= epsilon <= (1 + 1e-12) * expected
    assert (1 - 1e-6) * 1e-6 <= delta <= 1e-6


def test_amounts_beyond_every_total_stay_beyond_it():
    for amount in (math.inf, 1e300, MOST / EPSILON_UNITS * 1.01):
        assert _up(amount, EPSILON_UNITS) == MOST + 1
    assert _up(1.0000000000001, EPSILON_UNITS) == EPSILON_UNITS + 1


def test_nothing_is_left_of_a_budget_that_was_exceeded_by_rounding():
    """The part in 1e9 that a total may be exceeded by is no room for another fit."""
    budget = Budget(2.0, 1e-6)
    for composition in ("basic", "gaussian"):
        whole = Remaining.whole(budget, composition)
        spent = replace(whole, epsilon=1, delta=whole.delta, square=whole.square and 1)
        assert rest(budget, spent)[0] == 0.0


# ---------------------------------------------------------------- sampled beside concentrated
@pytest.mark.parametrize("beside", [Pure(0.3), BoundedRange(0.5), Concentrated(0.05), None])
def test_the_renyi_route_of_sampled_batches_adds_up_every_kind(beside):
    """Moments of a mixture of Gaussians (Mironov, Talwar and Zhang, 2019) at whole orders, the
    zCDP line of what is beside it, converted as Canonne, Kamath and Steinke (2020) do."""
    rate, mu, count, delta = 0.1, 0.8, 7, 1e-5
    line = {"pure": 0.3**2 / 2, "bounded_range": 0.5**2 / 8, "concentrated": 0.05}
    kinds = Counter({SampledGaussian(rate, mu): count, GaussianKind(0.4, 0.4): 2})
    rho = 2 * 0.4**2 / 2
    if beside is not None:
        kinds[beside] = 3
        rho += 3 * line[beside.name]
    best = math.inf
    for order in range(2, 200):
        k = np.arange(order + 1)
        terms = (
            gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
            + k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) * mu**2 / 2
        )  # fmt: skip
        loss = count * logsumexp(terms) / (order - 1) + rho * order
        best = min(best, loss + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
    found = _sampled_renyi_route(kinds, delta, "zero_out")
    assert 0.97 * best <= found <= best * (1 + 1e-9)
    assert _sampled_renyi_route(kinds, delta, "replace_one") is None
    assert _sampled_renyi_route(Counter({GaussianKind(0.4, 0.4): 2}), delta, "zero_out") is None


# ---------------------------------------------------------------- what is added to a delta
def test_mass_at_infinity_adds_up_over_uses():
    whole = SampledGaussian(0.5, 1.0).distribution(1e-2, "zero_out")._pmf_remove.to_dense_pmf()
    wide = type(whole)(
        whole._discretization, whole._lower_loss, np.asarray(whole._probs) * 0.9, 0.1,
        pessimistic_estimate=True,
    )  # fmt: skip
    found = convolve._sum([(wide, 3)])
    assert 1 - 0.9**3 <= found._infinity_mass <= (1 - 0.9**3) * (1 + 1e-6)


@pytest.mark.parametrize("delta", [1e-6, 1e-4])
def test_epsilon_at_another_delta_pays_for_the_sampler_at_that_epsilon(delta):
    """Least epsilon with delta_G(epsilon; mu) + (1 + e^epsilon) distance <= delta."""
    mu, distance = 1.0, 2e-3 * delta
    log = Log()
    log.append(Event("mechanism", (GaussianKind(mu, mu),), numerics=Numerics(0.0, distance)))
    certificate = Certificate.of_run(
        RUN, log, spend(log), Budget(8.0, 1e-3), solver="a_solver", private=True
    )

    def over(epsilon):
        return gaussian_delta(epsilon, mu) + (1 + math.exp(epsilon)) * distance > delta

    low, high = 0.0, 5.5  # beyond, the sampler alone takes all of delta
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    assert not over(high)
    assert over(gaussian_epsilon(mu, delta))
    assert high * (1 - 1e-9) <= certificate.epsilon_at(delta) <= 1.02 * high


def test_a_cost_covers_what_it_was_planned_for_and_no_more():
    budget = Budget(2.0, 1e-6)
    for kind, more in (
        (GaussianKind(0.3, 0.3), GaussianKind(0.33, 0.33)),
        (Pure(0.5), Pure(0.55)),
    ):
        planned = Cost.of(Spend({(): charge_of(kind)}), budget)
        assert planned.covers(charge_of(kind), "zero_out")
        assert not planned.covers(charge_of(more), "zero_out")
        only_square = replace(planned, epsilon=planned.epsilon * 3)
        assert not only_square.covers(charge_of(more), "zero_out")
