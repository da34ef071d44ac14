"""The checks that kill mutants, in the form the test-suite has them, on small cases."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from scipy import integrate, stats
from scipy.special import softmax

import privopt.privacy.certificate as certificate_module
from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.audit.bounds import Claim
from privopt.audit.replay import in_units
from privopt.audit.statistical import attack, judge
from privopt.audit.table import Row, case
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, WholeSpace
from privopt.losses import CappedExponential, Huber, Logistic, Squared
from privopt.mechanisms import Gate
from privopt.mechanisms.maps import VertexScores
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds, RowMap
from privopt.oracle.mapped import MappedRows
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, Certificate, Event, Log, Sampling, spend
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
)
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.spend import Step
from privopt.solvers import catalogue

from .mutant import Check

PROBLEMS = (
    Problem(Logistic(), L2Ball(3.0)),
    Problem(Logistic(), L1Ball(2.0)),
    Problem(Huber(0.5), Box(-1.0, 2.0)),
    Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Huber(0.2), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Squared(), L2Ball(1.5), intercept=0.5),
)


def problem_of(name: str, budget: Budget) -> Problem:
    for problem in PROBLEMS:
        facts = Facts(problem, 60, problem.dimension(4), budget.neighbouring)
        if catalogue()[name].refuse(facts, budget) is None:
            return problem
    raise LookupError(f"no problem for {name}")


def public(
    name: str, relation: str, delta: float, seed: int = 0, **choices: Any
) -> tuple[Any, Problem]:
    """A run of a solver, as ``solve`` makes it public."""
    budget = Budget(1.0, delta, relation)  # type: ignore[arg-type]
    problem = choices.pop("problem", None) or problem_of(name, budget)
    settings = {**catalogue()[name].specimen.short, **choices}

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        result = solve(
            problem,
            sp.csr_array(X) if settings.get("mode", "dense") != "dense" else X,
            y,
            budget=budget,
            solver=name,
            n_public=60,
            random_state=seed,
            **settings,
        )
        return result.theta, result.certificate.to_json(), result.plan.settings

    return run, problem


# ---------------------------------------------------------------- record and replay
@cache
def replayed(name: str, relation: str = "zero_out", delta: float = 0.0, **choices: Any) -> Check:
    """Hostile neighbours: same calls, same public arguments, movements within the sensitivity."""

    def check() -> str | None:
        run, problem = public(name, relation, delta, **choices)
        pairs = hostile_pairs(relation, classification=problem.loss.classification)  # type: ignore[arg-type]
        for pair in pairs:
            with np.errstate(all="ignore"):
                found = replay(run, pair)
            if found:
                return f"{found[0]} ({pair.name})"
        return None

    return check


# ---------------------------------------------------------------- the law of the noise
@cache
def law(
    name: str, delta: float, relation: str = "zero_out", runs: int = 60, **choices: Any
) -> Check:
    """The noise that was drawn follows what the log declares; false alarm 1e-7."""

    def check() -> str | None:
        generator = np.random.default_rng(0)
        X = generator.standard_normal((150, 4))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        # Labels without a signal keep minimisers inside the domain: on its boundary the noise of
        # objective perturbation cannot be read off.
        y = np.where(generator.random(150) < 0.5, 1.0, -1.0)
        tapes = []
        for seed in range(runs):
            run, _ = public(name, relation, delta, seed, **choices)
            tapes.append(record(run, (X, y))[1])
        value = noise_p_value(tapes)
        return f"noise beside its declared law, p={value:.0e}" if value < 1e-7 else None

    return check


@cache
def vertices_drawn(scale: float, stale: bool = False) -> Check:
    """A sampler that does not compute all scores draws by them all the same; false alarm 1e-7.

    Columns of all sizes, a path of a few steps, 6,000 draws at each of them."""

    def check() -> str | None:
        generator, p, ball = np.random.default_rng(0), 6, L1Ball(4.0)
        X = generator.uniform(-1, 1, (60, p)) * (generator.random((60, p)) < np.linspace(1, 0.1, p))
        y, bounds = np.sign(X[:, 0] + 0.2), RowBounds(math.inf, 0.0, 1.0)
        view = Oracle.over(
            sp.csr_array(X), y, neighbouring="zero_out", bounds=bounds, source=SilentSource()
        ).everything()
        query = CoordinateClippedGradient(Logistic(), 1.0, bounds, p)
        path, source = view.follow(query, np.zeros(p), stale=stale), SeededSource(1)
        draw = path.gradient().through(VertexScores(ball, p)).open(KEY)
        for t, k in enumerate((0, 1, 5, 0)):
            try:
                drawn = np.array([draw.choose(scale, source) for _ in range(6000)])
            except AssertionError as error:
                return str(error)
            expected = 6000 * softmax(draw.scores() / scale)
            counts, best = np.bincount(drawn, minlength=2 * p), int(np.argmax(expected))
            kept = (expected >= 5) & (np.arange(2 * p) != best)  # the rest joins the likeliest
            seen = np.append(counts[kept], counts[~kept].sum())
            value = stats.chisquare(seen, np.append(expected[kept], expected[~kept].sum())).pvalue
            if value < 1e-7:
                return f"draws beside the law of the scores, p={value:.0e}"
            path.move(k, -4.0 if t % 2 else 4.0, 2 / (t + 2))
        return None

    return check


def stale_by_itself() -> str | None:
    """Many records whose margins shrink a little, and one whose margin shrinks far: taking it away
    moves no other record's slope."""
    rows = np.zeros((3001, 3))
    rows[:, 0] = np.append(np.full(3000, 0.14), 1.0)
    bounds, found = RowBounds(math.inf, 0.0, 1.0), []
    query = CoordinateClippedGradient(Logistic(), 1.0, bounds, 3)
    for last in (1.0, 0.0):
        X = sp.csr_array(np.vstack([rows[:-1], last * rows[-1:]]))
        view = Oracle.over(
            X, np.ones(3001), neighbouring="zero_out", bounds=bounds, source=SilentSource()
        ).everything()
        path = view.follow(query, np.zeros(3), stale=True)
        for k in range(3):
            path.move(k, 2.0, 0.3)
        found.append(path.gradient().open(KEY).gradient())
    moved = float(np.abs(found[0] - found[1]).max())
    return f"one record moved the sum by {moved:.2g}" if moved > 1 + 1e-9 else None


def unseen() -> str | None:
    """The streams of a source stand where they stood, however often a sampler drew."""
    source = SeededSource(3)
    before = str(source.noise.bit_generator.state)
    X, budget = np.eye(40, 4), Budget(1.0, 1e-5)
    problem = Problem(Logistic(), L1Ball(2.0), column_bounds=1.0)
    solve(
        problem,
        sp.csr_array(X),
        np.ones(40),
        budget=budget,
        solver="frank_wolfe",
        random_state=source,  # type: ignore[arg-type]
        n_iter=5,
        mode="exact",
    )
    return None if str(source.noise.bit_generator.state) == before else "draws can be counted"


@cache
def fresh(name: str, delta: float) -> Check:
    """No two releases of a run, and of two runs, share their noise."""

    def check() -> str | None:
        X, y = hostile_pairs("zero_out")[18].first
        seen: list[float] = []
        for seed in (0, 1):
            run, _ = public(name, "zero_out", delta, seed)
            for release in record(run, (X, y))[1].releases:
                if not isinstance(release.result, np.ndarray):
                    continue
                held = isinstance(release.payload, np.ndarray)
                before = in_units(release.payload, release.sensitivity) if held else 0.0
                seen.append(float(np.round((release.result - before).flat[0], 12)))
        return "the same noise twice" if len(set(seen)) < len(seen) else None

    return check


# ---------------------------------------------------------------- what was logged
@cache
def logged(name: str, delta: float, relation: str = "zero_out", **choices: Any) -> Check:
    """Every value that left is in the certificate, which is within the budget; otherwise the run
    is refused. The tape at the door counts what left."""

    def check() -> str | None:
        X, y = hostile_pairs(relation)[18].first  # type: ignore[arg-type]
        run, _ = public(name, relation, delta, **choices)
        try:
            (_, text, _), tape = record(run, (X, y))
        except Refused as refusal:
            return f"refused: {refusal}"
        certificate = Certificate.from_json(text)
        if certificate.releases != len(tape.releases):
            return f"{len(tape.releases)} values left, {certificate.releases} are certified"
        left = Log()
        for release in tape.releases:
            left.append(release.event)
        spent = Accountant(relation).epsilon(spend(left), delta)  # type: ignore[arg-type]
        if spent > certificate.epsilon * (1 + 1e-9):
            return f"what left costs {spent:.3g}, certified is {certificate.epsilon:.3g}"
        return None

    return check


def within_budget() -> str | None:
    """Whatever is calibrated stays within its target, and what is printed is not below it."""
    for epsilon in (0.31, 1.0, 3.7):
        mu = gaussian_mu(epsilon, 1e-5)
        if _gaussian_delta(epsilon, mu) > 1e-5 * (1 + 1e-6):
            return "a calibrated mu is over its target"
        accountant = Accountant()
        found = accountant.calibrate(
            lambda m: charge_of(GaussianKind(1 / m, 1 / m), count=3), epsilon, 1e-5
        )
        if _gaussian_delta(epsilon, math.sqrt(3) / found) > 1e-5 * (1 + 1e-6):
            return "calibrated noise is over its target"
        if float(certificate_module.round_up(epsilon * 1.00001)) < epsilon * 1.00001:
            return "an epsilon is printed too small"
    return None


# ---------------------------------------------------------------- closed forms of the accountant
def _gaussian_delta(epsilon: float, mu: float) -> float:
    """By integration of the definition, not by the library's formula."""

    def excess(x: float) -> float:
        return max(stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x), 0.0)

    edge = epsilon / mu + mu / 2
    return integrate.quad(excess, edge, edge + 12, epsabs=1e-14)[0]


@cache
def _exact_epsilon(delta_at: Any, delta: float, *parameters: float) -> float:
    """Smallest epsilon of an exact profile; computed once, for it does not use the library."""
    low, high = 0.0, 60.0
    for _ in range(36):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle, *parameters) > delta else (low, middle)
    return low


def _sampled_delta(epsilon: float, rate: float, mu: float) -> float:
    def excess(x: float) -> float:
        base = stats.norm.pdf(x)
        mixed = (1 - rate) * base + rate * stats.norm.pdf(x, mu)
        return max(mixed - math.exp(epsilon) * base, 0.0)

    return integrate.quad(excess, -8, 12, limit=400, points=[0.0, mu])[0]


def _responses_delta(epsilon: float, each: float, count: int) -> float:
    """Randomised response, composed: a binomial sum."""
    keep = 1 / (1 + math.exp(-each))
    total = 0.0
    for k in range(count + 1):
        first = math.comb(count, k) * keep**k * (1 - keep) ** (count - k)
        second = math.comb(count, k) * (1 - keep) ** k * keep ** (count - k)
        total += max(first - math.exp(epsilon) * second, 0.0)
    return total


def _linear_delta(epsilon: float, mu: float, c: float) -> float:
    """Objective perturbation of a record whose slope is L on one side and whose curvature sits
    there too: its loss reaches c + mu^2/2 + mu Z, so no profile may lie below this one."""
    return _gaussian_delta(epsilon - c, mu) if epsilon > c else 1 - math.exp(epsilon - c)


def _folded_delta(epsilon: float, mu: float) -> float:
    def excess(z: float) -> float:
        loss = mu**2 / 2 + mu * z
        return 2 * stats.norm.pdf(z) * max(1 - math.exp(min(epsilon - loss, 0.0)), 0.0)

    return integrate.quad(excess, max((epsilon - mu**2 / 2) / mu, 0.0), 14, epsabs=1e-14)[0]


def accounted() -> str | None:
    """The accountant is never below what direct integration of small cases gives."""
    delta = 1e-4
    cases: list[tuple[str, Any, float, str]] = [
        ("one Gaussian", charge_of(GaussianKind(0.7, 0.7)), 0.7, "gaussian"),
        ("nine Gaussians", charge_of(GaussianKind(0.3, 0.3), count=9), 0.9, "gaussian"),
        (
            "two kinds of Gaussians",
            charge_of(GaussianKind(0.6, 0.6)) + charge_of(GaussianKind(0.8, 0.8)),
            1.0,
            "gaussian",
        ),
        ("zCDP", charge_of(Concentrated(0.32)), 0.8, "gaussian"),
    ]
    for name, charge, mu, _ in cases:
        truth = _exact_epsilon(_gaussian_delta, delta, mu)
        if Accountant().epsilon(charge, delta) < truth * (1 - 1e-6):
            return f"{name}: below {truth:.4g}"
    sampled = Counter({Step(Sampling(0.3), (GaussianKind(1.1, 1.1),)): 1})
    truth = _exact_epsilon(_sampled_delta, delta, 0.3, 1.1)
    if Accountant().epsilon(sampled, delta) < truth * (1 - 1e-5):
        return f"one Poisson batch: below {truth:.4g}"
    nested = Counter({Step(Sampling(0.3), (GaussianKind(0.9, 0.9), GaussianKind(1.2, 1.2))): 1})
    truth = _exact_epsilon(_sampled_delta, delta, 0.3, 1.5)
    if Accountant().epsilon(nested, delta) < truth * (1 - 1e-5):
        return f"two questions to one batch: below {truth:.4g}"
    for kind in (Pure(0.4), BoundedRange(0.4)):
        if Accountant().epsilon(charge_of(kind, count=5), 0.0) < 2.0 * (1 - 1e-9):
            return f"five times {kind.name}, pure: below 2"
    truth = _exact_epsilon(_responses_delta, delta, 0.4, 5)
    if Accountant().epsilon(charge_of(Pure(0.4), count=5), delta) < truth * (1 - 1e-6):
        return f"five randomised responses: below {truth:.4g}"
    objective = ObjectiveGaussian(0.8, 0.3, True)
    truth = _exact_epsilon(_linear_delta, delta, 0.8, 0.3)
    if Accountant().epsilon(charge_of(objective), delta) < truth * (1 - 1e-6):
        return f"objective perturbation: below {truth:.4g}"
    for signed in (True, False):
        kind = ObjectiveGaussian(0.8, 0.0, signed)
        truth = _exact_epsilon(_gaussian_delta, delta, 1.6)
        if Accountant("replace_one").epsilon(charge_of(kind), delta) < truth * (1 - 1e-6):
            return f"objective perturbation, one record replaced: below {truth:.4g}"
    # A slope that may change its sign: the absent record's loss is mu^2/2 + mu |Z|.
    kind = ObjectiveGaussian(0.8, 0.0, False)
    truth = _exact_epsilon(_folded_delta, delta, 0.8)
    if Accountant().epsilon(charge_of(kind), delta) < truth * (1 - 1e-6):
        return f"objective perturbation with slopes of both signs: below {truth:.4g}"
    return _composed_cells()


def _composed_cells() -> str | None:
    """Ancestors and leaves: a record pays for its own cell and all above it."""
    log = Log()
    log.append(Event("Laplace", (Pure(0.5),)))
    log.append(Event("Laplace", (Pure(0.25),), cells=((0,),)))
    log.append(Event("Laplace", (Pure(1.0),), cells=((1,),)))
    found = Accountant().epsilon(spend(log), 0.0)
    return "a cell's ancestors or its largest leaf are not counted" if found < 1.5 else None


# ---------------------------------------------------------------- batches, sources, minimisers
def batches_are_poisson() -> str | None:
    """Rate and independence of inclusions: of one record over batches, of records in a batch."""
    rate, views, count = 0.2, 4000, 5
    from privopt.oracle.sampling import GeometricSkips

    sampler = GeometricSkips(SeededSource(3))
    inside = np.zeros((views, count))
    for view in range(views):
        inside[view, sampler.choose(count, rate, view + 1)] = 1
    low, high = stats.binom(views * count, rate).ppf([1e-7, 1 - 1e-7])
    if not low <= inside.sum() <= high:
        return f"inclusion rate {inside.mean():.3f}, accounted {rate}"
    empty = int((inside.sum(axis=1) == 0).sum())
    low, high = stats.binom(views, (1 - rate) ** count).ppf([1e-7, 1 - 1e-7])
    if not low <= empty <= high:
        return (
            f"{empty} of {views} batches are empty, Poisson would leave {(1 - rate) ** count:.0%}"
        )
    again = int((inside[:-1] * inside[1:]).sum())
    low, high = stats.binom((views - 1) * count, rate**2).ppf([1e-9, 1 - 1e-9])
    if not low <= again <= high:
        return "inclusions in consecutive batches depend on each other"
    return None


def batches_are_counted() -> str | None:
    """An empty batch is a step like any other: as many releases as planned, for every seed."""
    X, y = hostile_pairs("zero_out")[18].first
    for seed in range(4):
        run, _ = public("noisy_sgd", "zero_out", 1e-5, seed, n_iter=8, batch_size=1)
        try:
            (_, text, _), tape = record(run, (X[:3], y[:3]))
        except Refused as refusal:
            return f"refused: {refusal}"
        if len(tape.releases) != 8:
            return f"{len(tape.releases)} releases of 8"
        if Certificate.from_json(text).releases != 8:
            return "a step is not certified"
    return None


def sources() -> str | None:
    """Secure bits by default, marked private; seeded ones marked not private; two streams."""
    import pickle

    from privopt.noise import SecureSource, source_for

    secure, seeded = source_for(None), source_for(0)
    if not isinstance(secure, SecureSource) or not secure.private:
        return "the default source is not the secure one"
    if seeded.private:
        return "a seeded source calls itself private"
    if len({float(source_for(None).noise.random()) for _ in range(3)}) < 3:
        return "two secure sources give the same noise"
    try:
        pickle.dumps(secure)
    except TypeError:
        pass
    else:
        return "a secure source can be pickled"
    if seeded.noise.random() == seeded.coins.random():
        return "noise and coins share their stream"
    secure.noise.random()
    before = secure._noise  # type: ignore[attr-defined]
    with patch("os.getpid", lambda: -7):
        secure.noise.random()
    forked = secure._noise is before  # type: ignore[attr-defined]
    return "a forked process repeats the noise" if forked else None


@cache
def long_rows() -> Check:
    """One record far out, weighted and not shortened: its gradient and its curvature are within
    those of a row of norm one."""

    def check() -> str | None:
        row_map = RowMap(np.zeros(2), np.ones(2), 1.0, 1.0, shortening=0.0)
        rows = make_rows(np.array([[4.0, 3.0]]), np.ones(1), RowBounds(math.inf, 1.0), True)
        loss = CappedExponential()
        one = Objective(MappedRows.build(rows, row_map), loss)  # type: ignore[arg-type]
        slope = float(np.linalg.norm(one.gradient(np.zeros(3))))
        bend = float(np.linalg.eigvalsh(one.hessian(np.zeros(3)))[-1])
        if slope > loss.lipschitz * (1 + 1e-9):
            return f"a gradient of {slope:.3g}, at most {loss.lipschitz:g} stated"
        if bend > loss.smoothness * (1 + 1e-9):
            return f"a curvature of {bend:.3g}, at most {loss.smoothness:g} stated"
        return None

    return check


def minimised(name: str, delta: float) -> Check:
    """Without noise the released point is a minimiser to its certified tolerance."""

    def check() -> str | None:
        budget = Budget(1.0, delta)
        problem = Problem(Logistic(), WholeSpace(), theta_norm=3.0)
        solver = catalogue()[name]
        facts = Facts(problem, 40, 3, "zero_out")
        settings: Any = solver.settings(facts, budget)
        generator = np.random.default_rng(0)
        X, y = generator.standard_normal((40, 3)), np.where(generator.random(40) < 0.8, 1.0, -1.0)
        source = SilentSource()
        oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)
        theta = solver.run(oracle, Gate(source), problem, settings)
        rows = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        slope = -y / (1 + np.exp(y * (rows @ theta)))
        gradient = slope @ rows + settings.regularisation * theta
        size, allowed = float(np.linalg.norm(gradient)), settings.tolerance * facts.lipschitz()
        if size > allowed * (1 + 1e-6):
            return f"gradient {size:.2g} at the minimiser, certified {allowed:.2g}"
        return None

    return check


def kinds_of_objective_perturbation() -> str | None:
    """Declared losses against the theorem's own formula: determinant, noise, output noise."""
    from privopt.losses import Logistic as Loss
    from privopt.mechanisms import ObjectivePerturbation
    from privopt.oracle import Oracle as Rows

    source = SilentSource()
    for relation in ("zero_out", "replace_one"):
        oracle = Rows.empty(3, neighbouring=relation, bounds=RowBounds(1.0), source=source)  # type: ignore[arg-type]
        sensitivity = oracle.everything().function(Loss()).sensitivity
        c = math.log1p(0.25 / 2.0)
        pure = ObjectivePerturbation("pure", 1.6, 2.0, 1e-3, 50.0).kinds(sensitivity)
        total = sum(kind.pure(relation) for kind in pure)  # type: ignore[arg-type]
        if total < (c + 1 / 1.6 + 1 / 50) * (1 - 1e-12):
            return f"pure: declares {total:.4g} for {c + 1 / 1.6 + 1 / 50:.4g}"
        kinds = ObjectivePerturbation("gaussian", 1.6, 2.0, 1e-3, 50.0).kinds(sensitivity)
        found = {type(kind): kind for kind in kinds}
        main, output = found.get(ObjectiveGaussian), found.get(GaussianKind)
        if main is None or main.mu < 1 / 1.6 or main.log_determinant < c * (1 - 1e-12):  # type: ignore[attr-defined]
            return "gaussian: mu or determinant is declared too small"
        if output is None or output.mu < 1 / 50:  # type: ignore[attr-defined]
            return "gaussian: the output noise is not declared"
    return None


# ---------------------------------------------------------------- statistics
@cache
def attacked(name: str, delta: float, epsilon: float, runs: int = 1200) -> Check:
    """The lower bound of an attack stays below the certificate; false alarm 1e-6."""

    def check() -> str | None:
        run, pair, certificate = case(Row(name, epsilon, delta))
        scores = attack(run, pair, runs=runs)
        found = judge(*scores, Claim.of(certificate), confidence=1 - 1e-6)
        if found.refuted:
            return f"epsilon >= {found.lower_bound:.2f}, certified {found.certified:.2f}"
        return None

    return check
