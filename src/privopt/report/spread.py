"""How far noise moves each coefficient, where that follows from what is public.

Everything here is computed from the plan and from released numbers, so it costs no budget.

* Output perturbation on the whole space: the noise is additive, its deviation exact.
* Objective perturbation: the minimiser moves by at most ||b|| / lambda when the linear term moves
  by b, so each coordinate is a (1/lambda)-Lipschitz function of the noise. Its variance is at most
  C / lambda^2, C the Poincare constant of the noise: sigma^2 for Gaussian noise; for norm-Gamma
  noise, which is log-concave and spherically symmetric, E||b||^2 / (p - 1) from p = 2 on
  (Bonnefont, Joulin and Ma, 2016). With standardised rows that holds for the centring and scaling
  that were released, whose own noise comes on top: it counts where a column hardly varies.
* The bound is attained where columns nearly depend on each other. Elsewhere the spread is far
  smaller: the solver runs again and again on made-up rows that have the released means and scales
  and labels as the released model predicts them. Columns of one category exclude each other there;
  others are uncorrelated, so this is an estimate from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import ndtr

from privopt.estimators.bounds import ColumnBounds
from privopt.geometry import WholeSpace
from privopt.losses import CappedExponential, CappedLogistic, Logistic
from privopt.mechanisms import Gate
from privopt.noise import Source, gaussian, source_for
from privopt.oracle import Oracle, RowMap
from privopt.solvers import Plan, row_bounds
from privopt.solvers.families.minimisers import output_sensitivity
from privopt.tables import DeclaredColumns

MADE_UP_ROWS = 2000
RUNS = 40
MOST_COLUMNS = 300
"""Beyond that the runs take too long for a report."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Standard deviations that noise gives to ``coef_``, in its shape, and how they were derived.

    ``estimate`` is for columns that are not correlated; ``bound`` holds whatever their correlation.
    They are equal where the spread is known exactly, and None where nothing is known.
    """

    estimate: np.ndarray | None
    bound: np.ndarray | None
    how: str


def spread_of(model: Any) -> Spread:
    """The spread of a fitted linear model's coefficients.

    Parameters
    ----------
    model : estimator
        A fitted estimator of privopt, or a pipeline of ``DeclaredColumns`` and one, whose
        categories are then known to exclude each other.
    """
    steps = [step for _, step in getattr(model, "steps", [("model", model)])]
    encoder, model = steps[0], steps[-1]
    groups = encoder.groups() if isinstance(encoder, DeclaredColumns) else ()
    plan = getattr(model, "plan_", None)
    if not isinstance(plan, Plan) or not hasattr(model, "coef_"):
        return _none("the model keeps no plan to derive it from")
    if plan.name == "standardized_objective" and getattr(model, "_row_map", None) is not None:
        return _standardised(model, plan, groups)
    if isinstance(getattr(model, "data_norm", None), str):
        return _none("the row bound was itself released with noise")
    if plan.name == "output_perturbation":
        return _additive(model, plan)
    if plan.name in ("objective_perturbation", "approximate_minima"):
        return _bounded(model, plan)
    if plan.name == "standardized_regression":
        return _none("a regression does not keep the scaling that it released")
    return _none(
        f"the noise of {plan.name} goes through its later steps, and how far it gets depends on "
        "the private data"
    )


def _none(why: str) -> Spread:
    return Spread(None, None, f"How much of them is noise is not known: {why}.")


def _additive(model: Any, plan: Plan) -> Spread:
    public = plan.settings.public()
    size = output_sensitivity(plan.facts, public["regularisation"], public["tolerance"])
    deviation = _deviation(public["noise"], public["noise_multiplier"] * size, plan.facts.p)
    exact = _in_units(model, np.full(model.coef_.shape, deviation))
    if not isinstance(plan.facts.problem.domain, WholeSpace):
        return _none("the noisy minimiser was moved into the domain, which bends its noise")
    how = "Exact: noise of this standard deviation was added to the fitted coefficients."
    return Spread(exact, exact, how)


def _bounded(model: Any, plan: Plan) -> Spread:
    deviation = _most(plan, plan.facts.lipschitz(), plan.facts.p)
    how = (
        "The bound holds for all data: the minimiser moves by at most the noise over the "
        "regularisation. The true spread is usually far smaller."
    )
    return Spread(None, _in_units(model, np.full(model.coef_.shape, deviation)), how)


def _standardised(model: Any, plan: Plan, groups: Sequence[np.ndarray]) -> Spread:
    row_map: RowMap = model._row_map
    loss = plan.facts.problem.loss
    logistic = isinstance(loss, Logistic | CappedLogistic)
    cap = CappedExponential().lipschitz if logistic else loss.lipschitz
    tables = getattr(model, "_tables", None)
    dimension = row_map.dimension + (tables.width if tables is not None else 0)
    most = _most(plan, cap, dimension) * row_map.scale / row_map.clip_norm
    bound = _in_units(model, np.broadcast_to(most, np.atleast_2d(model.coef_).shape))
    how = (
        "The bound holds whatever the correlation of the columns, for the centring and scaling "
        "that were released; a category that hardly occurs can move further."
    )
    if not logistic or tables is not None or row_map.dimension > MOST_COLUMNS:
        return Spread(None, bound, how)
    source = source_for(0)
    rows = _made_up(row_map, plan.settings.public()["clip"], groups, source)
    oracles = _labelled(rows, model, row_map, plan, source)
    settings, problem = _scaled(plan), plan.facts.problem
    runs = [
        [t[:-1] for t in plan.solver.run_all(oracles, Gate(source_for(run)), problem, settings)]
        for run in range(1, RUNS + 1)
    ]
    said = (
        f"The estimate is from {RUNS} runs of the whole algorithm on made-up rows with the "
        "released means and scales; it is too small where columns are correlated. "
    )
    return Spread(_in_units(model, np.std(runs, axis=0, ddof=1)), bound, said + how)


def _most(plan: Plan, lipschitz: float, p: int) -> float:
    """Bound on the deviation of one coordinate of the perturbed minimiser, its last noise too."""
    public = plan.settings.public()
    scale = public["noise_multiplier"] * lipschitz
    if public["noise"] == "pure":
        scale *= plan.facts.relation_factor * math.sqrt(p * (p + 1) / max(p - 1, 1))
    last = public["output_multiplier"] * 2 * public["tolerance"] * lipschitz
    return math.hypot(scale, _deviation(public["noise"], last, p)) / public["regularisation"]


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


def _made_up(
    row_map: RowMap, clip: float, groups: Sequence[np.ndarray], source: Source
) -> np.ndarray:
    """Rows in [-1, 1] with the released means and variances: normal columns, and in each group of
    indicators at most one that is 1."""
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
    rows = np.clip(row_map.centre + deviation * drawn, -1.0, 1.0)
    for group in groups:
        share = np.clip(row_map.centre[group], 0.0, 1.0)
        ends = np.cumsum(share / max(share.sum(), 1.0))
        chosen = np.searchsorted(ends, ndtr(gaussian(source, 1.0, MADE_UP_ROWS)))
        rows[:, group] = chosen[:, None] == np.arange(len(group))
    return rows


def _labelled(
    rows: np.ndarray, model: Any, row_map: RowMap, plan: Plan, source: Source
) -> list[Oracle]:
    """One oracle for each model, with labels drawn as the released model predicts them."""
    loss = plan.facts.problem.loss
    mapped = np.column_stack(
        [row_map.scale * (rows - row_map.centre), np.full(len(rows), row_map.column)]
    )
    capped = isinstance(loss, CappedLogistic)
    mapped *= row_map.factors(rows)[:, None] if capped else 1 / row_map.clip_norm
    link = loss if capped else CappedLogistic(1.0)
    oracles: list[Oracle] = []
    for theta in _mapped(model, row_map):
        coins = ndtr(gaussian(source, 1.0, len(rows)))
        labels = np.where(coins < link.probability(mapped @ theta), 1.0, -1.0)
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
        coef = coef * declared.scale
    slope = coef * row_map.clip_norm
    last = (intercept * row_map.clip_norm + slope @ row_map.centre) / row_map.column
    return np.column_stack([slope / row_map.scale, last])


def _deviation(noise: str, scale: float, p: int) -> float:
    """Standard deviation of one coordinate: norm-Gamma noise has E||b||^2 = p (p + 1) scale^2."""
    return scale * (math.sqrt(p + 1) if noise == "pure" else 1.0)


def _in_units(model: Any, deviations: np.ndarray) -> np.ndarray:
    """From the matrix the solver saw to coefficients of X as it was given."""
    declared = _declared(model)
    if declared is not None:
        deviations = deviations / declared.scale
    half = getattr(model, "_half", None)
    if half is not None:  # a regression's losses see targets in [-1, 1]
        deviations = deviations * half()
    return deviations.reshape(model.coef_.shape)


def _declared(model: Any) -> ColumnBounds | None:
    if getattr(model, "bounds", None) is None:
        return None
    names = getattr(model, "feature_names_in_", None)
    return ColumnBounds.declared(model.bounds, model.n_features_in_, names)
