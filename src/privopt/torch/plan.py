"""Which noise, which batches, how much: a plan from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.privacy import Budget, Neighbouring
from privopt.privacy.amplified import compare_bands, cyclic_multiplier
from privopt.privacy.batches import allocated_multiplier
from privopt.privacy.factorizations import Factorization, Independent, Restarts, compare, named
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.torch.batches import rate_of_some

SAMPLED = ("independent", "banded")
"""Noise that Poisson batches amplify."""
MOST_VECTORS, FEWEST_VECTORS = 64, 4
MOST_NUMBERS = 1 << 28
"""What "auto" lets correlated noise keep: vectors of the model's size, a gibibyte as a rule."""


@dataclass(frozen=True)
class TrainingPlan:
    """How the budget is spent; from public numbers alone."""

    noise: str
    batches: str
    groups: int
    noise_multiplier: float
    factorization: Factorization
    error: float
    """Root mean square standard deviation, over the steps, of a coordinate of the running sum of
    gradients, in units of the clip norm."""


def choose_plan(
    budget: Budget,
    records: int,
    batch_size: int,
    epochs: int,
    noise: str,
    batches: str,
    parameters: int = 1,
    repeats: int = 1,
) -> TrainingPlan:
    """Noise, batches and the smallest multiplier that keeps the budget, in units of what a record
    and its copies move."""
    kept = max(FEWEST_VECTORS, min(MOST_VECTORS, MOST_NUMBERS // parameters))
    choose_batches(noise, batches, budget.neighbouring)
    steps_per_epoch = -(-records // batch_size)
    steps = epochs * steps_per_epoch
    check_repeats(repeats, noise, batches)
    if batches == "allocated":
        multiplier = allocated_multiplier(budget, steps_per_epoch, epochs)
        return _sampled(Independent(steps), 1, multiplier, batches)
    rule = Participation.epochs(epochs, steps_per_epoch)
    if noise != "auto":
        named(noise, steps, rule)  # refuses a name it does not know
    sampled = batches != "fixed" and noise in (*SAMPLED, "auto")
    found: list[TrainingPlan] = []
    if sampled and (noise == "independent" or repeats > 1):
        rate = rate_of_some(min(1.0, batch_size / records), repeats)
        multiplier = cyclic_multiplier(budget, steps, 1, rate)
        found.append(_sampled(Independent(steps), 1, multiplier))
    elif sampled:
        most = min(records // batch_size, steps, kept)
        groups = [1 << i for i in range(most.bit_length())]
        for row in compare_bands(budget, steps, records, batch_size, groups):
            found.append(_sampled(row.factorization, row.groups, row.noise_multiplier))
    fixed = budget.neighbouring != "add_remove" and batches != "poisson"
    if fixed and (noise == "auto" or not sampled):
        # The sensitivity under replace_one is the diameter: errors below are in units of the
        # sensitivity.
        mu = gaussian_mu(budget.epsilon, budget.delta)
        names = [noise] if noise != "auto" else [c.name for c in compare(steps, rule)]
        for name in names:
            factorization = _fixed(name, steps, rule)
            if noise == "auto" and factorization.vectors_kept() > kept:
                continue
            loss = factorization.sensitivity_squared(rule)
            multiplier = math.sqrt(loss) / mu * (1 + 1e-12)
            error = factorization.errors(multiplier**2)[1]
            found.append(TrainingPlan(name, "fixed", 1, multiplier, factorization, error))
    if not found:
        raise ValueError(
            f"{noise} noise needs fixed batches, which add_remove does not allow: use noise="
            f'"{SAMPLED[0]}" or "{SAMPLED[1]}".'
        )
    return min(found, key=lambda plan: plan.error)


def check_repeats(repeats: int, noise: str, batches: str) -> None:
    """Refuse batches for which nobody has shown what copies of a record spend.

    In fixed batches they move the steps of their own places: the vector of all steps by the sum of
    what each copy moves, hence by at most k times as much as one of them.
    """
    dealt = batches == "allocated" or (noise == "banded" and batches != "fixed")
    if repeats > 1 and dealt:
        raise ValueError(
            "copies of a record are dealt into several groups or batches there, which is not "
            'accounted: with repeats take batches="fixed", or independent noise.'
        )


def choose_batches(noise: str, batches: str, neighbouring: Neighbouring) -> str:
    """Poisson batches where there is a choice; refuses a pair that no theorem covers."""
    if batches not in ("auto", "poisson", "fixed", "allocated"):
        raise ValueError(f"batches must be auto, poisson, fixed or allocated, got {batches!r}.")
    if batches == "allocated":
        if noise not in ("auto", "independent"):
            raise ValueError(f"allocated batches amplify independent noise only, not {noise}.")
        return batches
    if batches == "fixed" and neighbouring == "add_remove":
        raise ValueError(
            "fixed batches shift when a record is added or removed: use neighbouring="
            '"zero_out" or "replace_one", or batches="poisson".'
        )
    if batches == "poisson" and noise not in (*SAMPLED, "auto"):
        raise ValueError(
            f'Poisson batches amplify {" and ".join(SAMPLED)} noise only: use batches="fixed" '
            f"for {noise}."
        )
    return "fixed" if batches == "fixed" or noise not in (*SAMPLED, "auto") else "poisson"


def _fixed(name: str, steps: int, rule: Participation) -> Factorization:
    """Trees start anew where that helps; everything else is tuned for the rule by itself."""
    if name in ("honaker", "tree"):
        return Restarts.best(name, steps, rule)  # type: ignore[arg-type]
    return named(name, steps, rule)


def _sampled(
    factorization: Factorization, groups: int, multiplier: float, batches: str = "poisson"
) -> TrainingPlan:
    error = factorization.errors(multiplier**2)[1]
    if groups == 1:  # one band is no correlation
        factorization = Independent(factorization.steps)
    return TrainingPlan(factorization.name, batches, groups, multiplier, factorization, error)
