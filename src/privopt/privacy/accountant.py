"""The accountant: from charges to epsilon and delta, by the tightest route that is valid.

Routes, each an upper bound, the smallest is taken:

* pure: epsilons add.
* exact Gaussian: mu^2 add, and the profile is inverted exactly.
* one objective perturbation and any Gaussians: one-dimensional quadrature.
* privacy-loss distributions (dp-accounting), refined until the grid no longer matters.
* Renyi curves with the tight conversion.

A charge that no route covers is refused by name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privopt.privacy.budget import NEIGHBOURING, Neighbouring, Refused, records_moved, replaces
from privopt.privacy.convolve import TooFine, composed, epsilon_of
from privopt.privacy.events import FULL
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    Kind,
    ObjectiveGaussian,
    Pure,
    SampledGaussian,
    randomised_response_renyi,
)
from privopt.privacy.profiles import (
    ROUNDING,
    gaussian_delta,
    gaussian_epsilon,
    renyi_epsilon,
    smallest_epsilon,
    smallest_holding,
)
from privopt.privacy.spend import Charge, Spend, Step

# Privacy-loss distributions drop about this much mass; below it they have nothing to say.
SMALLEST_DELTA = 1e-13
# The error falls with the square of the step: a halving leaves a third of the change.
GRID_CHANGE = 5e-4
MOST_POINTS = 2e6
MOST_OF_ONE = 2.0**22
"""One release's loss spans no more cells of the grid: enough for every epsilon that protects, and
a bound on memory for those that do not."""
PROFILE_POINTS, STAIRS = 400, 60


def charge_of(*kinds: Kind, count: int = 1) -> Charge:
    """A charge of unsampled kinds, each released ``count`` times."""
    charge: Charge = Counter()
    for kind in kinds:
        charge[Step(FULL, (kind,))] += count  # equal kinds are as many releases
    return charge


@dataclass(frozen=True)
class Accountant:
    """Accounting under one neighbouring relation."""

    neighbouring: Neighbouring = "zero_out"

    def __post_init__(self) -> None:
        if self.neighbouring not in NEIGHBOURING:
            raise ValueError(
                f"neighbouring must be one of {', '.join(NEIGHBOURING)}; got {self.neighbouring!r}."
            )

    # ------------------------------------------------------------ questions
    def epsilon(self, what: Charge | Spend, delta: float) -> float:
        """Smallest epsilon, at this delta, that is proved for a charge or for every record."""
        _check_numbers(delta=delta)
        if isinstance(what, Spend):
            return max((self.epsilon(charge, delta) for _, charge in what.frontier()), default=0.0)
        kinds = self.resolve(what)
        return _epsilon(tuple(sorted(kinds.items(), key=repr)), delta, self.neighbouring)

    def delta(self, what: Charge | Spend, epsilon: float) -> float:
        """Smallest proved delta at this epsilon."""
        _check_numbers(epsilon)
        if isinstance(what, Spend):
            return max((self.delta(charge, epsilon) for _, charge in what.frontier()), default=0.0)
        kinds = self.resolve(what)
        if sum(k.pure(self.neighbouring) * c for k, c in kinds.items()) <= epsilon:
            return 0.0
        if all(isinstance(kind, GaussianKind) for kind in kinds):
            return gaussian_delta(epsilon, _total_mu(kinds))
        low, high = math.log(SMALLEST_DELTA * 1.01), 0.0
        if self.epsilon(what, math.exp(low)) <= epsilon:
            return math.exp(low)
        while high - low > 1e-3:
            middle = (low + high) / 2
            if self.epsilon(what, math.exp(middle)) <= epsilon:
                high = middle
            else:
                low = middle
        return math.exp(high)

    def profile(self, charge: Charge, least: float) -> tuple[np.ndarray, np.ndarray]:
        """Proved pairs (epsilon, delta) of a charge, epsilons from 0 up and deltas down to
        ``least``: close enough to tell which Gaussian lies above them."""
        kinds = self.resolve(charge)
        end = self.epsilon(charge, least)
        if not math.isfinite(end):
            return np.zeros(1), np.ones(1)
        known = _objective_profile(kinds, self.neighbouring)
        total = _composed(kinds, self.neighbouring) if known is None else None
        if known is None and total is None:
            deltas = np.geomspace(0.9, least, STAIRS)
            return np.array([self.epsilon(charge, delta) for delta in deltas]), deltas
        epsilons = np.linspace(0.0, end, STAIRS if total is None else PROFILE_POINTS)
        if total is None:
            assert known is not None
            deltas = np.array([known(epsilon) for epsilon in epsilons])
        else:
            deltas = np.asarray(total.get_delta_for_epsilon(epsilons.tolist()))
        return epsilons, np.append(deltas[:-1] * (1 + ROUNDING), least)

    def holds(self, charge: Charge, epsilon: float, delta: float) -> bool:
        """Whether (epsilon, delta) is proved for a charge; quicker than computing its epsilon."""
        return self._surplus(charge, epsilon, delta) <= 0

    def calibrate(
        self,
        charge: Callable[[float], Charge],
        epsilon: float,
        delta: float,
        *,
        start: float = 1.0,
        tolerance: float = 3e-4,
    ) -> float:
        """Smallest noise multiplier whose charge stays within (epsilon, delta).

        ``charge(multiplier)`` must shrink as the multiplier grows. The result always satisfies the
        target; it is at most a relative ``tolerance`` larger than needed.
        """
        found = smallest_holding(
            lambda multiplier: self._surplus(charge(multiplier), epsilon, delta), start, tolerance
        )
        if found == math.inf:
            raise Refused(
                f"no amount of noise reaches epsilon={epsilon:g} at delta={delta:g}: "
                "a part of the charge does not depend on the noise."
            )
        return found

    # ------------------------------------------------------------ how
    def _surplus(self, charge: Charge, epsilon: float, delta: float) -> float:
        _check_numbers(epsilon, delta)
        kinds = self.resolve(charge)
        return _surplus(tuple(sorted(kinds.items(), key=repr)), epsilon, delta, self.neighbouring)

    def resolve(self, charge: Charge) -> Counter[Kind]:
        """The kinds of a charge without sampling, with their numbers."""
        kinds: Counter[Kind] = Counter()
        for step, count in charge.items():
            for kind in step.resolve(self.neighbouring):
                kinds[kind] += count
        return kinds


def _check_numbers(epsilon: float = 0.0, delta: float = 0.0) -> None:
    """NaN compares as false everywhere: an epsilon at such a delta would come out as zero."""
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must lie in [0, 1], got {delta!r}.")
    if math.isnan(epsilon):
        raise ValueError("epsilon must be a number, got nan.")


def _total_mu(kinds: Counter[Kind]) -> float:
    return math.sqrt(sum(c * k.mu**2 for k, c in kinds.items() if isinstance(k, GaussianKind)))


@lru_cache(maxsize=4096)
def _surplus(
    items: tuple[tuple[Kind, int], ...], epsilon: float, delta: float, neighbouring: Neighbouring
) -> float:
    """A number that is at most 0 if (epsilon, delta) is proved, and tells how far away it is."""
    pure = sum(kind.pure(neighbouring) * count for kind, count in items)
    if pure <= epsilon:
        return _log_ratio(pure, epsilon)
    profile = _objective_profile(Counter(dict(items)), neighbouring)
    if profile is not None:
        return _log_ratio(profile(epsilon) * (1 + ROUNDING), delta)
    return _log_ratio(_epsilon(items, delta, neighbouring, epsilon), epsilon)


def _log_ratio(found: float, target: float) -> float:
    if found <= target:  # decided here, so that rounding of the logarithm decides nothing
        return min(math.log(max(found, 1e-300) / target), 0.0) if target > 0 else 0.0
    return max(math.log(found / target), 1e-15) if target > 0 else math.inf


@lru_cache(maxsize=4096)
def _epsilon(
    items: tuple[tuple[Kind, int], ...],
    delta: float,
    neighbouring: Neighbouring,
    target: float | None = None,
) -> float:
    """Smallest proved epsilon; with a ``target``, no closer than it takes to compare with it."""
    kinds: Counter[Kind] = Counter(dict(items))
    pure = sum(kind.pure(neighbouring) * count for kind, count in items)
    if delta <= 0 or not kinds:
        return float(pure)
    if all(isinstance(kind, GaussianKind) for kind in kinds):
        return gaussian_epsilon(_total_mu(kinds), delta)
    found = [pure if pure < math.inf else None, _renyi_route(kinds, delta, neighbouring)]
    exact = _objective_route(kinds, delta, neighbouring)
    if exact is None:
        exact = _distribution_route(kinds, delta, neighbouring, target)
    found.append(exact)
    if found[1] is None and found[2] in (None, math.inf):
        found.append(_sampled_renyi_route(kinds, delta, neighbouring))
    known = [epsilon for epsilon in found if epsilon is not None]
    if not known:
        names = " + ".join(sorted({kind.name for kind in kinds}))
        raise Refused(
            f"no accounting is known for the composition of {names} under {neighbouring} "
            f"at delta={delta:g}."
        )
    return min(known)


def _objective_route(
    kinds: Counter[Kind], delta: float, neighbouring: Neighbouring
) -> float | None:
    profile = _objective_profile(kinds, neighbouring)
    return None if profile is None else smallest_epsilon(profile, delta)


def _objective_profile(
    kinds: Counter[Kind], neighbouring: Neighbouring
) -> Callable[[float], float] | None:
    """delta(epsilon) of one objective perturbation beside any Gaussians; None for anything else."""
    objective = [kind for kind in kinds if isinstance(kind, ObjectiveGaussian)]
    others = [kind for kind in kinds if not isinstance(kind, (ObjectiveGaussian, GaussianKind))]
    if len(objective) != 1 or kinds[objective[0]] != 1 or others or objective[0].dimension > 1:
        return None
    mu = _total_mu(kinds)

    def profile(epsilon: float) -> float:
        value = objective[0].delta_after_gaussian(epsilon, mu, neighbouring)
        return 1.0 if value is None else value

    return profile


def _renyi_route(kinds: Counter[Kind], delta: float, neighbouring: Neighbouring) -> float | None:
    if any(kind.renyi(2.0, neighbouring) is None for kind in kinds):
        return None

    # Different pure releases may be many: all of them at once.
    pure = [(k.epsilon, c) for k, c in kinds.items() if isinstance(k, Pure)]
    others = [(k, c) for k, c in kinds.items() if not isinstance(k, Pure)]
    epsilons, counts = np.array(pure).reshape(-1, 2).T

    def curve(alpha: float) -> float:
        found = float(counts @ randomised_response_renyi(epsilons, alpha))
        return found + sum((k.renyi(alpha, neighbouring) or 0.0) * c for k, c in others)

    return renyi_epsilon(curve, delta)


def _sampled_renyi_route(
    kinds: Counter[Kind], delta: float, neighbouring: Neighbouring
) -> float | None:
    """Sampled Gaussians beside zCDP losses: dp-accounting's Renyi accountant (not replace_one,
    whose meaning differs between its classes)."""
    if replaces(neighbouring) or not any(isinstance(k, SampledGaussian) for k in kinds):
        return None
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for kind, count in kinds.items():
        if isinstance(kind, SampledGaussian):
            event = dp_accounting.PoissonSampledDpEvent(
                kind.rate, dp_accounting.GaussianDpEvent(1 / kind.mu)
            )
        elif isinstance(kind, GaussianKind):
            event = dp_accounting.GaussianDpEvent(1 / kind.mu)
        elif isinstance(kind, (Concentrated, BoundedRange, Pure)):
            rho = {
                "concentrated": lambda k: k.rho,
                "bounded_range": lambda k: k.eta**2 / 8,
                "pure": lambda k: k.epsilon**2 / 2,
            }[kind.name](kind)
            event = dp_accounting.ZCDpEvent(rho)
        else:
            return None
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _composed(kinds: Counter[Kind], neighbouring: Neighbouring) -> Any:
    """One pessimistic distribution of the whole loss; None if a kind has none."""
    mu = _total_mu(kinds)
    parts = Counter({k: c for k, c in kinds.items() if not isinstance(k, GaussianKind)})
    if mu > 0:
        parts[GaussianKind(mu, mu)] = 1
    widest = max(_span(kind, neighbouring) for kind in parts)
    step = max(1e-2 / math.sqrt(sum(parts.values())), widest / MOST_OF_ONE)
    while True:
        used = []
        for kind, times in parts.items():
            one = None if isinstance(kind, Concentrated) else kind.distribution(step, neighbouring)
            if one is None:
                return None
            used.append((one, times))
        try:
            return composed(used)
        except TooFine as too_fine:
            step *= 1.5 * too_fine.times


def _span(kind: Kind, neighbouring: Neighbouring) -> float:
    """About how far apart the losses of one release lie, tails and all."""
    mu = records_moved(neighbouring) * float(getattr(kind, "mu", 0.0))
    pure = kind.pure(neighbouring)
    return mu * (mu + 20.0) + (2 * pure if pure < math.inf else 0.0)


def _distribution_route(
    kinds: Counter[Kind], delta: float, neighbouring: Neighbouring, target: float | None = None
) -> float | None:
    """Convolve dominating distributions, halving the grid until epsilon settles.

    Every grid is pessimistic, so the smallest answer is valid; refining only tightens it. Below a
    ``target`` there is nothing more to learn, and far above it no grid brings the answer back.
    """
    if delta < SMALLEST_DELTA or any(isinstance(kind, Concentrated) for kind in kinds):
        return None
    mu = _total_mu(kinds)
    kinds = Counter({k: c for k, c in kinds.items() if not isinstance(k, GaussianKind)})
    if mu > 0:
        kinds[GaussianKind(mu, mu)] = 1
    count = sum(kinds.values())
    # Rounding to the grid adds a drift of about count * step^2 / 8 to the loss.
    widest = max(_span(kind, neighbouring) for kind in kinds)
    step = max(4e-2 / math.sqrt(count), widest / MOST_OF_ONE)
    lumps = [(c, k.pure(neighbouring)) for k, c in kinds.items()]
    lump = max(((c, e) for c, e in lumps if e < math.inf), default=(0, math.inf))[1]
    if lump < math.inf:
        # A grid that holds the commonest atom does not round it up, release after release.
        step = lump / math.ceil(lump / step) * (1 + 1e-12)
    best = math.inf
    for _ in range(20):
        parts = []
        for kind, times in kinds.items():
            one = kind.distribution(step, neighbouring)
            if one is None:
                return None
            parts.append((one, times))
        try:
            found = epsilon_of(composed(parts), delta)
        except TooFine as too_fine:
            if best < math.inf:
                break
            step *= 1.5 * too_fine.times
            continue
        settled = math.isfinite(found) and best - found <= GRID_CHANGE * max(found, 1e-3)
        best = min(best, found)
        decided = target is not None and (best <= target or best > 2 * target + 1e-3)
        if settled or decided or best / step > MOST_POINTS or 2 * widest / step > MOST_OF_ONE:
            break
        step /= 2
    return best
