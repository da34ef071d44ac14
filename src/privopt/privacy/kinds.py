"""The kinds of privacy loss an event can carry. Append-only: a kind never changes its meaning.

A kind is plain public data. It answers, for a neighbouring relation, what is known about its loss:
its pure epsilon, its GDP parameter, its Renyi curve, a dominating privacy-loss distribution.
``None`` (or infinity for the pure epsilon) means "not known", and the accountant takes another
route or refuses by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaincc, log_ndtr

from privopt.privacy.budget import Neighbouring, Refused, records_moved, replaces
from privopt.privacy.profiles import (
    after_gaussian,
    folded_tail,
    rayleigh_tail,
    replace_tail,
    truncated_tail,
)
from privopt.privacy.sampled import fixed_size_distribution, poisson_distribution

KINDS: dict[str, type[Kind]] = {}


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """One privacy loss, described sufficiently for accounting and nothing more."""

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Not super(): a slotted dataclass is built twice and the first copy's cell would be stale.
        object.__init_subclass__()
        KINDS[cls.name] = cls

    def pure(self, neighbouring: Neighbouring) -> float:
        """Epsilon of pure differential privacy."""
        return math.inf

    def gdp(self) -> float | None:
        """Gaussian differential privacy parameter, if the loss is exactly Gaussian."""
        return None

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        """Renyi divergence bound at order alpha."""
        return None

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        """Pessimistic privacy-loss distribution on a grid of the given step."""
        return None

    @abstractmethod
    def strength(self) -> float:
        """A number that grows with the loss, for ordering two events of one kind."""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.name, **asdict(self)}


def kind_from_dict(data: dict[str, Any]) -> Kind:
    """Inverse of ``Kind.to_dict``; refuses an unknown kind by name."""
    fields = dict(data)
    name = fields.pop("kind", None)
    if name not in KINDS:
        raise Refused(f"unknown event kind {name!r}: this version of privopt cannot account it.")
    return KINDS[name](**fields)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}.")


@dataclass(frozen=True, slots=True)
class GaussianKind(Kind):
    """Gaussian noise on a value that one record moves by mu standard deviations.

    ``single`` is how far one record's own contribution reaches, also in standard deviations. It
    equals ``mu`` under zero_out and add_remove; under replace_one mu is the diameter (two records),
    single the radius (one), and a sampled batch needs the radius.
    """

    name: ClassVar[str] = "gaussian"
    mu: float
    single: float

    def __post_init__(self) -> None:
        _check_positive("mu", self.mu)
        _check_positive("single", self.single)

    def gdp(self) -> float | None:
        return self.mu

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        return alpha * self.mu**2 / 2

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        return gaussian_distribution(self.mu, step)

    def strength(self) -> float:
        return self.mu


@dataclass(frozen=True, slots=True)
class Pure(Kind):
    """Any epsilon-DP release: Laplace, norm-Gamma, pure objective perturbation."""

    name: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    def pure(self, neighbouring: Neighbouring) -> float:
        return self.epsilon

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        return float(randomised_response_renyi(self.epsilon, alpha))

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        return pure_distribution(self.epsilon, step)

    def strength(self) -> float:
        return self.epsilon


@dataclass(frozen=True, slots=True)
class BoundedRange(Kind):
    """Selection whose log-odds stay in an interval of length eta (exponential mechanism, Gumbel).

    eta-DP, and eta^2/8-zCDP (Cesar and Rogers, 2021).
    """

    name: ClassVar[str] = "bounded_range"
    eta: float

    def __post_init__(self) -> None:
        _check_positive("eta", self.eta)

    def pure(self, neighbouring: Neighbouring) -> float:
        return self.eta

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        return min(alpha * self.eta**2 / 8, float(randomised_response_renyi(self.eta, alpha)))

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        return pure_distribution(self.eta, step)

    def strength(self) -> float:
        return self.eta


@dataclass(frozen=True, slots=True)
class Concentrated(Kind):
    """A release known to be rho-zCDP."""

    name: ClassVar[str] = "concentrated"
    rho: float

    def __post_init__(self) -> None:
        _check_positive("rho", self.rho)

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        return alpha * self.rho

    def strength(self) -> float:
        return self.rho


@dataclass(frozen=True, slots=True)
class ObjectiveGaussian(Kind):
    """Gaussian objective perturbation of a convex smooth loss.

    mu = L/sigma with L the Lipschitz constant of one record (never doubled: the replace-one
    formulas do that themselves). ``log_determinant`` = rank * log(1 + smoothness/lambda).
    ``one_signed``: each record's slope keeps its sign. ``dimension``: dimension of the fixed
    subspace that holds all gradients of one record (1 for a generalised linear model).

    Add, remove, zero out: with the record present the loss is at most
    log_determinant + (mu^2/2 + mu Z)_+ ; in the other direction (mu^2/2 + mu Z)_+ if one-signed and
    mu^2/2 + mu |Z| otherwise. Replace: log_determinant + 2 mu^2 + mu max(2 cos(phi) |Z|, 2 sin(phi)
    |Z'|). Dimension m > 1: |Z| becomes a chi variable with m (replace: 2m) degrees of freedom.
    """

    name: ClassVar[str] = "objective_gaussian"
    mu: float
    log_determinant: float
    one_signed: bool
    dimension: int = 1

    def __post_init__(self) -> None:
        _check_positive("mu", self.mu)
        if not 0 <= self.log_determinant < math.inf:
            raise ValueError("log_determinant must be non-negative and finite.")
        if self.dimension < 1:
            raise ValueError("dimension must be a positive integer.")

    def strength(self) -> float:
        return self.mu

    def delta_after_gaussian(
        self, epsilon: float, mu: float, neighbouring: Neighbouring
    ) -> float | None:
        """Profile of this release composed with a mu-GDP one, exact for dimension 1."""
        if self.dimension > 1:
            return None
        c, own = self.log_determinant, self.mu
        if replaces(neighbouring):
            kink = c + 2 * own**2
            return after_gaussian(lambda t: replace_tail(t, own, c), epsilon, mu, kink)
        present = after_gaussian(lambda t: truncated_tail(t - c, own), epsilon, mu, c)
        if self.one_signed:
            return present
        shift = own**2 / 2
        absent = after_gaussian(lambda t: folded_tail(t, own, shift, 1.0), epsilon, mu, shift)
        return max(present, absent)

    def renyi(self, alpha: float, neighbouring: Neighbouring) -> float | None:
        if self.dimension > 1:
            return None
        mu = records_moved(neighbouring) * self.mu
        t = (alpha - 1) * mu
        tail = t**2 / 2 + math.log(2) + float(log_ndtr(t))
        return self.log_determinant + mu**2 / 2 + tail / (alpha - 1)

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        c, mu, m = self.log_determinant, self.mu, self.dimension
        shift = mu**2 / 2
        if replaces(neighbouring):
            low = c + 2 * mu**2
            if m > 1:
                both = rounded_up(_chi_survival(low, 2 * mu, 2 * m), low, step)
            else:
                both = connected(lambda t: rayleigh_tail(t - low, 2 * mu), low, step)
            return two_sided(both, both)
        if m > 1:
            chi = _chi_survival(shift, mu, m)
            present = rounded_up(lambda w: chi(w - c), c + shift, step)
            return two_sided(present, rounded_up(chi, shift, step))
        present = connected(lambda t: truncated_tail(t - c, mu), c, step)
        if self.one_signed:
            return two_sided(present, connected(lambda t: truncated_tail(t, mu), 0.0, step))
        return two_sided(present, connected(lambda t: folded_tail(t, mu, shift, 1.0), shift, step))


@dataclass(frozen=True, slots=True)
class SampledGaussian(Kind):
    """One Poisson batch with rate q, released with Gaussian noise: all its questions together.

    ``mu`` is one record's own sensitivity in standard deviations (the radius, under every
    relation).
    """

    name: ClassVar[str] = "sampled_gaussian"
    rate: float
    mu: float

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        if self.rate >= 1:
            return gaussian_distribution(records_moved(neighbouring) * self.mu, step)
        return poisson_distribution(self.rate, self.mu, step, replaces(neighbouring))

    def strength(self) -> float:
        return self.mu


@dataclass(frozen=True, slots=True)
class FixedSizeGaussian(Kind):
    """One batch of fixed size without replacement, released with Gaussian noise, all questions
    together; replace_one only.

    ``rate`` is the share of the records in a batch; ``mu`` is the movement of the batch's total, in
    standard deviations, when one of its records is replaced (the diameter).
    """

    name: ClassVar[str] = "fixed_size_gaussian"
    rate: float
    mu: float

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        if not replaces(neighbouring):
            return None
        if self.rate >= 1:
            return gaussian_distribution(self.mu, step)
        return fixed_size_distribution(self.rate, self.mu, step)

    def strength(self) -> float:
        return self.mu


def randomised_response_renyi(epsilon: Any, alpha: float) -> Any:
    """Renyi divergence of randomised response, which dominates every epsilon-DP release."""
    log_p = -np.log1p(np.exp(-epsilon))
    log_q = log_p - epsilon
    first = alpha * log_p + (1 - alpha) * log_q
    second = alpha * log_q + (1 - alpha) * log_p
    return np.logaddexp(first, second) / (alpha - 1)


def _chi_survival(shift: float, scale: float, degrees: int) -> Any:
    def survival(w: np.ndarray) -> np.ndarray:
        x = np.maximum(np.asarray(w, dtype=float) - shift, 0.0) / scale
        return np.where(w < shift, 1.0, gammaincc(degrees / 2, x**2 / 2))

    return survival


# ---------------------------------------------------------------- distributions (dp-accounting)
def gaussian_distribution(mu: float, step: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)


def pure_distribution(epsilon: float, step: float) -> Any:
    """Randomised response, which dominates every epsilon-DP release, with each of its two atoms
    spread over its neighbours l on the grid so that both the mass and the sum of mass e^-l stay.

    The profile is a sum of mass (1 - e^(t - l))_+, convex in e^-l: a spread that keeps its mean
    raises it, by second order in the step. In the other direction the atoms change places.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    below = math.floor(epsilon / step)
    upper = min(max(math.expm1(below * step - epsilon) / math.expm1(-step), 0.0), 1.0)
    likely = 1 / (1 + math.exp(-epsilon))
    mass = np.zeros(2 * below + 3)
    mass[-2:] += likely * np.array([1 - upper, upper])
    mass[:2] += mass[:-3:-1] * np.exp(-step * np.array([below + 1, below]))
    return pld.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(step, -below - 1, mass, 0.0, pessimistic_estimate=True)
    )


def two_sided(present: Any, absent: Any) -> Any:
    """One distribution for each direction: the record present or absent in the first data set."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(present, absent)


def rounded_up(survival: Callable[[np.ndarray], np.ndarray], least: float, step: float) -> Any:
    """A loss given by its survival function, each value rounded up to the grid."""
    from dp_accounting.pld import pld_pmf

    first, last = math.floor(least / step), math.ceil(_end_of(survival, least, step) / step)
    tail = survival(np.arange(first, last + 1) * step)
    tail[0] = 1.0
    # The atom at the least value rounds up to the first grid point at or above it.
    mass = np.maximum(tail[:-1] - tail[1:], 0.0)
    return pld_pmf.DensePLDPmf(step, first + 1, mass, float(tail[-1]), pessimistic_estimate=True)


def connected(profile: Callable[[np.ndarray], np.ndarray], least: float, step: float) -> Any:
    """A loss given by its profile delta(t) = E(1 - e^(t - W))_+, W >= least, read at grid points.

    Linear interpolation in e^t lies above the convex profile and touches it on the grid
    (Doroshenko et al., 2022): pessimistic, with an error of second order in the step.
    """
    from dp_accounting.pld import pld_pmf

    first, last = math.floor(least / step), math.ceil(_end_of(profile, least, step) / step)
    values = np.clip(profile(np.arange(first, last + 1) * step), 0.0, 1.0)
    values = np.maximum.accumulate(values[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, first, last, values)


def _end_of(tail: Callable[[np.ndarray], np.ndarray], least: float, step: float) -> float:
    """A point beyond which a tail no longer matters."""
    top = max(abs(least), step)
    while tail(np.array([top]))[0] > 1e-16:
        top *= 1.5
    return top
