"""Plans from a noise multiplier: the epsilon that a number of steps spends, or the number of steps
that an epsilon pays for. Both follow from public numbers, before any data is used.

A run without an end in sight is a run of as many steps as its budget pays for at that noise. That
number is public, so to stop there says nothing of the data.
"""

from __future__ import annotations

import math

from privopt.privacy import Accountant, Budget, Neighbouring
from privopt.privacy.batches import batch_charge
from privopt.privacy.events import FULL, Sampling
from privopt.privacy.factorizations import Independent
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_epsilon
from privopt.torch.plan import TrainingPlan, _fixed, choose_batches

MOST_STEPS = 1 << 17
"""Of a run that ends when its budget is spent."""
ROUNDING = 1e-7
"""Room between the epsilon of a plan and that of its log, which is added up in another order."""


def epsilon_of(
    plan: TrainingPlan, delta: float, neighbouring: Neighbouring, rate: float, epochs: int
) -> float:
    """What all steps of a plan spend."""
    steps = plan.factorization.steps
    if plan.batches == "poisson":
        budget = Budget(1.0, delta, neighbouring)
        charge = batch_charge(budget, Sampling(rate), steps, plan.noise_multiplier)
        return Accountant(neighbouring).epsilon(charge, delta) * (1 + ROUNDING)
    rule = Participation.epochs(epochs, -(-steps // epochs))
    loss = plan.factorization.sensitivity_squared(rule)
    return gaussian_epsilon(math.sqrt(loss) / plan.noise_multiplier, delta) * (1 + ROUNDING)


def fixed_plan(
    multiplier: float, steps: int, epochs: int, noise: str, batches: str, neighbouring: Neighbouring
) -> TrainingPlan:
    """The plan that noise of this multiplier makes."""
    if not 0 < multiplier < math.inf:
        raise ValueError(f"noise_multiplier must be a positive number, got {multiplier!r}.")
    noise = "independent" if noise == "auto" else noise
    batches = choose_batches(noise, batches, neighbouring)
    if batches == "poisson" and noise != "independent":
        raise ValueError(
            f"the groups of {noise} noise on Poisson batches are chosen for an epsilon: give "
            'epsilon= in place of noise_multiplier=, or batches="fixed".'
        )
    rule = Participation.epochs(epochs, -(-steps // epochs))
    factorization = Independent(steps) if noise == "independent" else _fixed(noise, steps, rule)
    error = factorization.errors(multiplier**2)[1]
    return TrainingPlan(noise, batches, 1, multiplier, factorization, error)


def open_plan(
    budget: Budget, multiplier: float, steps_per_epoch: int, rate: float, noise: str, batches: str
) -> TrainingPlan:
    """As many steps as the budget pays for."""
    if noise not in ("auto", "independent"):
        raise ValueError("epochs=None needs independent noise: other noise is made for an end.")
    first = fixed_plan(multiplier, 1, 1, "independent", batches, budget.neighbouring)
    sampled = first.batches == "poisson"
    accountant = Accountant(budget.neighbouring)

    def pays(count: int) -> bool:
        """For that many steps, or passes over fixed batches."""
        charge = batch_charge(budget, Sampling(rate) if sampled else FULL, count, multiplier)
        return accountant.holds(charge, budget.epsilon, budget.delta)

    most = MOST_STEPS if sampled else max(1, MOST_STEPS // steps_per_epoch)
    found = 0
    if pays(1):
        found, beyond = 1, 2
        while beyond <= most and pays(beyond):
            found, beyond = beyond, 2 * beyond
        beyond = min(beyond, most + 1)
        while beyond - found > max(1, found >> 7):  # within a hundredth: steps are many, or few
            middle = (found + beyond) // 2
            found, beyond = (middle, beyond) if pays(middle) else (found, middle)
    if not found:
        raise ValueError(
            f"epsilon={budget.epsilon:g} does not pay for one step at noise_multiplier="
            f"{multiplier:g}: more of either."
        )
    steps = found if sampled else found * steps_per_epoch
    return fixed_plan(multiplier, steps, found, "independent", batches, budget.neighbouring)
