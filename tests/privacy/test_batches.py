"""Sampled Gaussian losses and their composition: against dp-accounting, and by listing batches."""

import itertools
import json
import math
from collections import Counter

import dp_accounting
import jsonschema
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from privopt import Budget
from privopt.privacy import Accountant, Certificate, Event, Log, Refused, Sampling
from privopt.privacy import certificate_schema as schema
from privopt.privacy.batches import batch_charge
from privopt.privacy.certificate import RUN
from privopt.privacy.convolve import epsilon_of, self_composed
from privopt.privacy.kinds import (
    FixedSizeGaussian,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
    gaussian_distribution,
    pure_distribution,
)
from privopt.privacy.profiles import gaussian_epsilon
from privopt.privacy.sampled import fixed_size_distribution, poisson_distribution
from privopt.privacy.spend import Step, spend

LIBRARY = {False: NeighboringRelation.REPLACE_SPECIAL, True: NeighboringRelation.REPLACE_ONE}


# ------------------------------------------------------------------------------ Poisson batches
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    ("rate", "mu", "step", "times"),
    [
        (0.01, 0.6, 1e-3, 1000),
        (0.3, 1.0, 1e-3, 10),
        (0.001, 1.27, 1e-3, 3000),
        (0.5, 3.0, 1e-2, 2),
        (0.02, 0.01, 1e-5, 1000),
        (0.9, 0.2, 1e-3, 20),
        (0.2, 12.0, 1e-1, 3),
    ],
)
def test_poisson_batches_are_those_of_dp_accounting(replaced, rate, mu, step, times):
    """The same connect-the-dots distribution, without its loops."""
    theirs = pld.from_gaussian_mechanism(
        1 / mu,
        sampling_prob=rate,
        value_discretization_interval=step,
        neighboring_relation=LIBRARY[replaced],
    )
    ours = poisson_distribution(rate, mu, step, replaced)
    for epsilon in (0.0, step, 7 * step, 0.1, 1.0):
        expected = theirs.get_delta_for_epsilon(epsilon)
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=1e-7, abs=1e-15)
    many, library = self_composed(ours, times), theirs.self_compose(times)
    for delta in (1e-3, 1e-6, 1e-9):
        expected = library.get_epsilon_for_delta(delta)
        # Ours counts the rounding error of the composition as lost.
        assert expected * (1 - 1e-6) <= epsilon_of(many, delta) <= expected * (1 + 1e-3)


# ------------------------------------------------------------------------------ composition
@pytest.mark.parametrize("times", [1, 2, 17, 400])
@pytest.mark.parametrize(
    "one",
    [
        gaussian_distribution(0.1, 1e-3),
        pure_distribution(0.1, 1e-2),
        poisson_distribution(0.05, 0.8, 1e-3, False),
        fixed_size_distribution(0.1, 1.0, 1e-3),
    ],
)
def test_composition_is_that_of_dp_accounting(one, times):
    ours, theirs = self_composed(one, times), one.self_compose(times)
    for delta in (0.3, 1e-2, 1e-5, 1e-8):
        expected = theirs.get_epsilon_for_delta(delta)
        assert epsilon_of(ours, delta) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_composition_of_large_losses_is_close_to_the_exact_profile():
    """At losses in the thousands dp-accounting's own search is off by one; this one is not."""
    many = self_composed(gaussian_distribution(3.0, 1e-2), 400)
    for delta in (0.3, 1e-2, 1e-5, 1e-8):
        exact = gaussian_epsilon(60.0, delta)
        assert exact <= epsilon_of(many, delta) <= exact * (1 + 1e-5)


def test_epsilon_is_read_off_on_the_safe_side():
    one = gaussian_distribution(1.0, 1e-3)
    for delta in (0.5, 0.1, 1e-3, 1e-6, 1e-12):
        epsilon = epsilon_of(one, delta)
        assert one.get_delta_for_epsilon(epsilon) <= delta
        assert epsilon == 0 or one.get_delta_for_epsilon(epsilon * (1 - 1e-6)) > delta
    assert epsilon_of(one, 1e-40) == math.inf
    # Every loss positive, every loss negative.
    assert epsilon_of(pure_distribution(2.0, 1.0), 0.0) == pytest.approx(2.0, rel=1e-8)
    assert epsilon_of(pure_distribution(2.0, 1.0), 0.99) == 0.0


# ------------------------------------------------------------------------------ fixed size
X = np.linspace(-1.0, 1.0, 6001)


def law(values, size, sigma, grid):
    batches = list(itertools.combinations(values, size))
    return sum(norm.pdf(grid, sum(b), sigma) for b in batches) / len(batches)


def true_delta(n, size, sigma, epsilon):
    """Worst pair of neighbours with contributions in [-1, 1], all batches listed."""
    grid = X * (size + 9 * sigma)
    width, worst = float(grid[1] - grid[0]), 0.0
    for others in itertools.product((-1.0, 0.0, 1.0), repeat=n - 1):
        for old, new in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0)):
            p, q = (law((value, *others), size, sigma, grid) for value in (old, new))
            worst = max(worst, float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0))) * width)
    return worst


@pytest.mark.parametrize(("n", "size"), [(2, 1), (3, 1), (4, 1), (3, 2)])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_one_batch_of_fixed_size_is_exact(n, size, sigma):
    """The claimed profile with the diameter 2/sigma is reached; with the radius it is false."""
    claimed = fixed_size_distribution(size / n, 2 / sigma, 1e-3)
    halved = fixed_size_distribution(size / n, 1 / sigma, 1e-3)
    for epsilon in (0.0, 0.2, 1.0):
        truth = true_delta(n, size, sigma, epsilon)
        assert claimed.get_delta_for_epsilon(epsilon) == pytest.approx(truth, rel=1e-4, abs=1e-9)
        assert halved.get_delta_for_epsilon(epsilon) < 0.7 * truth


@pytest.mark.parametrize(("n", "size"), [(2, 1), (4, 1)])
def test_what_sigma_means_in_the_renyi_accountant(n, size):
    """dp-accounting's fixed-size batches take the noise over the diameter, not over the radius:
    read as the radius, the claim is false for two records."""
    sigma, epsilon = 4.0, 0.5
    truth = true_delta(n, size, sigma, epsilon)

    def claimed(multiplier):
        accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        event = dp_accounting.GaussianDpEvent(multiplier)
        accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(n, size, event))
        return accountant.get_delta(epsilon)

    assert claimed(sigma) < 0.1 * truth
    assert claimed(sigma / 2) > truth


def test_fixed_size_with_vectors(exact):
    """Two coordinates: no placing of old, new and other records beats the antipodal one."""
    sigma, epsilon, size, n = 1.3, 0.3, 1, 3
    x, w = exact.rule(np.linspace(-11, 11, 25))
    a, b = np.meshgrid(x, x)
    weight = np.outer(w, w)

    def at(point):
        u, v = a - point[0] / sigma, b - point[1] / sigma
        return exact.density(u) * exact.density(v)

    places = [(math.cos(t), math.sin(t)) for t in np.linspace(0, 2 * math.pi, 13)[:-1]] + [(0, 0)]
    laws = {point: at(point) for point in places}
    old = places[0]
    found = {}
    for new, other in itertools.product(places, places):
        p, q = (laws[r] / n + laws[other] * (n - 1) / n for r in (old, new))
        found[new, other] = float(np.sum(weight * np.maximum(p - math.exp(epsilon) * q, 0)))
    claimed = fixed_size_distribution(size / n, 2 / sigma, 1e-3).get_delta_for_epsilon(epsilon)
    assert max(found.values()) == pytest.approx(claimed, rel=1e-3)
    assert max(found, key=lambda key: found[key]) == (places[6], places[6])


def test_fixed_size_needs_more_noise_than_poisson():
    """Under replace_one at the same rate; both are far below the unsampled release."""
    budget = Budget(1.0, 1e-6, "replace_one")
    accountant = Accountant("replace_one")
    spent = [
        accountant.epsilon(batch_charge(budget, design, 100, 2.0), 1e-6)
        for design in (Sampling(0.05), Sampling(0.05, fixed_size=True), Sampling())
    ]
    assert spent[0] < spent[1] < spent[2]


def test_a_fixed_batch_of_pure_releases():
    """epsilon' = log(1 + q (e^epsilon - 1)), with randomised response as the worst case."""
    rate, epsilon = 0.25, 1.2
    step = Step(Sampling(rate, fixed_size=True), (Pure(0.7), Pure(0.5)))
    (kind,) = step.resolve("replace_one")
    assert isinstance(kind, Pure)
    likely = 1 / (1 + math.exp(-epsilon))
    # Four records, one per batch, the other three equal to the new one.
    old, new = rate * likely + (1 - rate) * (1 - likely), 1 - likely
    assert kind.epsilon == pytest.approx(math.log(old / new), rel=1e-12)


@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
def test_fixed_size_is_accounted_under_replace_one_only(relation):
    for kind in (GaussianKind(1.0, 1.0), Pure(0.5)):
        charge = Counter({Step(Sampling(0.1, fixed_size=True), (kind,)): 3})
        with pytest.raises(Refused, match="fixed size"):
            Accountant(relation).epsilon(charge, 1e-6)
    assert FixedSizeGaussian(0.1, 1.0).distribution(0.01, relation) is None


def test_other_kinds_on_a_fixed_batch_are_refused():
    charge = Counter({Step(Sampling(0.1, fixed_size=True), (ObjectiveGaussian(1, 0.1, True),)): 1})
    with pytest.raises(Refused, match="objective_gaussian on a batch of fixed size"):
        Accountant("replace_one").epsilon(charge, 1e-6)


def test_a_certificate_names_the_design():
    log = Log()
    for view in range(1, 9):
        design = Sampling(0.1, fixed_size=view % 2 == 0)
        log.append(Event("Gaussian", (GaussianKind(0.5, 0.25),), view=view, sampling=design))
    budget = Budget(5.0, 1e-6, "replace_one")
    made = Certificate.of_run(RUN, log, spend(log), budget, solver="x", private=True)
    text = made.to_json()
    jsonschema.validate(json.loads(text), schema())
    assert Certificate.from_json(text) == made
    assert text.count('"fixed_size": true') == 1
    poisson = text.replace('"fixed_size": true,', "")
    assert Certificate.from_json(poisson).charges != made.charges
