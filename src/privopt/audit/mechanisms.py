"""The mechanisms by themselves, each on a pair that reaches its guarantee, in millions of runs.

A million runs need not be a million calls. Where noise is independent over coordinates, N
one-dimensional runs lie side by side in one N-dimensional run of the same code: record j lives in
coordinate j alone, no step mixes coordinates, and the two data sets hold all of these records or
none. Each coordinate is then an independent run on a pair of neighbours with one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.audit.bounds import Claim
from privopt.audit.neighbours import Pair
from privopt.audit.scores import coordinate_scores
from privopt.audit.statistical import Finding, judge
from privopt.audit.trials import Likelihood, Side, Trial
from privopt.facts import Facts
from privopt.geometry import Box, WholeSpace
from privopt.losses import Huber
from privopt.mechanisms import (
    HOOK,
    CorrelatedGaussian,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gate,
    Gaussian,
    Laplace,
    Mechanism,
    NormGamma,
    PermuteAndFlip,
    ReportNoisyMax,
    Run,
    rehearsed,
)
from privopt.noise import SeededSource, Source
from privopt.oracle import ClippedGradient, Oracle
from privopt.oracle.counting import grid_step, whole_steps
from privopt.oracle.made_up import made_up
from privopt.oracle.rows import RowBounds
from privopt.oracle.sensitivity import Grid, Sensitivity
from privopt.privacy import Budget, Log
from privopt.privacy.factorizations import Tree
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers import catalogue
from privopt.solvers.solver import Settings

DELTA = 1e-5
EPSILONS = (1.0, 4.0)
BLOCK = 50_000
"""Runs that lie side by side."""
STEPS = 20
"""Steps of the iterative methods."""
TREE_STEPS = 16
FAR = 1e3
"""A label so far away that the slope of the loss keeps its bound wherever theta goes."""
SATURATED = Problem(Huber(1.0), Box(-50.0, 50.0))
CANDIDATES = 12
"""Of report-noisy-max: the best of so many others is above zero almost surely, where the tail of
Laplace noise reaches the guarantee."""

SHARES = {"ObjectivePerturbation": 0.1}
"""Share of the runs where audits are repeated, for what takes long."""

Sample = Callable[[int, int, SeededSource], np.ndarray]
"""From a side (0 or 1), a number of runs and a source to a score of each run."""


@dataclass(frozen=True)
class Case:
    """A mechanism at an epsilon: how its runs are scored, and what it claims."""

    sample: Sample
    claim: Claim


# ---------------------------------------------------------------- side by side
def side_by_side(
    run: Trial,
    data: Callable[[int, int], tuple[Any, Any]],
    likelihood: Likelihood = coordinate_scores,
) -> Sample:
    """Scores of runs that lie side by side; ``data(side, runs)`` holds the records of each in a
    coordinate of its own."""

    def sample(side: int, runs: int, source: SeededSource) -> np.ndarray:
        found = []
        for start in range(0, runs, BLOCK):
            here = min(BLOCK, runs - start)
            pair = Pair("side by side", data(0, here), data(1, here), (), ())
            found.append(Side(run, pair, side, source, likelihood=likelihood).once())
        return np.concatenate(found)

    return sample


def diagonal(side: int, runs: int) -> tuple[sp.csr_array, np.ndarray]:
    """One record in each coordinate, or an empty one."""
    return sp.diags_array(np.ones(runs)).tocsr(), np.full(runs, math.nan if side else FAR)


Story = Callable[[Gate, Any, np.ndarray, Source], Any]
"""Releases through a gate, from two arrays and the source of their oracles."""


def _certified(
    story: Callable[[Gate], Any], epsilon: float, delta: float, relation: Any = "zero_out"
) -> Claim:
    """What a run certifies; it releases made-up numbers, so they serve its rehearsal too."""
    budget = Budget(epsilon * (1 + 1e-9), delta, relation)
    run = Run(budget, rehearsed(lambda gate, _: story(gate)), SeededSource(0), what="audit")
    run.pay(None)
    story(run.gate)
    return Claim.of(run.certify())


def _case(story: Story, data: Any, epsilon: float, delta: float) -> Case:
    """Runs side by side of a story, and what a single one of them certifies."""

    def run(X: Any, y: np.ndarray, source: Source) -> Log:
        gate = Gate(source, hook=HOOK.get())
        story(gate, X, y, source)
        return gate.log

    X, y = data(0, 1)
    claim = _certified(lambda gate: story(gate, X, y, SeededSource(0)), epsilon, delta)
    return Case(side_by_side(run, data), claim)


def _additive(mechanism: Mechanism, epsilon: float, delta: float) -> Case:
    """One number, moved by its whole sensitivity."""
    resolution = getattr(mechanism, "resolution", None)
    grid = None if resolution is None else Grid(grid_step(1.0, resolution), 1)
    sensitivity = Sensitivity(mechanism.accepts, 1.0, 1.0, grid=grid)

    def data(side: int, runs: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.full(runs, 1.0 - side)
        return (values if grid is None else whole_steps(values, grid.step)), values

    def story(gate: Gate, values: np.ndarray, _: np.ndarray, source: Source) -> None:
        gate.release(mechanism, made_up(values, sensitivity))

    return _case(story, data, epsilon, delta)


def _solver(name: str, epsilon: float, **choices: Any) -> Case:
    """A solver on one-dimensional problems of one record, all of its iterates seen."""
    solver, problem, records = catalogue()[name], SATURATED, STEPS
    facts = Facts(problem, records, 1, "zero_out")
    settings = solver.settings(facts, Budget(epsilon, DELTA), n_iter=STEPS, **choices)

    def story(gate: Gate, X: Any, y: np.ndarray, source: Source) -> None:
        solver.run(_oracle(X, y, source), gate, problem, settings)

    return _case(story, diagonal, epsilon, DELTA)


def _oracle(X: Any, y: np.ndarray, source: Source, relation: Any = "zero_out") -> Oracle:
    return Oracle.over(
        X,
        y,
        neighbouring=relation,
        bounds=RowBounds(1.0),
        source=source,
        classification=False,
    )


def _tree(epsilon: float) -> Case:
    """All running sums of a stream, the record in its first step, which most nodes hold."""
    factorization, query = Tree(TREE_STEPS), ClippedGradient(SATURATED.loss, 1.0)
    entries = math.sqrt(float(factorization.losses_squared([(0,)])[0]))
    mechanism = CorrelatedGaussian(factorization, entries / gaussian_mu(epsilon, DELTA))

    def data(side: int, runs: int) -> tuple[Any, np.ndarray]:
        X, y = diagonal(side, runs)
        later = (TREE_STEPS - 1) * runs
        X = sp.vstack([X, sp.csr_array((later, runs))], format="csr")
        return X, np.append(y, np.full(later, math.nan))

    def story(gate: Gate, X: Any, y: np.ndarray, source: Source) -> None:
        stream = CorrelatedGaussian(mechanism.factorization, mechanism.multiplier)
        for part in _oracle(X, y, source).blocks(TREE_STEPS):
            gate.release(stream, part.everything().ask(query))

    return _case(story, data, epsilon, DELTA)


# ---------------------------------------------------------------- one by one
def one_by_one(release: Callable[[int, Gate], float]) -> Sample:
    """Scores of runs that must be made one after the other."""

    def sample(side: int, runs: int, source: SeededSource) -> np.ndarray:
        scores = np.empty(runs)
        for i in range(runs):
            if i % 1000 == 0:
                gate = Gate(source)  # a log of a million events would be long
            scores[i] = release(side, gate)
        return scores

    return sample


def _choice(mechanism: Mechanism, first: np.ndarray, epsilon: float) -> Case:
    """Whether candidate 0 is chosen; on the second data set its score is lower by the range."""
    sensitivity = Sensitivity("range", 1.0, 1.0)
    lowered = np.append(first[0] - 1.0, first[1:])
    sealed = [made_up(scores, sensitivity) for scores in (first, lowered)]

    def release(side: int, gate: Gate) -> float:
        return float(gate.release(mechanism, sealed[side]) == 0)

    claim = _certified(lambda gate: release(0, gate), epsilon, 0.0)
    return Case(one_by_one(release), claim)


def rare(epsilon: float) -> float:
    """How far candidate 0 lies behind, in units of the range, in the exponential mechanism.

    Its loss is epsilon - log((1 + e^(s + epsilon))/(1 + e^s)), the larger the rarer it is chosen,
    but what is rare is counted with a larger error: the best trade for a million runs.
    """
    behind = np.linspace(0.0, 12.0, 241)
    false, true = (1 / (1 + np.exp(behind - lift)) for lift in (0.0, epsilon))
    error = 2.0 / math.sqrt(8e5) * (1 / np.sqrt(false) + 1 / np.sqrt(true))
    return float(behind[np.argmax(np.log(true / false) - error)]) / epsilon - 1.0


def _norm_gamma(epsilon: float) -> Case:
    mechanism, sensitivity = NormGamma(1 / epsilon), Sensitivity("l2", 1.0, 1.0)
    sealed = [made_up(np.array([value]), sensitivity) for value in (1.0, 0.0)]

    def release(side: int, gate: Gate) -> float:
        seen = float(gate.release(mechanism, sealed[side])[0])
        return abs(seen) - abs(seen - 1)

    claim = _certified(lambda gate: release(0, gate), epsilon, 0.0)
    return Case(one_by_one(release), claim)


def _objective(epsilon: float) -> Case:
    """One record replaced by one whose gradient is opposite everywhere: they differ by 2 L.

    In one dimension the minimiser is a falling function of the noise, so a threshold on it is the
    best attack. A stiff regulariser makes the curvature of one record cost next to nothing.
    """
    solver, problem = catalogue()["objective_perturbation"], Problem(Huber(1.0), WholeSpace())
    budget = Budget(epsilon, 0.0, "replace_one")
    facts = Facts(problem, 1, 1, "replace_one")
    settings: Settings = solver.settings(facts, budget, noise="pure", regularisation=1e4)

    def oracle(label: float) -> Oracle:
        return _oracle(np.ones((1, 1)), np.array([label]), SeededSource(0), "replace_one")

    def released(asked: Oracle, gate: Gate) -> float:
        return float(solver.run(asked, gate, problem, settings)[0])

    sides = [oracle(FAR), oracle(-FAR)]
    claim = _certified(lambda gate: released(oracle(FAR), gate), epsilon, 0.0, "replace_one")
    return Case(one_by_one(lambda side, gate: released(sides[side], gate)), claim)


# ---------------------------------------------------------------- the table
CASES: dict[str, Callable[[float], Case]] = {
    "Laplace": lambda e: _additive(Laplace(1 / e), e, 0.0),
    "DiscreteLaplace": lambda e: _additive(DiscreteLaplace(1 / e), e, 0.0),
    "NormGamma": _norm_gamma,
    "Gaussian": lambda e: _additive(Gaussian(1 / gaussian_mu(e, DELTA)), e, DELTA),
    "DiscreteGaussian": lambda e: _additive(DiscreteGaussian(1 / gaussian_mu(e, DELTA)), e, DELTA),
    "PermuteAndFlip": lambda e: _choice(PermuteAndFlip(1 / e), np.zeros(2), e),
    "ReportNoisyMax": lambda e: _choice(ReportNoisyMax(1 / e), np.zeros(1 + CANDIDATES), e),
    "ExponentialMechanism": lambda e: _choice(
        ExponentialMechanism(1 / e), np.array([-rare(e), 0.0]), e
    ),
    "ObjectivePerturbation": _objective,
    "CorrelatedGaussian": _tree,
    "noisy_gd, all iterates": lambda e: _solver("noisy_gd", e),
    "noisy_sgd, all iterates": lambda e: _solver("noisy_sgd", e, batch_size=1),
}


def names(name: str | None = None) -> list[str]:
    """All mechanisms of the table, or the one that is asked for."""
    if name is not None and name not in CASES:
        raise ValueError(f"unknown mechanism {name!r}; choose from {', '.join(CASES)}.")
    return list(CASES) if name is None else [name]


def audit_mechanism(
    wanted: tuple[str, float],
    *,
    runs: int,
    confidence: float = 0.95,
    sure: float | None = None,
    seed: int = 0,
) -> Finding:
    """Audit a mechanism, by name and epsilon, with ``runs`` runs on each side.

    ``sure``: the confidence of the verdict, where it is another than that of the bound. In a table
    each bound may stand for itself, while no verdict of all may be wrong.
    """
    name, epsilon = wanted
    case = CASES[name](epsilon)
    scores = _scores(case, runs, seed)
    found = judge(*scores, case.claim, confidence=confidence)
    if sure is None:
        return found
    return replace(found, refuted=judge(*scores, case.claim, confidence=sure).refuted)


def _scores(case: Case, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = (
        # Equal likelihood ratios may differ by rounding; an event takes all of them or none.
        np.round(case.sample(side, runs, SeededSource(2 * seed + side)), 9)
        for side in (0, 1)
    )
    return first, second


def false_alarms(
    wanted: tuple[str, float], *, runs: int, repeat: int, confidence: float, seed: int = 0
) -> int:
    """How many of ``repeat`` audits of a correct mechanism say that it is wrong."""
    name, epsilon = wanted
    case, count = CASES[name](epsilon), round(SHARES.get(name, 1.0) * runs)
    turns = (_scores(case, count, seed * repeat + turn) for turn in range(repeat))
    found = [judge(*scores, case.claim, confidence=confidence) for scores in turns]
    return sum(one.refuted or max(one.lower_bound, one.point) > one.certified for one in found)
