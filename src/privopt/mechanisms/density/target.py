"""What is sampled: exp(-potential) on a body, with the potential's derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privopt.mechanisms.density.body import Body
from privopt.oracle.objective import Objective
from privopt.oracle.values import Rises
from privopt.privacy.budget import Refused

ROUNDING = 1e-6
"""Rounding of an envelope."""


@dataclass(frozen=True, eq=False)
class Target:
    """potential(t) = inverse_temperature * (sum of losses + ridge/2 ||theta - middle||^2).

    ``middle`` is the ridge's centre. All arguments are coordinates of the body.
    """

    objective: Objective
    body: Body
    inverse_temperature: float
    ridge: float
    middle: np.ndarray

    @property
    def dimension(self) -> int:
        return self.body.dimension

    @cached_property
    def rises(self) -> Rises:
        """The sum of losses, up to a constant, bounded record by record."""
        assert self.body.domain is not None
        reference = self.body.thetas(self.body.centre[None])[0]
        return Rises.around(self.objective, self.body.domain, reference)

    @property
    def rounding(self) -> float:
        """How far above 0 rounding may carry the logarithm of an acceptance probability."""
        return ROUNDING + self.inverse_temperature * self.rises.count * self.rises.step

    def potentials(self, points: np.ndarray) -> np.ndarray:
        thetas = self.body.thetas(points)
        return self.inverse_temperature * (self.rises.values(thetas) + self._pull(thetas))

    def depths(self, points: np.ndarray) -> np.ndarray:
        """Potentials above the least sum of losses, from exact integers, for points that are all
        the points there are; one record's range is cut off where they lie inside."""
        thetas, rises = self.body.thetas(points), self.rises
        counts = rises.counts(thetas, self.body.inside(points))
        steps = (counts - counts.min()).astype(float)
        # The last factor pays for the rounding of the others.
        unit = self.inverse_temperature * rises.step * (1 - 2.0**-50)
        return unit * steps + self.inverse_temperature * self._pull(thetas)

    def _pull(self, thetas: np.ndarray) -> np.ndarray:
        return self.ridge / 2 * np.sum((thetas - self.middle) ** 2, axis=1)

    def slopes(self, points: np.ndarray) -> np.ndarray:
        """Gradients, one a row."""
        thetas = self.body.thetas(points)
        inner = self.rises.gradients(thetas) + self.ridge * (thetas - self.middle)
        return self.inverse_temperature * (inner @ self.body.axes)

    # ------------------------------------------------------------ for ``minimise``
    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.slopes(theta[None])[0]

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        axes = self.body.axes
        inner = self.objective.hessian(self.body.thetas(theta[None])[0])
        return self.inverse_temperature * (axes.T @ inner @ axes + self.ridge * axes.T @ axes)

    def curvatures(self, theta: np.ndarray) -> object:
        return self.hessian(theta)

    def hessian_product(self, curvatures: object, vector: np.ndarray) -> np.ndarray:
        return np.asarray(curvatures) @ vector

    # ------------------------------------------------------------ record by record
    def margins(self, direction: np.ndarray) -> Any:
        """<x, direction> of each record, for a direction in the parameters."""
        return self.rises.rows.weights(direction, lambda z, y, size: z)

    def labels(self) -> Any:
        return self.rises.rows.weights(self.body.origin, lambda z, y, size: y)

    def gram(self, weights: Any) -> np.ndarray:
        """The Hessian of the potential if the losses had these curvatures."""
        rows = self.objective.rows
        columns = [rows.weighted_product(weights, axis) for axis in self.body.axes.T]
        inner = np.column_stack(columns) + self.ridge * self.body.axes
        return self.inverse_temperature * (self.body.axes.T @ inner)


def checked(log_acceptance: np.ndarray, rounding: float = ROUNDING) -> np.ndarray:
    """The same numbers; refuses where an envelope lies below the density it should cover."""
    if np.any(log_acceptance > rounding):
        raise Refused(
            "an envelope of the exponential mechanism was exceeded: nothing is released, the "
            "budget is spent. Please report this as a privacy bug."
        )
    return log_acceptance
