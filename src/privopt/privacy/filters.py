r"""Privacy filters: when may one more fit be charged, if its budget was chosen after seeing others?

Adding up what was spent is not enough. Whoever chooses the next fit has seen the answers of the
earlier ones and may let its *parameters* depend on them. Composition theorems for fixed parameters,
also those of privacy-loss distributions, do not cover that: a user who turns to Laplace noise after
some answers and to Gaussian noise after others can exceed a budget that each of the two sequences
alone would keep. So the remaining budget is itself a pair of distributions, fixed before each fit.

Theorem. Let f_0 be a trade-off function, and let fit k+1, chosen in any way from the answers of
fits 1..k, be admitted only together with an f_(k+1) that is fixed before its answer is seen and for
which M (x) f_(k+1) is dominated by f_k, M being the fit's own trade-off function. Then all answers
together are dominated by f_0. (Backward induction: given the first k answers, what follows is
dominated by f_k, by the admission rule and the composition theorem for *two* mechanisms with fixed
trade-off functions, the second adaptive; Dong, Roth and Su, 2022.)

Two families of remainders are used, and one passage between them.

* ``basic``: f is that of (epsilon, delta)-DP. After an (e, d)-DP fit (epsilon - e, delta - d)
  remains. This is basic composition with adaptively chosen parameters (Rogers, Roth, Ullman and
  Vadhan, 2016). Any fit has an (e, d).
* ``gaussian``: f is that of N(mu, 1) against N(0, 1). After a fit that is m-GDP, mu^2 - m^2 remains
  (Smith and Thakurta, 2022; Koskela, Tobaben and Honkela, 2023). Gaussian noise has its exact m, so
  the account is what the accountant says of all mechanisms together, and tight. A two-point loss
  with log-odds x + eta and x under the two data sets is G_m with m = h(x + eta) - h(x),
  h = Phi^-1 o logistic; h is odd and concave on the positive axis (the logistic law has heavier
  tails than the normal one in van Zwet's order, 1964), so the worst x is -eta/2. A selection of
  range eta is therefore 2h(eta/2)-GDP, and an epsilon-DP release, whose range is 2 epsilon,
  2h(epsilon)-GDP.
* from basic to gaussian: f_(0, r) (x) G_mu, where G_mu meets (epsilon, (delta - r) / (1 - r)), is
  dominated by f_(epsilon, delta). ``auto`` makes this passage at the first fit with Gaussian noise,
  once. The part r, a twentieth of delta there, is for fits that no Gaussian alone dominates,
  sampled steps and objective perturbation: one whose delta(epsilon) is at most d + (1 - d)
  delta_G(epsilon; m) everywhere, in both directions, is dominated by f_(0, d) (x) G_m, and takes
  m^2 of mu^2 and d of r. (Profiles determine trade-off functions; f_(0, d) (x) f_(0, r - d) is
  above f_(0, r).)

Amounts are integers. Costs are rounded up and totals down, except that a total may be exceeded by
the same one part in 1e9 that a certificate may exceed its budget by.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit, ndtri

from privopt.privacy.accountant import Accountant
from privopt.privacy.budget import Budget, Neighbouring
from privopt.privacy.kinds import BoundedRange, GaussianKind, Kind, Pure
from privopt.privacy.profiles import ROUNDING, gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.privacy.spend import Charge, Spend

Composition = Literal["auto", "basic", "gaussian"]
COMPOSITIONS: tuple[str, ...] = get_args(Composition)

EPSILON_UNITS = 10**12
DELTA_UNITS = 10**18
SQUARE_UNITS = 10**15
"""Units in an epsilon of 1, a delta of 1, and a mu^2 of 1."""
ASIDE, ASIDE_OF_A_FIT = 20, 1e-3
"""The part of delta that a Gaussian account keeps for what is not Gaussian, and how much of its own
delta such a fit takes of it."""
MOST = 2**62
"""Larger totals are cut down to this: less budget, and room in SQLite's integers."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one fit takes: (epsilon, delta) and, where it is known, mu^2; all rounded up.

    ``square`` is None if no Gaussian pair is known to dominate the fit; beside ``aside``, a part of
    delta, if one does so only up to it. ``exact``: all its noise is Gaussian, so that mu^2 says
    everything.
    """

    epsilon: int
    delta: int
    square: int | None
    exact: bool = False
    aside: int = 0

    @classmethod
    def of(cls, planned: Spend, budget: Budget, *, gaussian: bool = False) -> Cost:
        """The cost of a declared spend that keeps its own budget, for an account that is
        ``gaussian`` or not."""
        accountant = Accountant(budget.neighbouring)
        # A fit that keeps its epsilon without any delta takes none, whatever its budget allowed.
        epsilon, delta = accountant.epsilon(planned, 0.0), 0.0
        if epsilon > budget.epsilon * (1 + ROUNDING):
            epsilon, delta = accountant.epsilon(planned, budget.delta), budget.delta
        bills = [charge for _, charge in planned.frontier()]
        squares = [gaussian_square(payment, budget.neighbouring) for payment in bills]
        known = [square for square in squares if square is not None]
        square, aside = _up(max(known, default=0.0), SQUARE_UNITS), 0.0
        if len(known) < len(bills):
            square, aside = MOST, budget.delta * ASIDE_OF_A_FIT
            if gaussian and aside > 0:
                found = [square_beside(each, budget.neighbouring, aside) for each in bills]
                square = _up(max(found), SQUARE_UNITS)
        kinds = {type(kind) for payment in bills for step in payment for kind in step.kinds}
        full = all(step.sampling.full for payment in bills for step in payment)
        return cls(
            _up(epsilon, EPSILON_UNITS),
            _up(delta, DELTA_UNITS),
            square if square < MOST else None,
            exact=full and kinds == {GaussianKind},
            aside=_up(aside, DELTA_UNITS) if square < MOST else 0,
        )

    def covers(self, charge: Charge, neighbouring: Neighbouring) -> bool:
        """Whether the accountant agrees that a charge costs no more than this."""
        epsilon = Accountant(neighbouring).epsilon(charge, self.delta / DELTA_UNITS)
        if epsilon * EPSILON_UNITS > self.epsilon * (1 + ROUNDING):
            return False
        if self.square is None:
            return True
        square = gaussian_square(charge, neighbouring)
        if square is None and self.aside:
            square = square_beside(charge, neighbouring, self.aside / DELTA_UNITS)
        return square is not None and square * SQUARE_UNITS <= self.square * (1 + ROUNDING)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cost:
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left: (epsilon, delta) and, once the account is Gaussian, mu^2 and a part of delta.

    Of a Gaussian account ``epsilon`` and ``delta`` are those that its mu^2 was made from.
    """

    composition: Composition
    epsilon: int
    delta: int
    square: int | None = None
    aside: int = 0

    @classmethod
    def whole(cls, budget: Budget, composition: Composition) -> Remaining:
        """A budget of which nothing is spent."""
        if composition not in COMPOSITIONS:
            known = ", ".join(COMPOSITIONS)
            raise ValueError(f"composition must be one of {known}; got {composition!r}.")
        if budget.pure and composition == "gaussian":
            raise ValueError('composition="gaussian" needs delta > 0.')
        left = cls(
            composition,
            _down(budget.epsilon * (1 + ROUNDING), EPSILON_UNITS),
            _down(budget.delta * (1 + ROUNDING), DELTA_UNITS),
        )
        return left.as_gaussian() if composition == "gaussian" else left

    @property
    def gaussian(self) -> bool:
        return self.square is not None

    def as_gaussian(self) -> Remaining:
        """The same budget as a Gaussian pair, in ``auto`` beside a small part of delta."""
        aside = self.delta // ASIDE if self.composition == "auto" else 0
        mu = gaussian_mu(self.epsilon / EPSILON_UNITS, _beside(self.delta, aside))
        return replace(self, square=_down(mu**2, SQUARE_UNITS), aside=aside)

    def turns(self, cost: Cost) -> bool:
        """Whether this cost makes the account Gaussian: not one that takes all there is."""
        may = self.composition == "auto" and not self.gaussian and self.delta > 0
        return may and cost.exact and self.as_gaussian().after(cost) is not None

    def after(self, cost: Cost) -> Remaining | None:
        """What is left after a fit; None if it is not admitted."""
        if self.turns(cost):
            return self.as_gaussian().after(cost)
        if self.square is not None:
            if cost.square is None or cost.square > self.square or cost.aside > self.aside:
                return None
            left = self.square - cost.square
            return replace(self, square=left, aside=self.aside - cost.aside)
        if cost.epsilon > self.epsilon or cost.delta > self.delta:
            return None
        return replace(self, epsilon=self.epsilon - cost.epsilon, delta=self.delta - cost.delta)

    def refunded(self, cost: Cost, was_gaussian: bool) -> Remaining:
        """With a cost given back that was never touched. What was paid before the account became
        Gaussian stays paid: the Gaussian pair was made without it."""
        if was_gaussian != self.gaussian:
            return self
        if self.square is not None:
            square, aside = self.square + (cost.square or 0), self.aside + cost.aside
            return replace(self, square=square, aside=aside)
        return replace(self, epsilon=self.epsilon + cost.epsilon, delta=self.delta + cost.delta)

    def to_dict(self) -> dict[str, Any]:
        amounts = asdict(self)
        del amounts["composition"]
        return amounts

    def with_amounts(self, data: dict[str, Any]) -> Remaining:
        """The same rules with the amounts of ``to_dict``."""
        return replace(self, **{name: data[name] for name in self.to_dict()})


def rest(budget: Budget, left: Remaining) -> tuple[float, float]:
    """(epsilon, delta) of the largest single fit that would still be admitted, without the part
    in 1e9 by which a total may be exceeded."""
    whole = Remaining.whole(budget, "basic")
    bare = replace(
        left,
        epsilon=max(left.epsilon - whole.epsilon + _down(budget.epsilon, EPSILON_UNITS), 0),
        delta=max(left.delta - whole.delta + _down(budget.delta, DELTA_UNITS), 0),
    )
    epsilon, delta = bare.epsilon / EPSILON_UNITS, bare.delta / DELTA_UNITS
    if left.square is not None:
        excess = (left.as_gaussian().square or 0) - (bare.as_gaussian().square or 0)
        square = max(left.square - excess, 0) / SQUARE_UNITS
        delta = _beside(bare.delta, left.as_gaussian().aside)
        epsilon = min(gaussian_epsilon(math.sqrt(square), delta), epsilon)
    return epsilon, delta


def spent(budget: Budget, left: Remaining) -> tuple[float, float]:
    """(epsilon, delta) that all charges together have cost, as the filter counts them."""
    whole = Remaining.whole(budget, "basic")
    epsilon = (whole.epsilon - left.epsilon) / EPSILON_UNITS
    delta = (whole.delta - left.delta) / DELTA_UNITS
    if left.square is not None:
        used = (left.as_gaussian().square or 0) - left.square
        rest = _beside(left.delta, left.as_gaussian().aside)
        epsilon += gaussian_epsilon(math.sqrt(max(used, 0) / SQUARE_UNITS), rest)
        delta = budget.delta
    return epsilon, delta


def gaussian_square(charge: Charge, neighbouring: Neighbouring) -> float | None:
    """mu^2 of a Gaussian pair that dominates a charge; None if none is known."""
    total = 0.0
    for step, count in charge.items():
        for kind in step.resolve(neighbouring):
            mu = gaussian_bound(kind)
            if mu is None:
                return None
            total += count * mu**2
    return total * (1 + 1e-12)


def square_beside(charge: Charge, neighbouring: Neighbouring, aside: float) -> float:
    """The least m^2 with delta(epsilon) <= aside + (1 - aside) delta_G(epsilon; m) for all
    epsilon, read off stairs above the charge's profile; infinite if there is none."""
    epsilons, deltas = Accountant(neighbouring).profile(charge, aside)
    if epsilons[0] > 0 or deltas[-1] > aside:
        return math.inf
    # On each stair delta(epsilon) is at most its value on the left; beyond the last, aside.
    ends, heights = epsilons[1:], deltas[:-1]

    def below(mu: float) -> bool:
        over = [gaussian_delta(float(end), mu) for end in ends]
        return bool(np.all(heights <= aside + (1 - aside) * np.array(over) * (1 - ROUNDING)))

    low, high = 0.0, 1e-3
    while not below(high):
        low, high = high, 2 * high
        if high > 1e3:
            return math.inf
    while high > low * (1 + 1e-4):
        middle = (low + high) / 2
        low, high = (low, middle) if below(middle) else (middle, high)
    return high**2


def _beside(delta: int, aside: int) -> float:
    """The delta of a Gaussian beside which so much of a total is kept apart."""
    whole, kept = delta / DELTA_UNITS, aside / DELTA_UNITS
    return (whole - kept) / (1 - kept)


def gaussian_bound(kind: Kind) -> float | None:
    """The mu of the Gaussian pair that dominates one loss; see the head of this file."""
    if isinstance(kind, GaussianKind):
        return kind.mu
    if isinstance(kind, Pure):
        return 2 * _probit_of_logit(kind.epsilon)
    if isinstance(kind, BoundedRange):
        return 2 * _probit_of_logit(kind.eta / 2)
    return None


def _probit_of_logit(x: float) -> float:
    """Phi^-1 of the logistic function, rounded up; from the lower tail, where it is precise."""
    return -float(ndtri(expit(-x))) * (1 + ROUNDING)


def _up(amount: float, units: int) -> int:
    """Rounded up; what is beyond every total becomes an amount beyond every total."""
    return math.ceil(amount * units) if amount * units < MOST else MOST + 1


def _down(amount: float, units: int) -> int:
    return math.floor(min(amount * units, MOST))
