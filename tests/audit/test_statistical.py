"""The statistical auditor on mechanisms whose epsilon is known exactly.

Closeness is tested at 95 %, where a bound may exceed the truth once in twenty audits; that the
truth is not exceeded is tested with a false alarm of 1e-6, and the share of false alarms itself at
the end.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from privopt import Budget, LogisticRegression
from privopt.audit import Claim, Pair, audit
from privopt.audit.bounds import epsilon_bound, gaussian_bound, rate_above, rate_below
from privopt.audit.entry_attacks import ATTACKED
from privopt.audit.statistical import attack, judge
from privopt.audit.table import ESTIMATORS, Row, audit_row, case, rows
from privopt.cli import app
from privopt.mechanisms import HOOK, Gate, Gaussian, Laplace, NormGamma
from privopt.noise import SeededSource
from privopt.oracle import CountRecords, Oracle, RowBounds
from privopt.oracle.sampling import GeometricSkips
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Certificate
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.certificate import RUN
from privopt.privacy.profiles import gaussian_delta, gaussian_mu
from privopt.privacy.spend import spend
from privopt.solvers import catalogue

pytestmark = pytest.mark.statistical
ONE = (np.ones((1, 1)), np.ones(1))
NONE = (np.full((1, 1), np.nan), np.full(1, np.nan))
PAIR = Pair("one record", ONE, NONE, (0,), (0,))
DELTA = 1e-5


def counting(mechanism, steps=1, relation="zero_out"):
    """Counts the one record, through an oracle and a gate."""
    norm = mechanism.accepts

    def run(X, y, source):
        oracle = Oracle.over(X, y, neighbouring=relation, bounds=RowBounds(1.0), source=source)
        gate = Gate(source, hook=HOOK.get())
        for _ in range(steps):
            gate.release(mechanism, oracle.everything().ask(CountRecords(norm)))
        return gate.log

    return run


def certificate(run, budget):
    log = run(*ONE, SeededSource(0))
    return Certificate.of_run(RUN, log, spend(log), budget, solver="test", private=False)


# ---------------------------------------------------------------- the bounds themselves
def test_rates_are_clopper_and_pearsons():
    for count, runs in [(0, 50), (7, 50), (50, 50), (3, 1000)]:
        known = stats.binomtest(count, runs).proportion_ci(0.9, "exact")
        assert rate_above(count, runs, 0.05) == pytest.approx(known.low)
        assert rate_below(count, runs, 0.05) == pytest.approx(known.high)


def test_bounds_invert_the_definitions():
    """At the exact rates of randomised response and of a shifted Gaussian they are exact."""
    for epsilon in (0.3, 1.0, 4.0):
        true = 1 / (1 + math.exp(-epsilon))
        assert epsilon_bound(true, 1 - true, 0.0) == pytest.approx(epsilon)
    for mu in (0.2, 1.0, 3.0):
        true, false = stats.norm.sf(0.4 - mu), stats.norm.sf(0.4)
        assert gaussian_bound(true, false) == pytest.approx(mu)
        # The best event for one epsilon makes the point bound exact too.
        epsilon, place = 1.0, 1.0 / mu + mu / 2
        rates = stats.norm.sf(place - mu), stats.norm.sf(place)
        assert epsilon_bound(*rates, gaussian_delta(epsilon, mu)) == pytest.approx(epsilon)


def test_a_claimed_curve_allows_what_it_claims():
    """The largest rate of a Gaussian claim is the exact one; read from points it is a bit more."""
    mu = 0.8
    exact = Claim.gaussian(mu, DELTA)
    run = counting(Gaussian(1 / mu))
    assert Claim.of(certificate(run, Budget(5.0, DELTA))).mu == pytest.approx(mu)
    epsilons = np.linspace(0.01, 5, 200)
    points = tuple((float(e), gaussian_delta(float(e), mu)) for e in epsilons)
    read = Claim(exact.epsilon, DELTA, "curve", points)
    false = np.linspace(0.01, 0.99, 60)
    assert (read.most(false) >= exact.most(false) - 1e-12).all()
    assert (read.most(false) <= exact.most(false) + 2e-3).all()
    # A rate right at the claim is the claimed epsilon, in either family.
    allowed = exact.most(false)
    assert exact.epsilon_equivalent(allowed, false) == pytest.approx(exact.epsilon, rel=1e-6)
    allowed = read.most(false)
    assert read.epsilon_equivalent(allowed, false) == pytest.approx(exact.epsilon, rel=1e-6)


# ---------------------------------------------------------------- known mechanisms
SURE = 1 - 1e-6
"""For statements that must not fail by chance: a false alarm of 1e-6."""
REACH = Sensitivity("l2", 1.0, 1.0)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("kind", ["laplace", "norm_gamma", "gaussian"])
def test_known_mechanisms_are_bounded_closely_and_never_exceeded(kind, epsilon):
    """20 000 runs a side: at 95 % the bound is above 60 % of the truth, at ``SURE`` below it."""
    mu = gaussian_mu(epsilon, DELTA)
    mechanism, claim = {
        "laplace": (Laplace(1 / epsilon), Claim.of(Budget(epsilon))),
        "norm_gamma": (NormGamma(1 / epsilon), Claim.of(Budget(epsilon))),
        "gaussian": (Gaussian(1 / mu), Claim.gaussian(mu, DELTA)),
    }[kind]

    def run(X, y, source):
        return mechanism.run(np.array([np.nansum(X)]), REACH, source)

    def ratio(released):
        x = float(released[0])
        return x if kind == "gaussian" else abs(x) - abs(x - 1)

    scores = attack(run, PAIR, runs=20_000, score=ratio)
    found = judge(*scores, claim, confidence=0.95)
    assert found.lower_bound > 0.6 * epsilon
    if kind == "gaussian":
        assert found.mu > 0.6 * mu
        assert found.point < found.lower_bound  # one point of the curve says less than the curve
    sure = judge(*scores, claim, confidence=SURE)
    assert not sure.refuted
    assert max(sure.lower_bound, sure.point) <= epsilon
    assert sure.ratio == pytest.approx(sure.lower_bound / sure.certified)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_releases_through_a_gate_are_scored_by_their_likelihood(steps, delta):
    """All releases together, at epsilon 4: several weak ones tell as much as one strong one."""
    epsilon, mu = 4.0, gaussian_mu(4.0, DELTA)
    mechanism = Laplace(steps / epsilon) if delta == 0 else Gaussian(math.sqrt(steps) / mu)
    run = counting(mechanism, steps)
    claim = Claim.of(certificate(run, Budget(epsilon * (1 + 1e-9), delta)))
    assert claim.family == ("pure" if delta == 0 else "gaussian")
    scores = attack(run, PAIR, runs=2500)
    assert judge(*scores, claim, confidence=0.95).ratio > 0.6
    assert not judge(*scores, claim, confidence=SURE).refuted


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_halved_noise_is_refuted(epsilon, delta):
    multiplier = 1 / epsilon if delta == 0 else 1 / gaussian_mu(epsilon, delta)
    kind = Laplace if delta == 0 else Gaussian
    claimed = certificate(counting(kind(multiplier)), Budget(epsilon * (1 + 1e-9), delta))
    found = audit(counting(kind(multiplier / 2)), PAIR, claimed, runs=3000)
    assert found.refuted
    assert found.lower_bound > 1.2 * epsilon
    assert "REFUTED" in str(found)


def test_a_function_of_the_users_own():
    """No privopt inside: numbers that it returns, in several parts, against a bare budget."""

    def run(X, y, source):
        noise = source.noise.laplace(size=3)
        return {"no": 0}["no"], [np.nansum(X) + noise[0], noise[1:]]

    found = audit(run, PAIR, Budget(1.0), runs=5000)
    assert 0.7 < found.lower_bound < 1.0
    assert not found.refuted
    assert audit(run, PAIR, Budget(0.5), runs=5000).refuted
    scored = audit(run, PAIR, Budget(1.0), runs=5000, score=lambda out: out[1][0])
    assert 0.7 < scored.lower_bound < 1.0
    with pytest.raises(TypeError, match="give score"):
        audit(lambda X, y, s: "text", PAIR, Budget(1.0), runs=20)


@pytest.mark.slow
def test_an_estimator_of_the_users_own():
    """An estimator is audited as it is: the source of noise goes in as its random state."""

    def run(X, y, source):
        model = LogisticRegression(
            2.0, classes=[-1, 1], nan_policy="empty", solver="objective_perturbation"
        )
        return model.set_params(random_state=source).fit(X, np.where(y > 0, 1, -1))

    X, y = np.zeros((6, 1)), np.ones(6)
    first, second = (X.copy(), y.copy()), (X.copy(), y.copy())
    first[0][0], first[1][0] = 1.0, -1.0
    second[0][0] = np.nan
    pair = Pair("contradiction", first, second, tuple(range(6)), tuple(range(6)))
    certified = run(*first, SeededSource(0)).privacy_
    found = audit(run, pair, certified, runs=200)
    assert not found.refuted
    assert 0 <= found.lower_bound < 2.0


def test_refusals():
    for options, text in [({"runs": 5}, "at least 20"), ({"confidence": 1.0}, "confidence")]:
        with pytest.raises(ValueError, match=text):
            audit(lambda X, y, s: 0.0, PAIR, Budget(1.0), **options)

    def sometimes(X, y, source):
        return counting(Gaussian(1.0), 1 + int(np.isfinite(X).all()))(X, y, source)

    with pytest.raises(ValueError, match="number of releases depends on data"):
        audit(sometimes, PAIR, Budget(1.0, DELTA), runs=20)


# ---------------------------------------------------------------- sampled batches, the whole curve
RATE, STEPS = 0.2, 5


def batches(X, y, source):
    """Gaussian sums over Poisson batches."""
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)
    gate = Gate(source, hook=HOOK.get())
    for _ in range(STEPS):
        view = oracle.poisson(RATE)
        gate.release(Gaussian(0.25), view.ask(CountRecords(), np.zeros(1)))
    return gate.log


def shuffled(self, count, rate, view):
    """A pass in a random order: each record is in exactly one batch of it."""
    if (view - 1) % STEPS == 0:
        self._orders = {0: self._source.coins.integers(STEPS, size=count)}
    return np.flatnonzero(self._orders[0] == (view - 1) % STEPS)


@pytest.mark.slow
def test_shuffled_batches_accounted_as_poisson_are_refuted_by_the_curve(monkeypatch):
    """The point (epsilon, delta) sees nothing, the curve does; honest batches are cleared."""
    claim = Claim.of(certificate(batches, Budget(100.0, DELTA)))
    scores = attack(batches, PAIR, runs=1000)
    assert judge(*scores, claim, confidence=0.95).ratio > 0.5
    assert not judge(*scores, claim, confidence=SURE).refuted
    monkeypatch.setattr(GeometricSkips, "choose", shuffled)
    broken = judge(*attack(batches, PAIR, runs=1000), claim, confidence=SURE)
    assert claim.family == "curve"
    assert broken.refuted
    assert broken.point < claim.epsilon


# ---------------------------------------------------------------- the table
@pytest.mark.slow
def test_the_table_has_every_solver():
    for relation in NEIGHBOURING:
        listed = rows(relation)
        assert {row.epsilon for row in listed} == {1.0, 4.0}
        if relation == "zero_out":
            assert {row.solver for row in listed} == {*catalogue(), *ESTIMATORS, *ATTACKED}
    with pytest.raises(ValueError, match="unknown solver or estimator"):
        rows(solver="gradient")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sorted(catalogue()), *ESTIMATORS])
def test_no_certificate_is_refuted(name):
    """A short audit of every solver, false alarm 1e-6 a row; ``make audit`` looks closer."""
    for row in rows(solver=name, epsilons=(4.0,)):
        found = audit_row(row, runs=60, confidence=SURE)
        assert not found.refuted
        assert found.lower_bound <= found.certified


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quantile(rank)", "prefix_sums", "evaluate"])
@pytest.mark.filterwarnings("ignore")
def test_no_certificate_of_another_way_in_is_refuted(name):
    """The quick ones; ``make audit`` attacks all."""
    row = rows(solver=name, epsilons=(4.0,))[-1]
    with np.errstate(all="ignore"):
        found = audit_row(row, runs=40, confidence=SURE)
    assert not found.refuted
    assert found.lower_bound <= found.certified


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_third_of_the_noise_of_running_sums_is_refuted(monkeypatch):
    from privopt.mechanisms import correlated

    honest = correlated.narrow_gaussian
    monkeypatch.setattr(correlated, "narrow_gaussian", lambda *given: honest(*given) // 3)
    (row,) = rows(solver="prefix_sums(blt)", epsilons=(4.0,))
    assert audit_row(row, runs=250, confidence=0.999).refuted


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_cases_are_neighbours_that_the_certificate_speaks_of(relation):
    for row in rows(relation, epsilons=(4.0,)):
        if row.solver in ATTACKED:
            continue
        _, pair, certified = case(row)
        assert certified.neighbouring == relation
        assert certified.epsilon <= 4 + 1e-8
        sizes = len(pair.first[0]) - len(pair.second[0])
        assert sizes == (1 if relation == "add_remove" else 0)


@pytest.mark.slow
def test_half_the_noise_of_a_solver_is_refuted(monkeypatch):
    """The table is not blind: output perturbation that draws half of what it declares."""
    from privopt.mechanisms import mask

    row = Row("output_perturbation", 4.0, DELTA)
    assert not audit_row(row, runs=1500, confidence=0.999).refuted
    honest = mask.discrete_gaussian
    monkeypatch.setattr(mask, "discrete_gaussian", lambda source, size: honest(source, size) // 2)
    assert audit_row(row, runs=1500, confidence=0.999).refuted


def test_the_command():
    shown = CliRunner().invoke(
        app,
        ["audit", "output_perturbation", "--runs", "200", "--workers", "1"],
        env={"COLUMNS": "120"},
    )
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("stands") + shown.output.count("no power") == 4
    assert "hold together with 95 %" in shown.output
    for arguments in (["magic"], ["--runs", "3"], ["--confidence", "2"], ["--repeat", "0"]):
        assert CliRunner().invoke(app, ["audit", *arguments]).exit_code == 2
    taken = ["bolt_on_sgd", "--neighbouring", "add_remove"]
    assert CliRunner().invoke(app, ["audit", *taken]).exit_code == 2


def test_the_command_fails_when_a_certificate_is_refuted(monkeypatch):
    from privopt.mechanisms import output_perturbation as module

    honest = module.norm_gamma
    monkeypatch.setattr(module, "norm_gamma", lambda source, s, size: honest(source, s / 9, size))
    arguments = ["output_perturbation", "--runs", "400", "--workers", "1"]
    shown = CliRunner().invoke(app, ["audit", *arguments, "--epsilon", "1"])
    assert shown.exit_code == 1
    assert "A certificate is wrong" in shown.output


# ---------------------------------------------------------------- false alarms
@pytest.mark.slow
def test_false_alarms_are_rarer_than_stated():
    """1200 audits of correct mechanisms at 95 %: at most 5 % may be wrong, which is 60; the
    probability of more than 90 false alarms would be below 1e-4 even at 5 %."""
    generator = np.random.default_rng(0)
    mu, epsilon, n = 0.9, 1.0, 2000
    alarms = {"gaussian": 0, "laplace": 0, "response": 0}
    response = Claim.of(Budget(epsilon))
    for _ in range(400):
        shifted = generator.standard_normal((2, n)) + np.array([[mu], [0.0]])
        found = judge(*shifted, Claim.gaussian(mu, DELTA), confidence=0.95)
        alarms["gaussian"] += found.refuted or found.point > found.certified
        noisy = generator.laplace(size=(2, n)) + np.array([[1.0], [0.0]])
        ratio = np.abs(noisy) - np.abs(noisy - 1)
        found = judge(*np.round(ratio, 9), response, confidence=0.95)
        alarms["laplace"] += found.refuted or found.point > found.certified
        # Randomised response sits on the claim itself: the worst case for an auditor.
        keep = 1 / (1 + math.exp(-epsilon))
        coins = generator.random((2, n)) < np.array([[keep], [1 - keep]])
        found = judge(*coins.astype(float), response, confidence=0.95)
        alarms["response"] += found.refuted or found.point > found.certified
    assert sum(alarms.values()) <= 90
    assert max(alarms.values()) <= 30


def test_an_audit_that_could_have_seen_nothing_says_so():
    """Scores that are the same on both sides, and a claim beyond what the runs can reach, have no
    power; a Gaussian of the claimed size has."""
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((2, 4000))
    blind = judge(noise[0], noise[1], Claim.gaussian(1.0, 1e-5), confidence=0.95)
    assert blind.verdict == "no power"
    assert blind.smallest_error > 2
    assert "no power" in str(blind)
    near = judge(noise[0] + 1.0, noise[1], Claim.gaussian(1.0, 1e-5), confidence=0.95)
    assert near.verdict == "stands"
    assert 1.0 < near.smallest_error < 1.5
    few = judge(np.ones(30), np.zeros(30), Claim.of(Budget(8.0)), confidence=0.95)
    assert few.verdict == "no power"
    assert few.smallest_error == math.inf
    wrong = judge(noise[0] + 2.0, noise[1], Claim.gaussian(1.0, 1e-5), confidence=0.95)
    assert wrong.verdict == "REFUTED"


def test_the_smallest_error_is_one_that_is_seen():
    """A loss that is larger by a little more than the stated factor is refuted nearly always."""
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((2, 4000))
    claim = Claim.gaussian(0.5, 1e-5)
    factor = judge(noise[0] + 0.5, noise[1], claim, confidence=0.95).smallest_error
    fresh = generator.standard_normal((20, 2, 4000))
    seen = [
        judge(one + 1.3 * factor * 0.5, other, claim, confidence=0.95).refuted
        for one, other in fresh
    ]
    assert sum(seen) >= 18
