r"""The best of a random number of runs: what it costs to choose among private results.

K is drawn from a public law, a private algorithm M is run K times (each run may draw its own
hyper-parameters, its output has a score), and only the output with the best score is seen; K is
not. Keeping the best of a *fixed* number of runs costs about as much as all of them; the best of a
random number costs about two or three runs (Liu and Talwar, 2019; Papernot and Steinke, 2022).

Proof, for a law with generating function f on [0, 1]. Order outputs by score, let (Q, Q') be the
laws of M on two neighbours. The best of K runs is output j with probability
f(F_j) - f(F_(j-1)) = Q_j times the mean of f' over [F_(j-1), F_j]. With u the place in that
interval, joint convexity of (a, b) -> a^l b^(1-l) gives for the order l of a Renyi divergence

  sum_j A_j^l A'_j^(1-l) <= e^((l-1) R(l)) max over (q, q') of f'(q)^l f'(q')^(1-l),

where q, q' are the chances of one randomised event, "score below a threshold", under Q and Q'.

* Truncated negative binomial, f'(x) = E[K] (gamma / (1 - (1-gamma) x))^(eta+1). With
  p = gamma + (1-gamma)(1-q), the chance of "above the threshold, or a coin of chance gamma",
  f'(q)^l f'(q')^(1-l) <= E[K] (p'/p)^((eta+1)(l-1)), and the Renyi bound of order a for p', p gives
  p'/p <= p^(-1/a) e^((1-1/a) R(a)) <= gamma^(-1/a) e^((1-1/a) R(a)). Together, for every a >= 1,

    R_best(l) <= R(l) + (1+eta) ((1-1/a) R(a) + log(1/gamma)/a) + log E[K] / (l-1).

  M pure with epsilon: p'/p <= e^epsilon, hence (2+eta) epsilon.
* Poisson, f'(x) = m e^(m(x-1)): f'(q)^l f'(q')^(1-l) = m exp(m ((l-1)(1-q') - l(1-q))). If M is
  (e, d)-DP with e^e <= 1 + 1/(l-1), the exponent is at most m (l-1) d. No run at all has the same
  chance e^-m for both neighbours and is added inside the logarithm:

    R_best(l) <= log(e^-m + m e^((l-1)(R(l) + m d))) / (l-1).

  M pure with epsilon: q - q' <= tanh(epsilon/2), hence epsilon + m tanh(epsilon/2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import pdtr

from privopt.privacy.budget import Neighbouring
from privopt.privacy.kinds import Kind, kind_from_dict

LAWS = ("geometric", "logarithmic", "negative_binomial", "poisson")
MOST_RUNS = 1_000_000
ORDERS = 1 + np.exp(np.linspace(-6, 12, 181))

Loss = tuple[tuple[Kind, int], ...]
"""Kinds that one record pays for in one run, with their numbers."""


@dataclass(frozen=True, slots=True)
class RandomCount:
    """The public law of the number of runs.

    ``negative_binomial``: P(K = k), k >= 1, in proportion to (1-gamma)^k times the binomial
    coefficient (k+eta-1 choose k); eta = 1 is the geometric law, eta = 0 the logarithmic one.
    ``poisson``: K may be 0. ``parameter`` is gamma, or the Poisson mean.
    """

    law: str
    parameter: float
    eta: float = 0.0

    def __post_init__(self) -> None:
        if self.law == "negative_binomial":
            if not 0 < self.parameter <= 1 or not -1 < self.eta < math.inf:
                raise ValueError("a negative binomial law needs gamma in (0, 1] and eta > -1.")
        elif self.law != "poisson":
            raise ValueError(f"the law must be negative_binomial or poisson, got {self.law!r}.")
        elif not 0 < self.parameter < math.inf:
            raise ValueError("a Poisson law needs a positive mean.")

    @classmethod
    def named(cls, law: str, mean: float, eta: float | None = None) -> RandomCount:
        """A law by its everyday name and the expected number of runs."""
        if law not in LAWS:
            raise ValueError(f"the law must be one of {', '.join(LAWS)}; got {law!r}.")
        if (eta is not None) != (law == "negative_binomial"):
            raise ValueError("eta belongs to the negative_binomial law, which needs one.")
        if law == "poisson":
            return cls("poisson", float(mean))
        shape = {"geometric": 1.0, "logarithmic": 0.0}.get(law, eta)
        assert shape is not None
        if not 1 < mean <= 1e5:
            raise ValueError(f"the expected number of runs must be above 1, got {mean!r}.")
        if not -1 < shape <= 100:
            raise ValueError(f"eta must lie above -1, got {eta!r}.")

        def surplus(log_gamma: float) -> float:
            return math.log(cls("negative_binomial", math.exp(log_gamma), shape).mean / mean)

        root: Any = brentq(surplus, math.log(1e-12), -1e-9)
        return cls("negative_binomial", math.exp(root), shape)

    @property
    def mean(self) -> float:
        """Expected number of runs."""
        gamma, eta = self.parameter, self.eta
        if self.law == "poisson" or gamma == 1:
            return gamma
        odds = (1 - gamma) / gamma
        return odds * (eta / -math.expm1(eta * math.log(gamma)) if eta else -1 / math.log(gamma))

    def generating(self, x: np.ndarray) -> np.ndarray:
        """E[x^K]."""
        x, gamma, eta = np.asarray(x, dtype=float), self.parameter, self.eta
        if self.law == "poisson":
            return np.exp(gamma * (x - 1))
        if gamma == 1:
            return x
        rest = 1 - (1 - gamma) * x
        if eta == 0:
            return np.log(rest) / math.log(gamma)
        return np.expm1(-eta * np.log(rest)) / math.expm1(-eta * math.log(gamma))

    def at(self, uniform: float) -> int:
        """The number of runs at a quantile: a uniform variable makes it a draw of the law."""
        gamma, eta = self.parameter, self.eta
        if self.law == "poisson":
            found = 0
            while pdtr(found, gamma) < uniform and found < MOST_RUNS:
                found += 1
            return found
        if gamma == 1:
            return 1
        if eta:
            scale = eta * (1 - gamma) / math.expm1(-eta * math.log(gamma))
        else:
            scale = (1 - gamma) / -math.log(gamma)
        found, mass = 1, scale
        total = mass
        while total < uniform and found < MOST_RUNS:
            mass *= (1 - gamma) * (found + eta) / (found + 1)
            total, found = total + mass, found + 1
        return found


@dataclass(frozen=True, slots=True)
class Tuned(Kind):
    """The best of a random number of runs, each of which has one of the losses ``runs``.

    ``runs`` lists alternatives: candidates that a run may draw, and, for each, parts of the records
    that pay differently (those fitted, those that score). A run's own curve is their maximum, since
    which candidate was drawn is part of its output.
    """

    name: ClassVar[str] = "tuned"
    law: str
    parameter: float
    eta: float
    runs: tuple[Loss, ...]

    def __post_init__(self) -> None:
        _ = self.count  # checks the law
        plain = tuple(tuple(_pair(entry) for entry in loss) for loss in self.runs)
        if not plain or not all(plain):
            raise ValueError("a tuned release needs the losses of its runs.")
        object.__setattr__(self, "runs", plain)

    @property
    def count(self) -> RandomCount:
        return RandomCount(self.law, self.parameter, self.eta)

    def pure(self, neighbouring: Neighbouring) -> float:
        one = max(sum(kind.pure(neighbouring) * c for kind, c in loss) for loss in self.runs)
        if one == math.inf:
            return math.inf
        if self.law == "poisson":
            return one + self.parameter * math.tanh(one / 2)
        return (2 + self.eta) * one if self.parameter < 1 else one

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        own = self._one_run(alpha, neighbouring)
        if own is None:
            return None
        excess, count = alpha - 1, self.count
        if self.law == "negative_binomial":
            detour = _detour(self, neighbouring)
            return own + (1 + self.eta) * detour + math.log(count.mean) / excess
        missed = _missed(self, math.log1p(1 / excess), neighbouring)
        runs = excess * (own + self.parameter * missed) + math.log(self.parameter)
        return float(np.logaddexp(-self.parameter, runs)) / excess

    def strength(self) -> float:
        return self.renyi(2.0, "replace_one") or 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.name,
            "law": self.law,
            "parameter": self.parameter,
            "eta": self.eta,
            "runs": [[{"count": c, **kind.to_dict()} for kind, c in loss] for loss in self.runs],
        }

    def _one_run(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        most = 0.0
        for loss in self.runs:
            total = 0.0
            for kind, c in loss:
                value = kind.renyi(alpha, neighbouring)
                if value is None:
                    return None
                total += c * value
            most = max(most, total)
        return most


def _pair(entry: Any) -> tuple[Kind, int]:
    if isinstance(entry, dict):
        fields = dict(entry)
        count = int(fields.pop("count"))
        return kind_from_dict(fields), count
    kind, count = entry
    return kind, int(count)


@lru_cache(maxsize=256)
def _curve(tuned: Tuned, neighbouring: Neighbouring) -> np.ndarray:
    """One run's Renyi bounds at ``ORDERS``."""
    found = (tuned._one_run(float(order), neighbouring) for order in ORDERS)
    return np.array([math.inf if value is None else value for value in found])


@lru_cache(maxsize=256)
def _detour(tuned: Tuned, neighbouring: Neighbouring) -> float:
    """Least (1 - 1/a) R(a) + log(1/gamma)/a over a; every a is valid, so a grid is enough."""
    spread = -math.log(tuned.parameter)
    found = (1 - 1 / ORDERS) * _curve(tuned, neighbouring) + spread / ORDERS
    return min(spread, float(found.min()))  # a = 1: no use is made of M's own bound


def _missed(tuned: Tuned, epsilon: float, neighbouring: Neighbouring) -> float:
    """A delta at which one run is (epsilon, delta)-DP, from its Renyi curve."""
    pure = max(sum(kind.pure(neighbouring) * c for kind, c in loss) for loss in tuned.runs)
    if pure <= epsilon:
        return 0.0
    curve = _curve(tuned, neighbouring)
    logs = (ORDERS - 1) * (curve - epsilon + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    return min(1.0, math.exp(min(float(logs.min()), 0.0)))
