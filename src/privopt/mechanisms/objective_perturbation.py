"""Objective perturbation: add a random linear term to the loss, minimise, release the minimiser.

References
----------
Chaudhuri, Monteleoni and Sarwate (2011), JMLR 12; Kifer, Smith and Thakurta (2012), COLT;
Iyengar et al. (2019), IEEE S&P (approximate minima).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from privopt.geometry import Domain, WholeSpace
from privopt.mechanisms.mask import Mask
from privopt.mechanisms.standard import Coins, of_gaussian, of_norm
from privopt.noise import Source, rounded
from privopt.noise.rounded import gaussian, norm_gamma
from privopt.numerics import NotConverged
from privopt.numerics.accelerated import descend
from privopt.numerics.enclosed_newton import Perturbed, mapped_below
from privopt.numerics.newton import minimise_surely
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import FunctionFacts, Sensitivity, SensitivityNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import GaussianKind, Kind, ObjectiveGaussian, Pure

Noise = Literal["pure", "gaussian"]
Method = Literal["newton", "gradient"]


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation:
    """Release argmin of sum of losses + regularisation/2 ||theta - centre||^2 + <b, theta>.

    Parameters
    ----------
    noise : {"pure", "gaussian"}
        b has density proportional to exp(-||b|| / (multiplier * radius)), or is
        N(0, (multiplier * L)^2 I) with L the Lipschitz constant of one record.
    multiplier : float
        Noise in those units.
    regularisation : float
        Strong convexity lambda of the regulariser, on the sum scale, data-free. It acts on every
        coordinate, the intercept too.
    tolerance : float
        Certified gradient norm of the computed minimiser, in units of L, rounding included.
    output_multiplier : float
        Noise on the released minimiser in units of 2 tolerance L / regularisation, which bounds how
        far two computed minimisers can differ from the exact ones: it pays for the tolerance.
    discrete_noise : bool, default=False
        Output noise in exact integers (``Mask``); pure noise is then Laplace on each coordinate.
        A quarter of the tolerance covers the distance of b from an exact draw.
    centre : tuple of float, optional
        Where the regulariser pulls; the origin by default.
    ridge : tuple of float, optional
        Added to the regularisation of each coordinate, at least 0, public; on the whole space only.
        The regulariser stays data-free and ``regularisation``-strongly convex, which is all that
        the guarantee uses: a ridge may follow from what was released before.
    domain : Domain, optional
        Minimise over this public convex set; the whole space by default. The guarantee is the same:
        the indicator of the domain is a data-free convex regulariser.
    method : {"newton", "gradient"}, default="newton"
        How the certificate is reached; either way it holds.

    Formal guarantee
    ----------------
    Needs, for every record: convex, L-Lipschitz, smooth (with Lipschitz gradient), Hessian of rank
    r; with c = r log(1 + smoothness/lambda):

    * pure: (c + 1/multiplier)-DP, because | ||b + v|| - ||b|| | <= radius for every ||v|| <= radius
      and the log-determinants differ by at most c;
    * gaussian: the profile of ``privacy.kinds.ObjectiveGaussian`` with mu = 1/multiplier, which
      needs the gradients of one record to stay in a fixed subspace (a line, for a GLM);
    * and in both cases the output noise composed on top.

    Hardened, this holds for the program and not for real numbers alone, up to ``numerics``: the
    exact minimiser is never published, and whatever the computed one's last digits tell beyond it
    is within the tolerance that the integers cover (docs/proofs/masks.md).
    """

    noise: Noise
    multiplier: float
    regularisation: float
    tolerance: float
    output_multiplier: float
    centre: tuple[float, ...] | None = None
    ridge: tuple[float, ...] | None = None
    accepts: SensitivityNorm = "function"
    method: Method = "newton"
    domain: Domain = field(default_factory=WholeSpace)
    discrete_noise: bool = False

    def __post_init__(self) -> None:
        if self.method not in ("newton", "gradient"):
            raise ValueError(f'method must be "newton" or "gradient", got {self.method!r}.')
        if self.noise not in ("pure", "gaussian"):
            raise ValueError(f'noise must be "pure" or "gaussian", got {self.noise!r}.')
        for name in ("multiplier", "regularisation", "tolerance", "output_multiplier"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}.")
        if self.ridge is None:
            return
        if not all(0 <= one < math.inf for one in self.ridge):
            raise ValueError("ridge must hold finite numbers that are at least 0.")
        if self.method != "newton" or not isinstance(self.domain, WholeSpace):
            raise ValueError("a ridge for each coordinate needs the whole space and newton.")

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        facts = self._facts(sensitivity)
        c = facts.rank * math.log1p(facts.smoothness / self.regularisation)
        output = 1 / self.output_multiplier
        if self.noise == "pure":
            return (Pure(c + 1 / self.multiplier), Pure(output))
        return (
            ObjectiveGaussian(1 / self.multiplier, c, facts.one_signed, facts.subspace),
            GaussianKind(output, output),
        )

    def numerics(self, sensitivity: Sensitivity) -> Numerics | None:
        """How far the hardened program is from the law of ``kinds``; None in floating point."""
        if not self.discrete_noise:
            return None
        p, mask = self._facts(sensitivity).dimension, self._mask(sensitivity).numerics()
        of_noise = (
            rounded.norm_gamma_numerics if self.noise == "pure" else rounded.gaussian_numerics
        )
        ratio, distance = of_noise(p)
        return Numerics(mask.log_ratio + ratio, mask.distance + distance)

    def run(self, payload: Objective, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        facts = self._facts(sensitivity)
        p, draw = facts.dimension, norm_gamma if self.noise == "pure" else gaussian
        b = draw(source, self._scale(sensitivity), p)
        gradient_norm = self.tolerance * facts.lipschitz
        theta, rest = self._minimise(payload, b, gradient_norm)
        if self.discrete_noise:
            mask = self._mask(sensitivity)
            return mask.cover(mask.count(theta) + mask.count(rest), source)
        scale = self.output_multiplier * 2 * gradient_norm / self.regularisation
        return (theta + rest) + draw(source, scale, p)

    def _scale(self, sensitivity: Sensitivity) -> float:
        """Of the noise b: the scale of its length if pure, its standard deviation if Gaussian."""
        unit = sensitivity.radius if self.noise == "pure" else self._facts(sensitivity).lipschitz
        return self.multiplier * unit

    def _mask(self, sensitivity: Sensitivity) -> Mask:
        facts = self._facts(sensitivity)
        p, gradient_norm = facts.dimension, self.tolerance * facts.lipschitz
        error = noise_error(self.noise, p) * self._scale(sensitivity)
        if 4 * error > gradient_norm * (1 + 1e-9):
            raise Refused("the tolerance does not cover the rounding of the noise: enlarge it.")
        movement = 2 * gradient_norm / self.regularisation
        return Mask(self.noise, self.output_multiplier, movement, p)

    def _minimise(
        self, payload: Objective, b: np.ndarray, gradient_norm: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The minimiser as a sum of two vectors."""
        centre = np.zeros(b.size) if self.centre is None else np.array(self.centre)
        smoothness = payload.count * payload.loss.smoothness_in("l2", payload.rows.bounds.size)
        # A quarter of the tolerance is left to the rounding of b; that of the gradient is enclosed.
        if self.method == "newton":
            return minimise_surely(
                payload,
                regularisation=self.pull,
                centre=centre,
                linear=b,
                gradient_norm=0.75 * gradient_norm,
                domain=self.domain,
                smoothness=smoothness,
            )
        problem = Perturbed(payload, self.regularisation, centre, b)
        theta, distance = centre, 0.75 * gradient_norm / self.regularisation
        for share in (1.5, 6, 24):
            theta = descend(
                payload,
                domain=self.domain,
                smoothness=smoothness,
                regularisation=self.regularisation,
                centre=centre,
                linear=b,
                start=theta,
                distance=distance / share,
            )
            surely = mapped_below(problem, self.domain, theta, smoothness, distance)
            if surely is not None:
                return surely, np.zeros_like(surely)
        raise NotConverged

    @property
    def pull(self) -> Any:
        """The regularisation of each coordinate, its ridge included."""
        if self.ridge is None:
            return self.regularisation
        return self.regularisation + np.array(self.ridge)

    def _facts(self, sensitivity: Sensitivity) -> FunctionFacts:
        facts = sensitivity.facts
        if facts is None or not facts.convex:
            raise Refused("objective perturbation needs a convex loss.")
        if not math.isfinite(facts.smoothness):
            raise Refused("objective perturbation needs a smooth loss.")
        if not math.isfinite(facts.lipschitz):
            raise Refused("objective perturbation needs a Lipschitz loss: clip its residual.")
        return facts

    def standard_noise(
        self,
        payload: Objective,
        result: np.ndarray,
        sensitivity: Sensitivity,
        kind: Kind,
        coins: Coins,
    ) -> np.ndarray:
        """b is the negative gradient of the rest of the objective at a minimiser inside."""
        facts = self._facts(sensitivity)
        away = result - (0.0 if self.centre is None else np.array(self.centre))
        b = -(payload.gradient(result) + self.pull * away)
        if isinstance(kind, ObjectiveGaussian):
            return of_gaussian(b, facts.lipschitz, kind)
        assert isinstance(kind, Pure)
        determinant = facts.rank * math.log1p(facts.smoothness / self.regularisation)
        return of_norm(b, sensitivity.radius / (kind.epsilon - determinant), 2.0, kind)


def noise_error(noise: Noise, p: int) -> float:
    """How far b is from an exact draw, in units of its scale."""
    return rounded.norm_gamma_error(p) if noise == "pure" else rounded.gaussian_error(p)
