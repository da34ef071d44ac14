"""From the loss of one record to that of a group: what a user with several rows can have lost.

Two data sets that differ in the k records of one user are joined by k steps of one record each.

* Pure: k epsilon, since ratios multiply along the steps.
* Bounded range: the log-odds of each step lie in an interval of length eta; sums of k of them lie
  in one of length k eta.
* Gaussian (GDP): k mu (Dong, Roth and Su, 2022); for additive noise, by the triangle inequality.
* zCDP: k^2 rho (Bun and Steinke, 2016).
* Gaussian objective perturbation, by its own derivation. Let g(theta) be the sum of the user's
  gradients. It lies in the span of the user's k rows, which is fixed, and its norm is at most k L.
  As for one record, the ratio of noise densities is at most exp(mu'^2/2 + mu' |P b|/sigma), with
  mu' = k L/sigma and P the projection on that span, so |P b|/sigma is a chi variable with k degrees
  of freedom. The user's curvature M has rank at most k and trace at most k beta, so for H >= lambda
  det(H + M)/det(H) <= (1 + beta/lambda)^k by the inequality of means: k times the log-determinant.
  Slopes of several rows need not share a sign. Under replace_one the same holds with 2k rows and
  2 mu', which the formulas for one record do by themselves.
* Gaussian noise on a Poisson batch: a binomial number of the rows is in it (``sampled_groups``).

Steps compose adaptively: each holds whatever the earlier ones released. Where records are cut into
disjoint parts, a user pays for one of them if all rows of a user lie in one part, as an oracle that
knows the users cuts; otherwise parts are refused, as batches of fixed size are.
"""

from __future__ import annotations

import math
from collections import Counter

from privopt.privacy.budget import Refused
from privopt.privacy.events import FULL, ROOT, Cell
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    Kind,
    ObjectiveGaussian,
    Pure,
)
from privopt.privacy.sampled_groups import SampledGroupGaussian
from privopt.privacy.spend import Charge, Spend, Step


def of_group(kind: Kind, size: int) -> Kind:
    """The loss of ``size`` records together, from the loss of one."""
    match kind:
        case Pure(epsilon):
            return Pure(size * epsilon)
        case BoundedRange(eta):
            return BoundedRange(size * eta)
        case GaussianKind(mu, single):
            return GaussianKind(size * mu, size * single)
        case Concentrated(rho):
            return Concentrated(size**2 * rho)
        case ObjectiveGaussian(mu, log_determinant, _, dimension):
            return ObjectiveGaussian(size * mu, size * log_determinant, False, size * dimension)
    raise Refused(f"the loss of several records together is not known for {kind.name}.")


def grouped(spend: Spend, size: int, *, kept_together: bool = False) -> Spend:
    """What a group of ``size`` records pays.

    ``kept_together``: whoever cut the records into parts left each group in one of them.
    """
    if size == 1:
        return spend
    if set(spend.cells) != {ROOT} and not kept_together:
        raise Refused(
            "rows of one user may lie in several parts of the data: for users, take a solver that "
            "asks all records at once."
        )
    cells: dict[Cell, Charge] = {}
    for cell, charge in spend.cells.items():
        cells[cell] = Counter()
        for step, count in charge.items():
            cells[cell][_of_group(step, size)] += count
    return Spend(cells)


def _of_group(step: Step, size: int) -> Step:
    if step.sampling.full:
        return Step(FULL, tuple(of_group(kind, size) for kind in step.kinds))
    kinds = [kind for kind in step.kinds if isinstance(kind, GaussianKind)]
    if step.sampling.fixed_size or step.sampling.turns or len(kinds) < len(step.kinds):
        raise Refused(
            "no theorem covers several rows of one user in this sampled batch: for users, take "
            'Gaussian noise with sampling="poisson", or a solver that asks all records at once.'
        )
    # One batch: a row is in all of its questions or in none.
    single = math.sqrt(sum(kind.single**2 for kind in kinds))
    return Step(FULL, (SampledGroupGaussian(step.sampling.rate, size * single, size),))
