"""Composition by the tightest valid route, against exact sums and quadrature."""

import math
from collections import Counter

import mpmath as mp
import numpy as np
import pytest

from privopt.privacy import Accountant, Event, Log, Refused, Sampling, charge_of, spend
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
)
from privopt.privacy.spend import Step

RELATIONS = ("zero_out", "add_remove", "replace_one")


def poisson(rate, *kinds, count=1):
    return Counter({Step(Sampling(rate), kinds): count})


# ------------------------------------------------------------------------------ pure
@pytest.mark.parametrize("relation", RELATIONS)
def test_pure_losses_add(relation):
    charge = charge_of(Pure(0.25), count=3) + charge_of(Pure(1.5)) + charge_of(BoundedRange(0.5))
    assert Accountant(relation).epsilon(charge, 0.0) == 2.75
    assert Accountant(relation).delta(charge, 2.75) == 0.0
    assert Accountant(relation).delta(charge, 2.7) > 0.0


def test_with_delta_pure_losses_never_cost_more_than_their_sum():
    for count in (1, 2, 40):
        charge = charge_of(Pure(0.3), count=count)
        assert Accountant().epsilon(charge, 1e-6) <= 0.3 * count
    assert Accountant().epsilon(charge, 1e-6) < 0.9 * 0.3 * 40


def test_one_pure_release_with_delta_is_randomised_response(exact):
    """(e^eps - e^t) / (1 + e^eps) is the exact profile; one release must attain it."""
    for t in (0.2, 0.9):
        truth = (math.e - math.exp(t)) / (1 + math.e)
        assert truth == pytest.approx(float(exact.response_delta(1.0, 1, t)), rel=1e-12)
        found = Accountant().delta(charge_of(Pure(1.0)), t)
        assert truth * (1 - 1e-9) <= found <= truth * 1.01


@pytest.mark.parametrize(
    "charge",
    [
        charge_of(GaussianKind(0.01, 0.01)),
        charge_of(Pure(0.1), GaussianKind(1.0, 1.0)),
        charge_of(Concentrated(1e-4)),
        charge_of(ObjectiveGaussian(0.1, 0.0, True)),
        poisson(0.1, GaussianKind(0.1, 0.1)),
    ],
)
def test_without_delta_noise_with_gaussian_tails_guarantees_nothing(charge):
    for relation in RELATIONS:
        assert Accountant(relation).epsilon(charge, 0.0) == math.inf


def test_nothing_costs_nothing():
    for delta in (0.0, 1e-6):
        assert Accountant().epsilon(Counter(), delta) == 0.0
        assert Accountant().epsilon(spend(Log()), delta) == 0.0
    assert Accountant().delta(Counter(), 0.1) == 0.0


# ------------------------------------------------------------------------------ gaussian, zCDP
def test_gaussians_compose_exactly(exact):
    """Squares add: 0.3^2 * 4 + 0.5^2 + 0.2^2 * 9, whatever the order and the number."""
    charge = (
        charge_of(GaussianKind(0.3, 0.3), count=4)
        + charge_of(GaussianKind(0.5, 0.25))
        + charge_of(GaussianKind(0.2, 0.2), count=9)
    )
    mu = mp.sqrt(mp.mpf("0.97"))
    for relation in RELATIONS:
        for delta in (1e-12, 1e-5, 0.01):
            found = Accountant(relation).epsilon(charge, delta)
            assert exact.gaussian_delta(found, mu) <= delta
            assert exact.gaussian_delta(found * (1 - 1e-6), mu) > delta
        for epsilon in (0.0, 0.5, 3.0):
            found = Accountant(relation).delta(charge, epsilon)
            assert found == pytest.approx(float(exact.gaussian_delta(epsilon, mu)), rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_concentrated_losses_add_and_dominate_the_gaussian(exact, relation):
    charge = charge_of(Concentrated(0.01), count=5) + charge_of(Concentrated(0.03))
    for delta in (1e-9, 1e-4):
        found = Accountant(relation).epsilon(charge, delta)
        truth = exact.renyi_conversion(lambda alpha: 0.08 * alpha, delta)
        assert found == pytest.approx(truth, rel=1e-5)
        assert exact.gaussian_delta(found, math.sqrt(0.16)) <= delta


def test_a_gaussian_beside_a_concentrated_loss(exact):
    """mu = 0.5 and rho = 0.045 may be two Gaussians: 0.25 + 0.09 = 0.34."""
    charge = charge_of(GaussianKind(0.5, 0.5), Concentrated(0.045))
    for delta in (1e-9, 1e-4):
        found = Accountant().epsilon(charge, delta)
        assert exact.gaussian_delta(found, math.sqrt(0.34)) <= delta
        truth = exact.renyi_conversion(lambda alpha: 0.17 * alpha, delta)
        assert found == pytest.approx(truth, rel=1e-5)


# ------------------------------------------------------------------------------ bounded range
def selection_delta(eta, count, epsilon, t):
    """Exact profile of ``count`` selections whose loss is t or t - eta: a binomial sum.

    P = e^loss Q, and both sum to one: that gives the chance of the loss t under P.
    """
    with mp.workdps(30):
        eta, t, epsilon = mp.mpf(eta), mp.mpf(t), mp.mpf(epsilon)
        chance = (1 - mp.exp(t - eta)) / (1 - mp.exp(-eta))
        total = mp.mpf(0)
        for k in range(count + 1):
            loss = k * t + (count - k) * (t - eta)
            if loss > epsilon:
                mass = mp.binomial(count, k) * chance**k * (1 - chance) ** (count - k)
                total += mass * (1 - mp.exp(epsilon - loss))
        return total


def test_many_selections_cost_eta_squared_over_eight_each(exact):
    eta, count, delta = 0.05, 400, 1e-5
    found = Accountant().epsilon(charge_of(BoundedRange(eta), count=count), delta)
    assert found <= exact.renyi_conversion(lambda a: a * count * eta**2 / 8, delta) * (1 + 1e-6)
    # four times cheaper in rho than a pure release with the same epsilon, twice in epsilon
    pure = Accountant().epsilon(charge_of(Pure(eta), count=count), delta)
    assert found < 0.6 * pure


@pytest.mark.parametrize(("eta", "count"), [(0.3, 60), (1.0, 10), (2.0, 1)])
def test_selections_are_never_charged_less_than_a_real_one(eta, count):
    delta = 1e-4
    found = Accountant().epsilon(charge_of(BoundedRange(eta), count=count), delta)
    odds = [share * eta for share in (0.1, 0.3, 0.45, 0.5, 0.55, 0.7, 0.9, 0.999)]
    assert max(selection_delta(eta, count, found, t) for t in odds) <= delta
    assert max(selection_delta(eta, count, 0.7 * found, t) for t in odds) > delta


# ------------------------------------------------------------------------------ mixtures
def responses_and_gaussian(exact, epsilons, mu):
    """Condition on the truth of every randomised response, then the Gaussian's profile."""
    losses, chances = np.zeros(1), np.ones(1)
    for each in epsilons:
        likely = 1 / (1 + math.exp(-each))
        losses = np.concatenate([losses + each, losses - each])
        chances = np.concatenate([chances * likely, chances * (1 - likely)])
    return lambda epsilon: float(chances @ exact.gaussian_delta_mills(epsilon - losses, mu))


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_pure_and_gaussian_together(exact, delta):
    charge = (
        charge_of(Pure(0.5), count=3) + charge_of(Pure(0.2)) + charge_of(GaussianKind(0.7, 0.7))
    )
    truth = responses_and_gaussian(exact, [0.5, 0.5, 0.5, 0.2], 0.7)
    found = Accountant().epsilon(charge, delta)
    assert truth(found) <= delta * (1 + 1e-6)
    assert truth(0.995 * found) > delta


def laplace_and_gaussian(exact, epsilon_l, mu, epsilon):
    """Unit shift under Laplace noise of scale 1/eps and Gaussian noise of deviation 1/mu."""
    x, w = exact.rule(np.append(np.linspace(-40, 40, 161) / epsilon_l, 1.0))
    chance = w * epsilon_l / 2 * np.exp(-epsilon_l * np.abs(x))
    loss = epsilon_l * (np.abs(x - 1) - np.abs(x))
    return float(chance @ exact.gaussian_delta_mills(epsilon - loss, mu))


def test_laplace_beside_gaussian_stays_below(exact):
    for epsilon_l, mu in ((0.5, 0.5), (1.5, 0.3)):
        for epsilon in (0.5, 1.5, 3.0):
            found = Accountant().delta(charge_of(Pure(epsilon_l), GaussianKind(mu, mu)), epsilon)
            assert laplace_and_gaussian(exact, epsilon_l, mu, epsilon) <= found


def batch_and_gaussian(exact, rate, mu, mu_g, epsilon):
    """(1-q) N(0,1) + q N(mu,1) against N(0,1), beside a Gaussian; the worse direction."""
    x, w = exact.rule(np.linspace(-12, 12 + mu, 120))
    absent = exact.density(x)
    present = (1 - rate) * absent + rate * exact.density(x - mu)
    return max(
        float((w * p) @ exact.gaussian_delta_mills(epsilon - np.log(p / q), mu_g))
        for p, q in ((present, absent), (absent, present))
    )


@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
def test_a_batch_beside_a_gaussian(exact, relation):
    rate, mu, mu_g, delta = 0.2, 1.1, 0.4, 1e-5
    charge = poisson(rate, GaussianKind(mu, mu)) + charge_of(GaussianKind(mu_g, mu_g))
    found = Accountant(relation).epsilon(charge, delta)
    assert batch_and_gaussian(exact, rate, mu, mu_g, found) <= delta * (1 + 1e-6)
    assert batch_and_gaussian(exact, rate, mu, mu_g, 0.99 * found) > delta


def test_a_batch_beside_a_concentrated_loss_takes_the_renyi_route(exact):
    rate, mu, rho, delta = 0.2, 1.1, 0.08, 1e-5
    charge = poisson(rate, GaussianKind(mu, mu)) + charge_of(Concentrated(rho))
    found = Accountant("zero_out").epsilon(charge, delta)
    # valid for the Gaussian that has this rho, and not absurdly far from it
    assert batch_and_gaussian(exact, rate, mu, math.sqrt(2 * rho), found) <= delta
    assert batch_and_gaussian(exact, rate, mu, math.sqrt(2 * rho), 0.7 * found) > delta


def test_an_objective_beside_a_pure_release(exact):
    """Randomised response on top of c + (mu^2/2 + mu Z)_+: two shifted profiles."""
    mu, c, each, delta = 0.6, 0.2, 0.5, 1e-5
    charge = charge_of(ObjectiveGaussian(mu, c, True), Pure(each))
    likely = 1 / (1 + math.exp(-each))

    def truth(epsilon):
        return sum(
            chance * exact.truncated_then_gaussian(epsilon - loss, 0.0, c, mu)
            for loss, chance in ((each, likely), (-each, 1 - likely))
        )

    found = Accountant().epsilon(charge, delta)
    assert truth(found) <= delta * (1 + 1e-6)
    assert truth(0.99 * found) > delta


# ------------------------------------------------------------------------------ general shape
MIXED = {
    "gaussian": charge_of(GaussianKind(0.8, 0.8), count=2),
    "pure": charge_of(Pure(0.4), count=5),
    "selection": charge_of(BoundedRange(0.4), count=30),
    "concentrated": charge_of(Concentrated(0.05)),
    "objective": charge_of(ObjectiveGaussian(0.6, 0.2, False), GaussianKind(0.1, 0.1)),
    "pure and gaussian": charge_of(Pure(0.4), GaussianKind(0.5, 0.5)),
}


@pytest.mark.parametrize("name", MIXED)
def test_delta_is_the_inverse_of_epsilon(name):
    accountant = Accountant()
    for delta in (1e-7, 1e-3):
        epsilon = accountant.epsilon(MIXED[name], delta)
        # ln delta is searched to 1e-3, the grid of a distribution adds a little
        back = accountant.delta(MIXED[name], epsilon)
        assert back == pytest.approx(delta, rel=3e-3)
        assert accountant.epsilon(MIXED[name], back) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_delta_of_a_batch_and_of_a_wide_objective_is_answered(relation):
    """Both are known to distributions only, which end at about 1e-13: delta stays above."""
    accountant = Accountant(relation)
    for charge in (
        poisson(0.1, GaussianKind(1.0, 1.0)),
        charge_of(ObjectiveGaussian(0.5, 0.1, False, 2)),
    ):
        epsilon = accountant.epsilon(charge, 1e-4)
        assert accountant.delta(charge, epsilon) == pytest.approx(1e-4, rel=0.02)


@pytest.mark.parametrize("name", MIXED)
def test_more_releases_and_less_delta_cost_more(name):
    accountant, charge = Accountant(), MIXED[name]
    here = accountant.epsilon(charge, 1e-5)
    assert accountant.epsilon(charge, 1e-6) > here
    assert accountant.epsilon(charge + charge_of(GaussianKind(0.3, 0.3)), 1e-5) > here


def test_a_spend_costs_its_dearest_leaf():
    log = Log()
    log.append(Event("a", (GaussianKind(0.5, 0.5),), cells=((0,),)))
    log.append(Event("b", (Pure(0.3),), cells=((1,),)))
    for delta in (1e-9, 1e-2):
        each = [
            Accountant().epsilon(charge_of(kind), delta)
            for kind in (GaussianKind(0.5, 0.5), Pure(0.3))
        ]
        assert Accountant().epsilon(spend(log), delta) == max(each)
    assert Accountant().delta(spend(log), 0.2) == max(
        Accountant().delta(charge_of(kind), 0.2) for kind in (GaussianKind(0.5, 0.5), Pure(0.3))
    )


# ------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("charge", "relation", "named"),
    [
        (
            charge_of(ObjectiveGaussian(1.0, 0.1, True, 2), Concentrated(0.1)),
            "zero_out",
            r"concentrated \+ objective_gaussian under zero_out at delta=1e-06",
        ),
        (
            poisson(0.1, GaussianKind(2.0, 1.0)) + charge_of(Concentrated(0.1)),
            "replace_one",
            r"concentrated \+ sampled_gaussian under replace_one",
        ),
        (
            poisson(0.1, ObjectiveGaussian(1.0, 0.1, True)),
            "zero_out",
            "objective_gaussian on a Poisson batch under zero_out: release it on all records",
        ),
        (
            poisson(0.1, Concentrated(0.1), GaussianKind(1.0, 1.0)),
            "add_remove",
            r"concentrated \+ gaussian on a Poisson batch under add_remove",
        ),
        (poisson(0.1, Pure(1.0)), "replace_one", "pure on a Poisson batch under replace_one"),
        (
            poisson(0.1, BoundedRange(1.0)),
            "replace_one",
            "bounded_range on a Poisson batch under replace_one",
        ),
    ],
)
def test_what_has_no_theorem_is_refused_by_name(charge, relation, named):
    with pytest.raises(Refused, match=named):
        Accountant(relation).epsilon(charge, 1e-6)


def test_a_relation_is_named_or_refused():
    with pytest.raises(ValueError, match=r"one of zero_out, replace_one, add_remove; got 'swap'"):
        Accountant("swap")


# ------------------------------------------------------------------------------ calibration
def test_calibration_refuses_what_noise_cannot_help():
    with pytest.raises(Refused, match="no amount of noise reaches epsilon=1 at delta=0"):
        Accountant().calibrate(lambda m: charge_of(Pure(1 / m), Pure(1.5)), 1.0, 0.0)
    with pytest.raises(Refused, match="no amount of noise"):
        Accountant().calibrate(lambda m: charge_of(GaussianKind(1 / m, 1 / m)), 1.0, 0.0)


def test_calibration_does_not_depend_on_its_start():
    found = [
        Accountant().calibrate(
            lambda m: charge_of(GaussianKind(1 / m, 1 / m)), 1.0, 1e-6, start=start, tolerance=1e-6
        )
        for start in (1e-4, 1.0, 1e4)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=2e-6)
    assert found[0] == pytest.approx(4.225, abs=5e-4)


@pytest.mark.parametrize("kind", [Pure(0.3), GaussianKind(0.7, 0.7), BoundedRange(0.5)])
def test_numbers_that_are_none_are_refused(kind):
    """An epsilon at a delta of NaN would come out as zero."""
    accountant, charge = Accountant(), charge_of(kind)
    for delta in (math.nan, -1e-9, 1.5, math.inf):
        for ask in (accountant.epsilon, lambda c, d: accountant.holds(c, 1.0, d)):
            with pytest.raises(ValueError, match="delta must lie in"):
                ask(charge, delta)
    with pytest.raises(ValueError, match="epsilon must be a number"):
        accountant.delta(charge, math.nan)
