"""Objective perturbation with data-free regularisation: the first choice for smooth GLMs.

Problem: min over theta of sum of f(<x_i, theta>, y_i), f convex and smooth, rows bounded.

Algorithm: draw b once, release the argmin over the domain of the sum + lambda/2 ||theta - c||^2 +
<b, theta>, with c the domain's centre.

Bound: E[excess of the sum] <= E||b||^2 / (2 lambda) + lambda R^2 / 2; at the best lambda it is
R sqrt(E||b||^2): p L R / epsilon (pure) or sqrt(p) L R / mu (Gaussian), times 2 for replace_one.
On the whole space without a ridge b counts within the span of the rows only, r of its p dimensions
if rows have rank r: sqrt(r p) and sqrt(r) instead.
With strong convexity Lambda of the problem's own regulariser: E||b||^2 / (2 Lambda).

References: Chaudhuri, Monteleoni and Sarwate (2011); Kifer, Smith and Thakurta (2012); the Gaussian
accounting for generalised linear models is derived in ``docs/accounting.md``.
"""

from __future__ import annotations

from typing import ClassVar

from privopt.solvers.families.objective import ObjectiveSolver
from privopt.solvers.specimen import VECTOR_PROBLEMS, Attack, Specimen, stiff


class ObjectivePerturbationSolver(ObjectiveSolver):
    """Objective perturbation.

    Formal guarantee
    ----------------
    Every relation. Privacy uses: convexity and smoothness of the loss (checked), Lipschitz constant
    and row norms (enforced), a minimiser certified by its gradient norm (enforced, paid for by
    output noise). Never redraws noise, never loosens its tolerance. For a loss of the whole vector
    the determinant counts p times, noise is pure, and the constants are those of the loss's own
    form. The release is an integer vector times a public step unless ``discrete_noise=False``.
    """

    vectors: ClassVar[bool] = True
    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "objective_perturbation"
    summary: ClassVar[str] = "one release: perturbed objective, minimised to a certificate"
    specimen: ClassVar[Specimen] = Specimen(
        problems={"median": VECTOR_PROBLEMS["median"], "direction": VECTOR_PROBLEMS["direction"]},
        attack=Attack(choices=stiff),
    )


SOLVER = ObjectivePerturbationSolver()
