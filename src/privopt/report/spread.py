"""How far noise moves each coefficient, where that follows from what is public.

Everything here is computed from the plan and from released numbers, so it costs no budget.

* Output perturbation on the whole space: the noise is additive, its deviation exact.
* Objective perturbation: the minimiser moves by at most ||b|| / lambda when the linear term moves
  by b, so each coordinate is a (1/lambda)-Lipschitz function of Gaussian noise, and its standard
  deviation is at most sigma / lambda (the Gaussian Poincare inequality); for norm-Gamma noise it is
  at most sqrt(E||b||^2) / lambda, the deviation around the noiseless minimiser.
* Standardised rows: the solver runs again and again on made-up rows that have the released means
  and scales, uncorrelated columns, and labels as the released model predicts them. That is an
  estimate, not a bound: columns that are correlated have a larger spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import ndtr

from privopt.estimators.bounds import ColumnBounds
from privopt.losses import CappedLogistic, Logistic
from privopt.mechanisms import Gate
from privopt.noise import Source, gaussian, source_for
from privopt.oracle import Oracle, RowMap
from privopt.solvers import Plan, row_bounds
from privopt.solvers.output_perturbation import sensitivity

MADE_UP_ROWS = 2000
RUNS = 40
MOST_COLUMNS = 300
"""Beyond that the runs take too long for a report."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Standard deviations that the noise gives to ``coef_``, in its shape, or None; and how they
    were derived. ``sign`` is "" for exact values, "≈" for an estimate, "≤" for a bound."""

    deviations: np.ndarray | None
    sign: str
    how: str


def spread_of(model: Any) -> Spread:
    """The spread of a fitted linear model's coefficients."""
    plan = getattr(model, "plan_", None)
    if not isinstance(plan, Plan) or not hasattr(model, "coef_"):
        return _none("the model keeps no plan to derive it from")
    if isinstance(getattr(model, "data_norm", None), str) and plan.name != "standardized_objective":
        return _none("the row bound was itself released with noise")
    if plan.name == "output_perturbation":
        return _additive(model, plan)
    if plan.name == "standardized_objective":
        return _standardised(model, plan)
    if plan.name in ("objective_perturbation", "approximate_minima"):
        return _bounded(model, plan)
    return _none(
        f"the noise of {plan.name} goes through its later steps, and how far it gets depends on "
        "the private data"
    )


def _none(why: str) -> Spread:
    return Spread(None, "", f"Not available: {why}.")


def _additive(model: Any, plan: Plan) -> Spread:
    public = plan.settings.public()
    size = sensitivity(plan.facts, public["regularisation"], public["tolerance"])
    deviation = _deviation(public["noise"], public["noise_multiplier"] * size, plan.facts.p)
    return Spread(
        _in_units(model, np.full(model.coef_.shape, deviation)),
        "",
        "Exact: noise of this standard deviation was added to the fitted coefficients.",
    )


def _bounded(model: Any, plan: Plan) -> Spread:
    public = plan.settings.public()
    lipschitz, p = plan.facts.lipschitz(), plan.facts.p
    if public["noise"] == "gaussian":
        square = public["noise_multiplier"] ** 2
    else:
        square = (plan.facts.relation_factor * public["noise_multiplier"]) ** 2 * p * (p + 1)
    deviation = math.sqrt(square * lipschitz**2 / public["regularisation"] ** 2 + _last(plan, p))
    return Spread(
        _in_units(model, np.full(model.coef_.shape, deviation)),
        "≤",
        "An upper bound: the minimiser moves by at most the noise over the regularisation. The "
        "true spread depends on the data and is usually far smaller.",
    )


def _standardised(model: Any, plan: Plan) -> Spread:
    row_map = getattr(model, "_row_map", None)
    if row_map is None or not isinstance(plan.facts.problem.loss, Logistic):
        return _none("it is derived for the logistic loss only, so far")
    if row_map.dimension > MOST_COLUMNS:
        return _none(f"it is not simulated for more than {MOST_COLUMNS} columns")
    source = source_for(0)
    rows = _made_up(row_map, plan.settings.public()["clip"], source)
    oracles = _labelled(rows, model, row_map, plan, source)
    settings = _scaled(plan)
    runs = [
        [
            theta[:-1]
            for theta in plan.solver.run_all(
                oracles, Gate(source_for(run)), plan.facts.problem, settings
            )
        ]
        for run in range(1, RUNS + 1)
    ]
    return Spread(
        _in_units(model, np.std(runs, axis=0, ddof=1)),
        "≈",
        f"An estimate from {RUNS} runs of the whole algorithm on made-up rows with the released "
        "means and scales, uncorrelated columns, and labels as the model predicts them. Where "
        "columns are correlated the true spread is larger.",
    )


def _scaled(plan: Plan) -> Any:
    """Settings under which MADE_UP_ROWS records stand for n.

    Objective, noise, regularisation and tolerance are all divided by n / MADE_UP_ROWS; the released
    means and the minimiser then have the law that they have for n records of the same kind.
    """
    share = MADE_UP_ROWS / plan.facts.n
    public = plan.settings.public()
    names = ("noise_multiplier", "regularisation", "ridge", "tolerance")
    names += ("norm_multiplier", "moment_multiplier", "label_multiplier")
    smaller = {name: public[name] * share for name in names}
    return replace(cast(Any, plan.settings), n=MADE_UP_ROWS, **smaller)


def _made_up(row_map: RowMap, clip: float, source: Source) -> np.ndarray:
    """Rows in [-1, 1] with uncorrelated normal columns of the released means and variances."""
    total = 1 / row_map.scale**2  # variance of a column plus a noise level that all share
    size = (row_map.clip_norm / clip) ** 2 - row_map.column**2

    def excess(noise: float) -> float:
        """The clip norm tells the sum of variance / (variance + noise) over columns."""
        return float(np.sum(np.maximum(1 - noise / total, noise / total / 2))) - size

    low, high = 0.0, float(total.min())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    deviation = np.sqrt(np.maximum(total - low, 0.0))
    drawn = gaussian(source, 1.0, MADE_UP_ROWS * len(total)).reshape(MADE_UP_ROWS, -1)
    return np.clip(row_map.centre + deviation * drawn, -1.0, 1.0)


def _labelled(
    rows: np.ndarray, model: Any, row_map: RowMap, plan: Plan, source: Source
) -> list[Oracle]:
    """One oracle for each model, with labels drawn as the released model predicts them."""
    loss = CappedLogistic(plan.settings.public()["cap"])
    mapped = np.column_stack(
        [row_map.scale * (rows - row_map.centre), np.full(len(rows), row_map.column)]
    )
    mapped *= row_map.factors(rows)[:, None]
    oracles: list[Oracle] = []
    for theta in _mapped(model, row_map):
        coins = ndtr(gaussian(source, 1.0, len(rows)))
        labels = np.where(coins < loss.probability(mapped @ theta), 1.0, -1.0)
        oracles.append(
            oracles[0].labelled(labels, classification=True)
            if oracles
            else Oracle.over(
                rows,
                labels,
                neighbouring=plan.budget.neighbouring,
                bounds=row_bounds(plan),
                source=source,
                classification=True,
            )
        )
    return oracles


def _mapped(model: Any, row_map: RowMap) -> np.ndarray:
    """The released parameters as the minimiser of mapped rows: the inverse of what fit did."""
    coef = np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(model.intercept_)
    declared = _declared(model)
    if declared is not None:
        intercept = intercept + coef @ declared.shift
        coef = coef * declared.reach
    slope = coef * row_map.clip_norm
    last = (intercept * row_map.clip_norm + slope @ row_map.centre) / row_map.column
    return np.column_stack([slope / row_map.scale, last])


def _last(plan: Plan, p: int) -> float:
    """Variance of the noise on the minimiser that pays for its tolerance."""
    public = plan.settings.public()
    scale = public["output_multiplier"] * 2 * public["tolerance"] * plan.facts.lipschitz()
    return _deviation(public["noise"], scale / public["regularisation"], p) ** 2


def _deviation(noise: str, scale: float, p: int) -> float:
    """Standard deviation of one coordinate: norm-Gamma noise has E||b||^2 = p (p + 1) scale^2."""
    return scale * (math.sqrt(p + 1) if noise == "pure" else 1.0)


def _in_units(model: Any, deviations: np.ndarray) -> np.ndarray:
    """From the matrix the solver saw to coefficients of X as it was given."""
    declared = _declared(model)
    if declared is not None:
        deviations = deviations / declared.reach
    half = getattr(model, "_half", None)
    if half is not None:  # a regression's losses see targets in [-1, 1]
        deviations = deviations * half()
    return deviations.reshape(model.coef_.shape)


def _declared(model: Any) -> ColumnBounds | None:
    if getattr(model, "bounds", None) is None:
        return None
    names = getattr(model, "feature_names_in_", None)
    return ColumnBounds.declared(model.bounds, model.n_features_in_, names)
