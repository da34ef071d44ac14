"""Privacy filters: closed forms, an adaptive adversary computed exactly, integer amounts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from privopt.privacy import Accountant, Budget, Sampling, Spend, charge_of
from privopt.privacy.filters import (
    DELTA_UNITS,
    EPSILON_UNITS,
    SQUARE_UNITS,
    Cost,
    Remaining,
    gaussian_bound,
    gaussian_square,
    rest,
    spent,
    square_beside,
)
from privopt.privacy.kinds import BoundedRange, Concentrated, GaussianKind, ObjectiveGaussian, Pure
from privopt.privacy.profiles import gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.privacy.spend import Step

BUDGET = Budget(3.0, 1e-6)


def cost(*kinds, budget=BUDGET, count=1):
    return Cost.of(Spend({(): charge_of(*kinds, count=count)}), budget)


def two_point_delta(p, q, t):
    """H_(e^t) of a coin of bias p against one of bias q."""
    return max(p - math.exp(t) * q, 0.0) + max(1 - p - math.exp(t) * (1 - q), 0.0)


# ---------------------------------------------------------------- Gaussian pairs that dominate
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
def test_a_pure_release_is_dominated_tightly(epsilon):
    mu = gaussian_bound(Pure(epsilon))
    p = float(expit(epsilon))
    gaps = [
        gaussian_delta(t, mu) - two_point_delta(p, 1 - p, t) for t in np.linspace(0, epsilon, 4001)
    ]
    assert -1e-12 < min(gaps) < 1e-6
    less = 0.999 * mu
    assert any(
        gaussian_delta(t, less) < two_point_delta(p, 1 - p, t) - 1e-9
        for t in np.linspace(0, epsilon, 4001)
    )


@pytest.mark.parametrize("eta", [0.02, 0.5, 2.0, 6.0])
def test_a_selection_is_dominated_tightly_wherever_its_range_lies(eta):
    """Every two-point loss of range eta, in both directions; the middle one is the worst."""
    mu = gaussian_bound(BoundedRange(eta))
    worst = math.inf
    for x in np.linspace(-eta - 4, 4, 161):
        p, q = float(expit(x + eta)), float(expit(x))
        for t in np.linspace(0, eta, 101):
            for one, other in ((p, q), (q, p)):
                gap = gaussian_delta(t, mu) - two_point_delta(one, other, t)
                assert gap > -1e-12
                worst = min(worst, gap)
    assert mu == pytest.approx(2 * ndtri(expit(eta / 2)), rel=1e-6)
    assert worst < 1e-4


def test_the_probit_of_the_logistic_function_is_concave():
    """What the worst place of a range rests on."""
    x = np.linspace(0.0, 30.0, 3001)
    slopes = np.diff(-ndtri(expit(-x)))
    assert (np.diff(slopes) < 0).all()


def test_what_has_no_gaussian_bound():
    sampled: Counter = Counter({Step(Sampling(0.1), (GaussianKind(1.0, 1.0),)): 3})
    assert gaussian_square(sampled, "zero_out") is None
    for kind in (Concentrated(0.1), ObjectiveGaussian(0.1, 0.1, True)):
        assert gaussian_square(charge_of(kind), "zero_out") is None
        assert cost(kind).square is None
        assert not cost(kind).exact


# ---------------------------------------------------------------- an adaptive adversary
def adversary_delta(first_mu, options, epsilon):
    """The delta of: a Gaussian release, then the option that hurts most for the answer seen.

    Each option is a profile t -> delta(t). Exact up to quadrature: given loss l of the first
    release, the second one contributes its profile at epsilon - l.
    """

    def integrand(z):
        loss = first_mu**2 / 2 + first_mu * z
        return stats.norm.pdf(z) * max(option(epsilon - loss) for option in options)

    return integrate.quad(integrand, -9, 9, limit=400, epsabs=1e-14)[0]


def pure_profile(epsilon):
    p = float(expit(epsilon))
    return lambda t: two_point_delta(p, 1 - p, t)


def test_the_filter_withstands_who_chooses_after_seeing():
    """Gaussian first, then Gaussian or pure noise as the answer suggests.

    A filter that asks the accountant whether the union keeps the budget, sequence by sequence, is
    broken by this user; the Gaussian filter is not, and wastes nothing on the Gaussian sequence.
    """
    epsilon, delta = 1.0, 0.05
    first = 0.6 * gaussian_mu(epsilon, delta)
    left = Remaining.whole(Budget(epsilon, delta), "gaussian").after(
        cost(GaussianKind(first, first), budget=Budget(epsilon, delta))
    )
    second = math.sqrt(left.square / SQUARE_UNITS)
    admitted = brentq(lambda e: gaussian_bound(Pure(e)) - second, 1e-6, 5.0)
    gaussian = lambda t: gaussian_delta(t, second)  # noqa: E731
    ours = adversary_delta(first, (gaussian, pure_profile(admitted)), epsilon)
    assert ours <= delta * (1 + 1e-6)
    assert ours >= delta * (1 - 1e-4)

    def alone(e):
        return adversary_delta(first, (pure_profile(e),), epsilon)

    fitting = brentq(lambda e: alone(e) - delta, 1e-3, 5.0)  # its union has exactly delta
    assert alone(fitting) == pytest.approx(delta, rel=1e-6)
    assert adversary_delta(first, (gaussian, pure_profile(fitting)), epsilon) > 1.02 * delta


# ---------------------------------------------------------------- amounts
def test_gaussian_fits_add_up_as_the_accountant_says():
    left = Remaining.whole(BUDGET, "gaussian")
    union: Counter = Counter()
    for k in range(1, 8):
        charge = charge_of(GaussianKind(0.05 * k, 0.05 * k), count=k)
        union.update(charge)
        found = left.after(Cost.of(Spend({(): charge}), BUDGET))
        if found is None:
            break
        left = found
        epsilon, delta = spent(BUDGET, left)
        assert delta == BUDGET.delta
        assert epsilon == pytest.approx(Accountant().epsilon(union, BUDGET.delta), rel=1e-6)
        assert epsilon >= Accountant().epsilon(union, BUDGET.delta) * (1 - 1e-9)
        assert epsilon <= BUDGET.epsilon
    else:
        raise AssertionError("the budget never ended")
    assert Accountant().epsilon(union, BUDGET.delta) > BUDGET.epsilon


def test_one_fit_may_take_everything():
    mu = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    more = 1.001 * mu
    for whole, beyond in (
        (GaussianKind(mu, mu), GaussianKind(more, more)),
        (Pure(3.0), Pure(3.001)),
    ):
        for composition in ("auto", "basic"):
            left = Remaining.whole(BUDGET, composition)
            assert left.after(cost(whole)) is not None, (whole, composition)
            assert left.after(cost(beyond)) is None


def test_basic_adds_epsilons_and_deltas():
    left = Remaining.whole(BUDGET, "basic")
    mu = gaussian_mu(0.5, 1e-7)
    each = cost(GaussianKind(mu, mu), budget=Budget(0.5, 1e-7))
    for _ in range(5):
        left = left.after(each)
    assert spent(BUDGET, left)[0] == pytest.approx(2.5, rel=1e-6)
    assert spent(BUDGET, left)[1] == pytest.approx(5e-7, rel=1e-6)
    pure = cost(Pure(0.25), budget=Budget(0.25, 1e-7))
    assert pure.delta == 0, "a pure fit takes no delta"
    assert left.after(pure).after(pure).after(pure) is None


def test_auto_turns_gaussian_once_and_only_for_gaussian_noise():
    left = Remaining.whole(BUDGET, "auto").after(cost(Pure(1.0)))
    assert not left.gaussian
    left = left.after(cost(ObjectiveGaussian(0.05, 0.1, True), budget=Budget(0.6, 1e-7)))
    assert not left.gaussian
    room = rest(BUDGET, left)
    left = left.after(cost(GaussianKind(0.01, 0.01)))
    assert left.gaussian
    assert left.square < SQUARE_UNITS * gaussian_mu(*room) ** 2
    assert left.after(cost(ObjectiveGaussian(0.05, 0.1, True))) is None  # no Gaussian known yet
    assert left.after(cost(Pure(0.1))) is not None


def test_the_passage_leaves_what_the_rest_allows():
    """(e, d) basic first, then a Gaussian account of the remaining (epsilon, delta)."""
    left = Remaining.whole(BUDGET, "auto").after(cost(Pure(2.0)))
    kept = BUDGET.delta / 20
    mu = gaussian_mu(1.0, (BUDGET.delta - kept) / (1 - kept))
    assert not left.turns(cost(GaussianKind(1.0001 * mu, mu)))
    assert rest(BUDGET, left.after(cost(GaussianKind(0.9999 * mu, mu))))[0] < 0.02


def test_refunds():
    whole = Remaining.whole(BUDGET, "basic")
    one = cost(Pure(0.2))
    assert whole.after(one).refunded(one, was_gaussian=False) == whole
    gaussian = Remaining.whole(BUDGET, "gaussian")
    assert gaussian.after(one).refunded(one, was_gaussian=True) == gaussian
    # paid before the passage, given back after it: lost, never counted twice
    turned = Remaining.whole(BUDGET, "auto").after(one).after(cost(GaussianKind(0.1, 0.1)))
    assert turned.refunded(one, was_gaussian=False) == turned


def test_sampled_fits_are_charged_with_their_own_epsilon():
    charge: Counter = Counter({Step(Sampling(0.05), (GaussianKind(1.0, 1.0),)): 10})
    epsilon = Accountant().epsilon(charge, 1e-6)
    found = Cost.of(Spend({(): charge}), Budget(1.01 * epsilon, 1e-6))
    assert found.epsilon >= epsilon * EPSILON_UNITS
    assert found.square is None


LOSSES = {
    "sampled": Counter({Step(Sampling(0.05), (GaussianKind(0.8, 0.8),)): 40}),
    "rare": Counter({Step(Sampling(0.01), (GaussianKind(1.2, 1.2),)): 30}),
    "dense": Counter({Step(Sampling(0.7), (GaussianKind(0.2, 0.2),)): 21}),
    "objective": charge_of(ObjectiveGaussian(0.2, 0.1, True)),
    "beside": charge_of(Pure(0.3)) + Counter({Step(Sampling(0.1), (GaussianKind(0.5, 0.5),)): 9}),
}


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("name", list(LOSSES))
def test_a_gaussian_beside_a_part_of_delta_lies_above_other_losses(name, neighbouring):
    """At epsilons between those it was made from; and not much above."""
    charge, accountant = LOSSES[name], Accountant(neighbouring)
    aside = 1e-9
    square = square_beside(charge, neighbouring, aside)
    mu = math.sqrt(square)
    end, tight = accountant.epsilon(charge, aside), 0.0
    for epsilon in np.linspace(0.0, 1.2 * end, 23):
        allowed = aside + (1 - aside) * gaussian_delta(epsilon, mu)
        found = accountant.delta(charge, epsilon)
        assert found <= allowed * (1 + 2e-3) + 1e-12
        tight = max(tight, found / allowed)
    assert tight > 0.5
    # What a single accountant says of two such fits is less than the account takes.
    twice = accountant.epsilon(Counter({k: 2 * n for k, n in charge.items()}), 1e-6)
    assert twice <= gaussian_epsilon(math.sqrt(2 * square), 1e-6 - 2 * aside) * (1 + 1e-9)


def test_a_gaussian_account_takes_sampled_steps_and_objective_perturbation():
    whole = Remaining.whole(Budget(6.0, 1e-6), "auto")
    left = whole.after(cost(GaussianKind(0.01, 0.01)))
    assert left.aside == left.delta // 20
    for charge in LOSSES.values():
        epsilon = Accountant().epsilon(charge, 1e-7)
        budget = Budget(epsilon * 1.001, 1e-7)
        planned = Spend({(): charge})
        assert Cost.of(planned, budget).square is None
        price = Cost.of(planned, budget, gaussian=True)
        assert price.covers(charge, "zero_out")
        assert not replace(price, square=int(price.square * 0.99)).covers(charge, "zero_out")
        after = left.after(price)
        assert after is not None
        assert after.square == left.square - price.square
        assert after.aside == left.aside - price.aside
        assert after.refunded(price, was_gaussian=True) == left
        left = after
    assert replace(left, aside=0).after(price) is None  # nothing is kept for it any more


def test_the_parts_of_a_gaussian_account_make_up_its_budget():
    """aside + (1 - aside) delta_G(epsilon; mu) = delta: the pair is dominated by the budget."""
    left = Remaining.whole(BUDGET, "auto").as_gaussian()
    aside, mu = left.aside / DELTA_UNITS, math.sqrt(left.square / SQUARE_UNITS)
    whole = aside + (1 - aside) * gaussian_delta(BUDGET.epsilon, mu)
    assert whole <= BUDGET.delta * (1 + 1e-6)
    assert whole == pytest.approx(BUDGET.delta, rel=1e-6)


@given(st.floats(1e-6, 50.0), st.integers(1, 9))
def test_costs_are_rounded_up(epsilon, parts):
    """Never below what they stand for, by at most a unit."""
    found = cost(*[Pure(epsilon / parts)], count=parts, budget=Budget(epsilon)).epsilon
    exact = epsilon / parts * parts * EPSILON_UNITS
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-12) + 2


def test_an_infinite_or_huge_cost_is_never_admitted():
    everything = Remaining.whole(Budget(1e12, 0.5), "basic")
    assert everything.after(cost(GaussianKind(1.0, 1.0), budget=Budget(1.0))) is None
    assert everything.after(cost(Pure(1e9), budget=Budget(1e9))) is None


@pytest.mark.parametrize(
    ("budget", "composition", "words"),
    [(Budget(1.0), "gaussian", "delta > 0"), (BUDGET, "zcdp", "must be one of")],
)
def test_bad_compositions(budget, composition, words):
    with pytest.raises(ValueError, match=words):
        Remaining.whole(budget, composition)


def test_cells_pay_for_the_worst():
    """Disjoint parts of the data: the dearest part counts."""
    spend = Spend(
        {(0,): charge_of(GaussianKind(0.3, 0.3)), (1,): charge_of(GaussianKind(0.1, 0.1))}
    )
    found = Cost.of(spend, BUDGET)
    assert found.square == pytest.approx(0.09 * SQUARE_UNITS, rel=1e-9)
    assert found.epsilon == pytest.approx(gaussian_epsilon(0.3, 1e-6) * EPSILON_UNITS, rel=1e-9)
