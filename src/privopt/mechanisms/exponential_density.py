"""The exponential mechanism on a convex body: release one exact draw from exp(-loss) on it.

References
----------
McSherry and Talwar (2007), FOCS; Bassily, Smith and Thakurta (2014), FOCS; Dong, Durfee and Rogers
(2020), ICML (bounded range); Gopi, Lee and Liu (2022), COLT (the regularised mechanism).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privopt.geometry import Domain
from privopt.mechanisms.density import Target, body_of, cells, grid, piecewise_linear, sandwich
from privopt.mechanisms.density import tangents as adaptive
from privopt.mechanisms.density.draws import NUMERICS
from privopt.mechanisms.density.mode import mode
from privopt.mechanisms.standard import Coins, of_point, places_on_lines
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import FunctionFacts, Sensitivity, SensitivityNorm
from privopt.oracle.values import loss_range
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import BoundedRange, GaussianKind, Kind

Method = Literal["piecewise_linear", "tangents", "cells", "sandwich", "grid"]
METHODS = ("piecewise_linear", "tangents", "cells", "sandwich", "grid")


@dataclass(frozen=True, slots=True)
class ExponentialDensity:
    """Release theta with density proportional to exp(-k (sum of losses + ridge)) on the domain,
    ridge = regularisation/2 ||theta - centre||^2.

    Parameters
    ----------
    noise : {"pure", "gaussian"}
        How k follows from the multiplier. With a = 2 under replace_one and 1 otherwise, Omega the
        enforced range of one record's loss on the domain and L its Lipschitz constant:
        "pure": k = 1 / (multiplier a Omega); "gaussian": k = regularisation / (multiplier a L)^2.
    multiplier : float
        Noise in those units.
    domain : Domain
        Public and bounded.
    method : {"piecewise_linear", "tangents", "cells", "sandwich", "grid"}
        The sampler. It changes the time, not the law, except for the grid, whose base measure is
        the counting measure of its points.
    regularisation : float
        Strong convexity of the ridge, on the sum scale, data-free.
    centre : tuple of float, optional
        Centre of the ridge; the origin if None.
    spacing : float
        Distance of neighbouring points of the grid.

    Formal guarantee
    ----------------
    * pure: the log-density ratio of two neighbours lies in an interval of length 1/multiplier,
      because the losses of the changed record do, times k; so (1/multiplier)-bounded range, and
      (1/multiplier)-DP. No property of the loss is used but its enforced range.
    * gaussian: (1/multiplier)-GDP, because k (sum + ridge) is (k regularisation)-strongly convex
      and changes by a function with Lipschitz constant k a L. Uses convexity of the loss.

    Losses enter as differences to their values at the domain's centre, bounded record by record
    (``oracle.values``). "piecewise_linear" and "grid" (without a ridge) release a point of a public
    grid by exact integers: the guarantee holds for the program, up to ``numerics``
    (docs/proofs/density-draws.md). The others are exact in real arithmetic only: they draw in
    floating point until a point is accepted, so low-order bits and the time depend on the data,
    and the event says so by having no ``numerics``.
    """

    noise: Literal["pure", "gaussian"]
    multiplier: float
    domain: Domain
    method: Method
    regularisation: float = 0.0
    centre: tuple[float, ...] | None = None
    spacing: float = 0.0
    accepts: SensitivityNorm = "function"

    def __post_init__(self) -> None:
        if self.noise not in ("pure", "gaussian"):
            raise ValueError(f'noise must be "pure" or "gaussian", got {self.noise!r}.')
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}.")
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier must be positive and finite, got {self.multiplier!r}.")
        if not 0 <= self.regularisation < math.inf:
            raise ValueError("regularisation must be non-negative and finite.")
        if self.noise == "gaussian" and not self.regularisation > 0:
            raise ValueError('noise="gaussian" needs a positive regularisation.')
        if self.method == "grid" and self.noise == "gaussian":
            raise ValueError('noise="gaussian" is proved for a density, not for method="grid".')
        if self.method == "grid" and not 0 < self.spacing < math.inf:
            raise ValueError(f"spacing must be positive and finite, got {self.spacing!r}.")
        if not self.domain.bounded:
            raise ValueError("the exponential mechanism needs a bounded domain.")

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        self._facts(sensitivity)
        strength = 1 / self.multiplier
        if self.noise == "pure":
            return (BoundedRange(strength),)
        return (GaussianKind(strength, strength * (sensitivity.single / sensitivity.radius)),)

    def numerics(self, sensitivity: Sensitivity) -> Numerics | None:
        exact = self.method in ("piecewise_linear", "grid") and self.regularisation == 0
        facts = self._facts(sensitivity)
        # A product of matrices may round a row by where it stands, which add_remove shifts.
        exact = exact and (facts.in_place or facts.dimension == 1)
        return NUMERICS if exact else None

    def run(self, payload: Objective, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        body = body_of(self.domain, self._facts(sensitivity).dimension)
        if body.dimension == 0:
            return body.origin.copy()  # a domain of one point
        target = self.target(payload, sensitivity, 1 / self.multiplier)
        if volume(source) == 0:
            point = mode(target)  # the limit of no noise
        elif self.method == "piecewise_linear":
            point = piecewise_linear.sample(target, source)
        elif self.method == "tangents":
            point = adaptive.sample(target, source)
        elif self.method == "cells":
            point = cells.sample(target, source)
        elif self.method == "sandwich":
            point = sandwich.sample(target, source)
        else:
            point = grid.sample(target, source, self.spacing)
        return target.body.thetas(point[None])[0]

    def target(self, payload: Objective, sensitivity: Sensitivity, strength: float) -> Target:
        """The density that a release of this strength (eta or mu) is drawn from."""
        facts = self._facts(sensitivity)
        p = facts.dimension
        records = sensitivity.radius / sensitivity.single
        if self.noise == "pure":
            size = payload.rows.bounds.size
            temperature = strength / (records * loss_range(payload.loss, size, self.domain, p))
        else:
            temperature = self.regularisation * (strength / (records * facts.lipschitz)) ** 2
        middle = np.zeros(p) if self.centre is None else np.array(self.centre)
        return Target(payload, body_of(self.domain, p), temperature, self.regularisation, middle)

    def standard_noise(
        self,
        payload: Objective,
        result: np.ndarray,
        sensitivity: Sensitivity,
        kind: Kind,
        coins: Coins,
    ) -> np.ndarray:
        """The places of the release on lines through it, or among the points of the grid."""
        assert isinstance(kind, (BoundedRange, GaussianKind))
        strength = kind.eta if isinstance(kind, BoundedRange) else kind.mu
        target = self.target(payload, sensitivity, strength)
        body = target.body
        if body.dimension == 0:
            return np.zeros(0)
        point = body.coordinates(result)
        if self.method == "grid":
            points = grid.points(body, self.spacing)
            depths = target.depths(points)
            chosen = int(np.argmin(np.sum((points - point) ** 2, axis=1)))
            return of_point(np.exp(depths.min() - depths), points, chosen, coins)
        return places_on_lines(
            lambda points: -target.potentials(points), body.inside, point, 4 * body.radius, coins
        )

    def log_weights(
        self, payload: Objective, sensitivity: Sensitivity, points: np.ndarray
    ) -> np.ndarray:
        target = self.target(payload, sensitivity, 1 / self.multiplier)
        return -target.potentials(points)

    def landmarks(self, payload: Objective, sensitivity: Sensitivity) -> np.ndarray:
        return body_of(self.domain, self._facts(sensitivity).dimension).landmarks()

    def _facts(self, sensitivity: Sensitivity) -> FunctionFacts:
        facts = sensitivity.facts
        if facts is None or not 0 < facts.lipschitz < math.inf:
            raise Refused("the exponential mechanism needs a Lipschitz loss: clip its residual.")
        if not facts.convex and (self.noise == "gaussian" or self.method != "grid"):
            raise Refused('the exponential mechanism draws from a convex loss, or method="grid".')
        if not sensitivity.sampling.full:
            raise Refused("the exponential mechanism is accounted for all records, not a sample.")
        return facts
