"""Bugs in the private choice of hyper-parameters and in its accounting."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from privopt import LogisticRegression, PrivateSearchCV
from privopt.estimators import search_run
from privopt.mechanisms import BestOf
from privopt.mechanisms import Gaussian as GaussianNoise
from privopt.privacy import RandomCount, Tuned
from privopt.privacy import tuning as formulas
from privopt.privacy.kinds import GaussianKind, Pure

from .mutant import Mutant

GEOMETRIC = RandomCount.named("geometric", 50)
MANY = RandomCount.named("poisson", 50)


def _exact(count: RandomCount, mu: float, alpha: float) -> float:
    """Exact Renyi divergence between the best of K normal outputs, on a fine grid."""
    from scipy.special import ndtr

    edges = np.linspace(-7, 7, 4001)
    laws = []
    for shift in (0.0, mu):
        mass = np.diff(ndtr(edges - shift))
        above = ndtr(shift - (edges[1:] + edges[:-1]) / 2)
        if count.law == "poisson":
            law = count.mean * np.exp(-count.mean * above)
        else:
            gamma = count.parameter
            law = count.mean * (gamma / (gamma + (1 - gamma) * above)) ** (count.eta + 1)
        laws.append(np.maximum(mass * law, 1e-300))
    one, other = laws
    found = (alpha * np.log(p) + (1 - alpha) * np.log(q) for p, q in ((one, other), (other, one)))
    return max(float(np.logaddexp.reduce(logs)) for logs in found) / (alpha - 1)


def curve() -> str | None:
    """The claimed Renyi curve lies above exact values."""
    for count in (GEOMETRIC, MANY):
        for mu, alpha in ((0.3, 2.0), (0.3, 8.0), (1.0, 3.0)):
            kind = Tuned(count.law, count.parameter, count.eta, (((GaussianKind(mu, mu), 1),),))
            claimed = kind.renyi(alpha, "zero_out")
            if claimed is None or _exact(count, mu, alpha) > claimed:
                return f"{count.law}: the curve at {alpha:g} is too low"
    return None


def pure() -> str | None:
    """The pure epsilon of the best of many lies above an exact ratio."""
    grow, top, share = math.exp(1.0), 1e-2, 1e-6
    count = RandomCount.named("geometric", 1e4)
    chances = []
    for best, middle in ((top, share), (top * grow, share / grow)):
        ends = count.generating(np.array([1 - best - middle, 1 - best]))
        chances.append(float(np.diff(ends)[0]))
    kind = Tuned(count.law, count.parameter, count.eta, (((Pure(1.0), 1),),))
    ratio = abs(math.log(chances[0] / chances[1]))
    if ratio > kind.pure("zero_out"):
        return "the pure epsilon is below an exact ratio"
    # One output alone already gives this much of the divergence of a high order.
    order = 3000.0
    part = (order * math.log(chances[0]) + (1 - order) * math.log(chances[1])) / (order - 1)
    if part > (kind.renyi(order, "zero_out") or 0.0):
        return "the curve at a high order is below an exact value"
    return None


def search() -> str | None:
    """What a search certifies covers its fits and its scores, and its runs do not exceed it."""
    rows = np.random.default_rng(0).standard_normal((200, 2))
    found = PrivateSearchCV(
        LogisticRegression(), {"data_norm": [1.0, 2.0]}, delta=1e-6, refit=False, random_state=0
    ).fit(rows, rows[:, 0] > 0)
    ((_, charge),) = found.privacy_.charges
    ((step, _),) = charge.items()
    (kind,) = step.kinds
    if not isinstance(kind, Tuned):
        return "the release is not charged as a search"
    mechanism = search_run.score_mechanism(found.epsilon_per_run_, 1e-6)
    scale = float(np.std([_noise(mechanism, seed) for seed in range(400)]))
    mu = max(k.mu for loss in kind.runs for k, _ in loss if isinstance(k, GaussianKind))
    # 400 normal draws: a standard deviation 25 % too small has a chance below 1e-11.
    return "scores have too little noise" if scale < 0.75 / mu else None


def _noise(mechanism: GaussianNoise, seed: int) -> float:
    from privopt.mechanisms import Gate
    from privopt.noise import SeededSource
    from privopt.oracle import sealed_total

    sealed = sealed_total(np.zeros(3), mechanism.accepts)
    return float(Gate(SeededSource(seed)).release(mechanism, sealed)[0])


def one_run_only(self: BestOf, sensitivity: object) -> tuple[GaussianKind, ...]:
    return tuple(kind for kind, _ in self.losses[0])


def tuning() -> Iterator[Mutant]:
    real = Tuned._one_run
    yield Mutant(
        "tuning: the random number of runs is forgotten",
        ((Tuned, "renyi", lambda self, alpha, relation: real(self, alpha, relation)),),
        curve,
        "exact enumeration",
    )
    yield Mutant(
        "tuning: choosing is free beyond the number of runs",
        ((formulas, "_detour", lambda tuned, relation: 0.0),),
        pure,
        "exact enumeration",
    )
    yield Mutant(
        "tuning: missed delta of a Poisson number is dropped",
        ((formulas, "_missed", lambda tuned, epsilon, relation: 0.0),),
        curve,
        "exact enumeration",
    )
    yield Mutant(
        "tuning: the best of pure runs costs two of them",
        ((Tuned, "pure", lambda self, relation: 2.0),),
        pure,
        "exact enumeration",
    )
    yield Mutant(
        "tuning: a search is charged as one run",
        ((BestOf, "kinds", one_run_only),),
        search,
        "certificate",
    )
    yield Mutant(
        "tuning: scores get half the noise",
        (
            (
                GaussianNoise,
                "run",
                lambda self, payload, sensitivity, source: (
                    np.asarray(payload)
                    + 0.5 * self.multiplier * source.noise.standard_normal(np.shape(payload))
                ),
            ),
        ),
        search,
        "law of the noise",
    )
