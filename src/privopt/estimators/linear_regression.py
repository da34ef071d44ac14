"""Private least squares with the interface of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from privopt.estimators.confidence import GivesIntervals
from privopt.estimators.linear_regressor import LinearRegressor
from privopt.estimators.parameters import parameter
from privopt.facts import Facts
from privopt.losses import Squared
from privopt.losses.squared import default_clip
from privopt.privacy import Budget, Neighbouring
from privopt.problem import Problem


class LinearRegression(GivesIntervals, LinearRegressor):
    """Differentially private linear regression: least squares with clipped residuals.

    A residual counts with its square up to ``residual_clip`` and linearly beyond, so that no record
    can pull harder than that. The noise asks for a ridge penalty of its own, which the plan states.
    Both fade as n epsilon / p grows. With ``bounds`` long rows count less, and predictions have the
    mean of the targets where that is known well enough.

    Parameters
    ----------
    residual_clip : float, optional
        Public bound, in units of y, from which on residuals count linearly; at most the distance of
        ``target_bounds``. By default it grows with n epsilon / p, up to that distance, so that what
        is fitted becomes least squares as soon as noise allows. Rows that are standardised take it
        from a private estimate of y's mean and deviation.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LinearRegression
    >>> x = np.linspace(0, 50, 20_000)[:, None]
    >>> y = 3 * x.ravel() + 20
    >>> model = LinearRegression(1.0, 1e-6, bounds=(0, 50), target_bounds=(0, 200)).fit(x, y)
    >>> bool(model.score(x, y) > 0.95), model.privacy_.private
    (True, True)
    """

    residual_clip: float | None = parameter(default=None)

    def _loss(self) -> Squared:
        if self.residual_clip is None:
            return Squared(residual_clip=default_clip(0.0), declared=False)
        if not 0 < self.residual_clip < float("inf"):
            raise ValueError(
                f"residual_clip must be positive and finite, got {self.residual_clip!r}."
            )
        return Squared(residual_clip=self.residual_clip / self._half())

    def _problem(self, n: int, features: int) -> Problem:
        problem = super()._problem(n, features)
        if self.residual_clip is not None:
            return problem
        relation = cast(Neighbouring, self.neighbouring)
        facts = Facts(problem, n, problem.dimension(features), relation)
        plenty = facts.plenty(Budget(self.epsilon, self.delta, relation), not self.delta)
        return replace(problem, loss=Squared(default_clip(plenty), declared=False))
