"""What the planner thinks of solvers, by name: what was measured, and no bound says.

An opinion may name a solver that is not there; a solver without an opinion is ranked by its bound
and by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from privopt.facts import Facts
from privopt.geometry import Polytope, Simplex
from privopt.privacy import Budget
from privopt.solvers.families.coordinates import step_count


def _nothing(facts: Facts, budget: Budget) -> str | None:
    return None


def _never(facts: Facts, budget: Budget) -> bool:
    return False


@dataclass(frozen=True)
class Opinion:
    """``reference``: implemented and right, but never the first choice: another does the same with
    less noise, or in less time. ``measured``: the first choice only where it was simulated, because
    beside others it keeps less of what its bound promises. ``behind``: solvers that do better on
    ordinary data even where their bound is larger; this one is ranked after them. ``steady``: where
    noise prevails its classifiers are on real records what they are on made-up ones. ``prefer``: a
    sentence why it goes first whatever the bounds say. ``leads``: it measures best, or nearly so,
    wherever its bound is the smallest, so that there is nothing to simulate.
    """

    reference: bool = False
    measured: bool = False
    behind: tuple[str, ...] = ()
    steady: bool = False
    prefer: Callable[[Facts, Budget], str | None] = _nothing
    leads: Callable[[Facts, Budget], bool] = _never


def opinion_of(name: str) -> Opinion:
    """What is thought of a solver; nothing in particular of one that is not listed."""
    return OPINIONS.get(name, Opinion())


CLEAR = 4.0
"""n mu / p from which on all directions are told from noise."""


def _bends_gently(facts: Facts, budget: Budget) -> bool:
    # On a simplex or polytope the solution is often a vertex, which iterates reach exactly, as they
    # do the boundary where a loss does not bend at all; one that bends sharply needs a strong
    # ridge, which iterates do without.
    cornered = isinstance(facts.problem.domain, (Simplex, Polytope)) or facts.smoothness() == 0
    gentle = facts.smoothness() < facts.problem.size * facts.lipschitz()
    # Where noise drowns most directions, steps that stop early may do better.
    return not cornered and gentle and facts.plenty(budget, budget.pure) >= CLEAR


def _all_classes(facts: Facts, budget: Budget) -> str | None:
    if facts.problem.column_bounds is not None and facts.problem.intercept:
        return None  # rows that can be standardised are: standardized_softmax
    return (
        f"joint_softmax goes first for {facts.repeats} classes: one model for each class would "
        "split the budget between them, one gradient of all of them does not."
    )


def _all_bounded_classes(facts: Facts, budget: Budget) -> str | None:
    return (
        f"standardized_softmax goes first for {facts.repeats} classes with declared column bounds: "
        "one model for each class would split the budget between them, and on every set measured "
        "it was less accurate."
    )


def _bounded_columns(facts: Facts, budget: Budget) -> str | None:
    if facts.repeats > 2 and not budget.pure:
        return None  # all classes together lose less: standardized_softmax
    return (
        "standardized_objective goes first when column bounds are declared: its bound is for "
        "unknown scales, and on nine data sets it was the most accurate at every epsilon."
    )


def _bounded_columns_of_targets(facts: Facts, budget: Budget) -> str | None:
    return (
        "standardized_regression goes first when column bounds are declared: its bound is for "
        "unknown scales, and on three data sets it was the most accurate, or within .01 R^2 of it."
    )


FEW = 2.0
"""Declared coefficients for each step that can be paid up to which greedy steps find them."""
LONG = 0.25
"""Rows this long, relative to what the bounds of their entries allow, are long."""
NOISY = 0.1
"""sqrt(p) X / (n mu) from which, with no sparsity declared, greedy steps err less than noise in all
columns: measured on problems with five large coefficients, with all, and in between."""


def _few_coefficients(facts: Facts, budget: Budget) -> str | None:
    problem, steps = facts.problem, step_count(facts, budget)
    if problem.sparsity is not None and problem.sparsity <= FEW * steps:
        return (
            f"greedy_coordinate goes first: {problem.sparsity} coefficients are to be found, and "
            f"{steps} steps can be paid."
        )
    if problem.sparsity is not None or problem.intercept or problem.column_bounds is None:
        return None
    long = problem.row_norm >= LONG * problem.column_bounds * math.sqrt(facts.features)
    # Noise of a whole gradient over what all records can say of it.
    noise = problem.size / (math.sqrt(facts.p) * facts.plenty(budget, budget.pure))
    if not long or noise <= NOISY:
        return None
    return (
        "greedy_coordinate goes first: rows are as long as their entries allow, and noise in every "
        "column would be more than a tenth of what all of them say."
    )


REFERENCE, MEASURED = Opinion(reference=True), Opinion(measured=True)
OPINIONS: dict[str, Opinion] = {
    "approximate_minima": REFERENCE,  # objective_perturbation, and noise on top
    "exponential_sampling": Opinion(behind=("objective_perturbation",)),
    "greedy_coordinate": Opinion(prefer=_few_coefficients),
    "grid_walk": REFERENCE,  # exponential_sampling, by a walk of many steps
    "joint_softmax": Opinion(prefer=_all_classes),
    "noisy_gd": Opinion(steady=True),
    "objective_perturbation": Opinion(leads=_bends_gently, steady=True),
    "one_point_sgd": REFERENCE,  # noisy_sgd, in batches of one
    "bolt_on_sgd": MEASURED,
    "coordinate_descent": MEASURED,
    "output_perturbation": MEASURED,
    "phased_localization": MEASURED,
    "phased_mirror_descent": MEASURED,
    "poly_sfw": Opinion(measured=True, behind=("frank_wolfe", "tree_sfw")),
    "standardized_objective": Opinion(prefer=_bounded_columns),
    "standardized_regression": Opinion(prefer=_bounded_columns_of_targets),
    "standardized_softmax": Opinion(prefer=_all_bounded_classes),
    "tree_sfw": Opinion(measured=True, behind=("frank_wolfe",)),
    "variance_reduced_sfw": Opinion(measured=True, behind=("noisy_gd",)),
}
