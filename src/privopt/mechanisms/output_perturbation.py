"""Output perturbation: run an algorithm whose result one record cannot move far, and add noise.

References
----------
Chaudhuri, Monteleoni and Sarwate (2011), JMLR 12; Wu et al. (2017), SIGMOD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from privopt.geometry import Domain, WholeSpace
from privopt.losses import Smoothed
from privopt.mechanisms.mask import Mask, mask_over, pure_scale
from privopt.mechanisms.standard import Coins, of_gaussian, of_pure
from privopt.noise import Source, gaussian, rounded
from privopt.noise.rounded import norm_gamma
from privopt.numerics.newton import minimise_surely
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import FunctionFacts, Sensitivity, SensitivityNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import GaussianKind, Kind, Pure


class Stable(Protocol):
    """A public algorithm on a sealed function, deterministic, whose result moves little."""

    def output_sensitivity(self, sensitivity: Sensitivity) -> float:
        """l2 bound on how far one record moves ``value``; refuses, in a sentence, what has none."""
        ...

    def value(self, objective: Objective) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class OutputPerturbation:
    """Release the result of a stable algorithm with noise in units of its sensitivity S.

    Parameters
    ----------
    noise : {"pure", "gaussian"}
        Density proportional to exp(-||b|| / (multiplier S)), or N(0, (multiplier S)^2 I).
    multiplier : float
    algorithm : Stable
    discrete_noise : bool, default=False
        Exact integers: the result is counted in steps of a public grid and gets discrete Gaussian
        noise; pure noise is put on the counts and covered by a mask, which takes ``PURE_SHARE`` of
        the loss. The algorithm's sensitivity must include its own rounding errors.

    Formal guarantee
    ----------------
    (1/multiplier)-DP for pure noise in any dimension, exactly (1/multiplier)-GDP for Gaussian
    noise, if the algorithm's sensitivity holds for every pair of neighbours. Hardened, up to
    ``numerics`` (docs/proofs/masks.md).
    """

    noise: Literal["pure", "gaussian"]
    multiplier: float
    algorithm: Stable
    accepts: SensitivityNorm = "function"
    discrete_noise: bool = False

    def __post_init__(self) -> None:
        if self.noise not in ("pure", "gaussian"):
            raise ValueError(f'noise must be "pure" or "gaussian", got {self.noise!r}.')
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier must be positive and finite, got {self.multiplier!r}.")

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        self.output_sensitivity(sensitivity)  # refuses here, before anything is logged
        loss = 1 / self.multiplier
        return (Pure(loss),) if self.noise == "pure" else (GaussianKind(loss, loss),)

    def output_sensitivity(self, sensitivity: Sensitivity) -> float:
        if not sensitivity.sampling.full:
            raise Refused("output perturbation takes all records of a view, not a sampled batch.")
        return self.algorithm.output_sensitivity(sensitivity)

    def numerics(self, sensitivity: Sensitivity) -> Numerics | None:
        """How far the hardened program is from the law of ``kinds``; None in floating point."""
        if not self.discrete_noise:
            return None
        mask = self._mask(sensitivity)
        own = mask.numerics()
        if self.noise == "gaussian":
            return own
        ratio, distance = rounded.norm_gamma_numerics(mask.dimension)
        return Numerics(own.log_ratio + ratio, own.distance + distance)

    def run(self, payload: Objective, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        value, output_sensitivity = (
            self.algorithm.value(payload),
            self.output_sensitivity(sensitivity),
        )
        if not self.discrete_noise:
            draw = norm_gamma if self.noise == "pure" else gaussian
            return value + draw(source, self.multiplier * output_sensitivity, value.size)
        mask = self._mask(sensitivity)
        counts = mask.count(value)
        if self.noise == "pure":
            scale = pure_scale(self.multiplier, output_sensitivity)
            counts += mask.count(norm_gamma(source, scale, value.size))
        return mask.cover(counts, source)

    def _mask(self, sensitivity: Sensitivity) -> Mask:
        output_sensitivity, facts = self.output_sensitivity(sensitivity), sensitivity.facts
        assert facts is not None
        return mask_over(self.noise, self.multiplier, output_sensitivity, facts.dimension)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        noise = result - self.algorithm.value(payload)
        radius = self.output_sensitivity(sensitivity)
        if isinstance(kind, Pure):
            return of_pure(noise, radius, 2.0, kind)
        return of_gaussian(noise, radius, kind)


def convex_facts(sensitivity: Sensitivity, what: str, *, smooth: bool = True) -> FunctionFacts:
    """Facts of a loss that is convex, Lipschitz and (if asked) smooth; a sentence for others."""
    facts = sensitivity.facts
    if facts is None or not facts.convex:
        raise Refused(f"{what} needs a convex loss.")
    if smooth and not math.isfinite(facts.smoothness):
        raise Refused(f"{what} needs a smooth loss.")
    if not math.isfinite(facts.lipschitz):
        raise Refused(f"{what} needs a Lipschitz loss: clip its residual.")
    return facts


@dataclass(frozen=True, slots=True)
class Minimiser:
    """argmin over a domain of the sum of losses + regularisation/2 ||theta - centre||^2.

    Parameters
    ----------
    regularisation : float
        Strong convexity Lambda on the sum scale. It must not depend on data.
    tolerance : float
        The computed minimiser is within tolerance L / regularisation of the exact one, rounding
        included, with L the Lipschitz constant of one record.
    domain : Domain, default=WholeSpace()
    centre : tuple of float, optional
    width : float, default=0
        If positive, for losses with a kink: minimise the smoothed loss instead
        (``losses.Smoothed``), which is convex with the same Lipschitz constant, so that the
        sensitivity stays the same.

    Formal guarantee
    ----------------
    Sensitivity (radius + 2 tolerance L) / Lambda with radius = L, or 2 L under replace_one.
    At the minimisers theta of J and theta' of J' = J - h, optimality and strong convexity of J'
    give Lambda ||theta - theta'||^2 <= <grad h(theta), theta' - theta>, so they differ by at most
    ||grad h|| / Lambda; each computed one is within tolerance L / Lambda of its own. Needs a convex
    loss, Lipschitz by enforced row norms. Smoothness serves the certificate only.
    """

    regularisation: float
    tolerance: float
    domain: Domain = field(default_factory=WholeSpace)
    centre: tuple[float, ...] | None = None
    width: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.width < math.inf:
            raise ValueError(f"width must be non-negative and finite, got {self.width!r}.")
        for name in ("regularisation", "tolerance"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}.")

    def output_sensitivity(self, sensitivity: Sensitivity) -> float:
        what = "output perturbation of a minimiser"
        facts = convex_facts(sensitivity, what, smooth=self.width == 0)
        return (sensitivity.radius + 2 * self.tolerance * facts.lipschitz) / self.regularisation

    def value(self, objective: Objective) -> np.ndarray:
        if self.width > 0:
            objective = Objective(objective.rows, Smoothed(objective.loss, self.width))
        size, loss = objective.rows.bounds.size, objective.loss
        gradient_norm = self.tolerance * loss.lipschitz_in("l2", size)
        p = objective.dimension
        theta, rest = minimise_surely(
            objective,
            regularisation=self.regularisation,
            centre=np.zeros(p) if self.centre is None else np.array(self.centre),
            linear=np.zeros(p),
            # What is left covers the sum of the two vectors, one rounding.
            gradient_norm=gradient_norm * (1 - 2.0**-10),
            domain=self.domain,
            smoothness=objective.count * loss.smoothness_in("l2", size),
        )
        return theta + rest
