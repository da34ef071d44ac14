"""What the planner thinks of solvers, by name: what was measured, and no bound says.

An opinion may name a solver that is not there; a solver without an opinion is ranked by its bound
and by simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from privopt.facts import Facts
from privopt.geometry import Polytope, Simplex
from privopt.privacy import Budget


def _nothing(facts: Facts, budget: Budget) -> str | None:
    return None


def _never(facts: Facts, budget: Budget) -> bool:
    return False


@dataclass(frozen=True)
class Opinion:
    """``reference``: implemented and right, but never the first choice: measured worse than
    another. ``behind``: solvers that do better on ordinary data even where their bound is larger;
    this one is ranked after them. ``prefer``: a sentence why it goes first whatever the bounds
    say. ``leads``: it measures best, or nearly so, wherever its bound is the smallest, so that
    there is nothing to simulate.
    """

    reference: bool = False
    behind: tuple[str, ...] = ()
    prefer: Callable[[Facts, Budget], str | None] = _nothing
    leads: Callable[[Facts, Budget], bool] = _never


def opinion_of(name: str) -> Opinion:
    """What is thought of a solver; nothing in particular of one that is not listed."""
    return OPINIONS.get(name, Opinion())


def _bends_gently(facts: Facts, budget: Budget) -> bool:
    # On a simplex or polytope the solution is often a vertex, which iterates reach exactly; a
    # loss that bends sharply needs a strong ridge, which iterates do without.
    cornered = isinstance(facts.problem.domain, (Simplex, Polytope))
    return not cornered and facts.smoothness() < facts.problem.size * facts.lipschitz()


def _one_pure_number(facts: Facts, budget: Budget) -> bool:
    return facts.p == 1 and budget.pure  # an exact draw, of the smallest error there is


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


REFERENCE = Opinion(reference=True)
OPINIONS: dict[str, Opinion] = {
    "approximate_minima": REFERENCE,
    "bolt_on_sgd": REFERENCE,
    "coordinate_descent": REFERENCE,
    "exponential_sampling": Opinion(behind=("objective_perturbation",), leads=_one_pure_number),
    "grid_walk": REFERENCE,
    "joint_softmax": Opinion(prefer=_all_classes),
    "objective_perturbation": Opinion(leads=_bends_gently),
    "one_point_sgd": REFERENCE,
    "output_perturbation": REFERENCE,
    "phased_localization": REFERENCE,
    "phased_mirror_descent": REFERENCE,
    "poly_sfw": Opinion(reference=True, behind=("frank_wolfe", "tree_sfw")),
    "standardized_objective": Opinion(prefer=_bounded_columns),
    "standardized_regression": Opinion(prefer=_bounded_columns_of_targets),
    "standardized_softmax": Opinion(prefer=_all_bounded_classes),
    "tree_sfw": Opinion(reference=True, behind=("frank_wolfe",)),
    "variance_reduced_sfw": Opinion(reference=True, behind=("noisy_gd",)),
}
