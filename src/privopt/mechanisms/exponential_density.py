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
from privopt.losses import Loss
from privopt.mechanisms.density import Target, body_of, cells, grid, piecewise_linear, sandwich
from privopt.mechanisms.density import tangents as adaptive
from privopt.mechanisms.density.mode import mode
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.objective import Objective
from privopt.oracle.reach import FunctionFacts, Reach, ReachNorm
from privopt.privacy.budget import Refused
from privopt.privacy.kinds import BoundedRange, Gaussian, Kind

Method = Literal["piecewise_linear", "tangents", "cells", "sandwich", "grid"]
METHODS = ("piecewise_linear", "tangents", "cells", "sandwich", "grid")


def loss_range(loss: Loss, size: float, domain: Domain, p: int) -> float:
    """Largest max - min on the domain of one record's loss, for rows of norm at most ``size``.

    The smaller of two enforced bounds: the loss's own range over all margins that rows and domain
    allow, with labels of any size; and Lipschitz constant times diameter.
    """
    if not domain.bounded:
        return math.inf
    farthest = float(np.linalg.norm(domain.centre(p))) + domain.radius("l2", p)
    return min(
        loss.range_on(size * farthest, math.inf),
        loss.lipschitz_in("l2", size) * domain.diameter("l2", p),
    )


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

    Samplers are exact in real arithmetic; floating point leaves out events of probability about
    2^-53 per candidate. They draw until a point is accepted, so the time depends on the data:
    do not let an adversary measure it.
    """

    noise: Literal["pure", "gaussian"]
    multiplier: float
    domain: Domain
    method: Method
    regularisation: float = 0.0
    centre: tuple[float, ...] | None = None
    spacing: float = 0.0
    accepts: ReachNorm = "function"

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

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        self._facts(reach)
        strength = 1 / self.multiplier
        if self.noise == "pure":
            return (BoundedRange(strength),)
        return (Gaussian(strength, strength * (reach.single / reach.radius)),)

    def run(self, payload: Objective, reach: Reach, source: Source) -> np.ndarray:
        body = body_of(self.domain, self._facts(reach).dimension)
        if body.dimension == 0:
            return body.origin.copy()  # a domain of one point
        target = self.target(payload, reach, 1 / self.multiplier)
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

    def target(self, payload: Objective, reach: Reach, strength: float) -> Target:
        """The density that a release of this strength (eta or mu) is drawn from."""
        facts = self._facts(reach)
        p = facts.dimension
        records = reach.radius / reach.single
        if self.noise == "pure":
            size = payload.rows.bounds.size
            temperature = strength / (records * loss_range(payload.loss, size, self.domain, p))
        else:
            temperature = self.regularisation * (strength / (records * facts.lipschitz)) ** 2
        middle = np.zeros(p) if self.centre is None else np.array(self.centre)
        payload = _with_near_labels(payload, self.domain)
        return Target(payload, body_of(self.domain, p), temperature, self.regularisation, middle)

    def _facts(self, reach: Reach) -> FunctionFacts:
        facts = reach.facts
        if facts is None or not 0 < facts.lipschitz < math.inf:
            raise Refused("the exponential mechanism needs a Lipschitz loss: clip its residual.")
        if not facts.convex and (self.noise == "gaussian" or self.method != "grid"):
            raise Refused('the exponential mechanism draws from a convex loss, or method="grid".')
        if not reach.sampling.full:
            raise Refused("the exponential mechanism is accounted for all records, not a sample.")
        return facts


def _with_near_labels(payload: Objective, domain: Domain) -> Objective:
    """The same losses on the domain, up to constants, with labels of moderate size.

    One label of 1e300 would swallow every other record in a floating-point sum, and so change the
    density by far more than one record may.
    """
    rows, loss = payload.rows, payload.loss
    if loss.classification or not math.isfinite(loss.linear_beyond):
        return payload
    p = rows.dimension
    farthest = float(np.linalg.norm(domain.centre(p))) + domain.radius("l2", p)
    most = 2 * (rows.bounds.size * farthest + loss.linear_beyond)
    labels = rows.weights(np.zeros(p), lambda z, y, size: y)
    return Objective(rows.labelled(labels.clip(-most, most), False), loss)
