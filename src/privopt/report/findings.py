"""Everything a report says, computed once from a fitted model; page and card only lay it out.

Inputs are the certificate, the plan, the released parameters and the declared facts. No data is
needed, and none is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privopt.evaluation import Evaluation
from privopt.inference import Summary
from privopt.planner.choose import rank
from privopt.planner.explain import COLUMNS, notes, rows
from privopt.privacy import Certificate, Refused
from privopt.privacy.certificate import round_up, shown
from privopt.report.attack import Attack
from privopt.report.shapes import Drawn, drawn
from privopt.solvers import Frontier, Plan
from privopt.tables import DeclaredColumns

FALSE_ALARMS = (0.001, 0.01, 0.1)
TABLE_DELTAS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)

RELATIONS = {
    "zero_out": (
        "any one {unit} is replaced by an empty one that contributes nothing",
        "The number of rows counts as public.",
    ),
    "replace_one": (
        "any one {unit} is replaced by any other",
        "The number of rows counts as public.",
    ),
    "add_remove": (
        "any one {unit} is added or removed",
        "The number of rows is private; a public figure was declared in its place.",
    ),
}


@dataclass(frozen=True, eq=False)
class Coefficient:
    """One line of the table: the effect of one unit of a column, for each model."""

    name: str
    values: tuple[float, ...]
    errors: tuple[float, ...] | None
    """Standard errors, sampling and noise together; None for a fit without intervals."""
    span: float
    """From the lower to the upper bound of a number; 1 for a category, or if none are known."""

    @property
    def effects(self) -> tuple[float, ...]:
        """Change of the score over the whole span, for each model."""
        return tuple(value * self.span for value in self.values)

    @property
    def faint(self) -> bool:
        """Whether all values are within two standard errors of zero."""
        return self.errors is not None and not _beyond(self.values, self.errors)

    @property
    def clear(self) -> bool:
        """Whether a value is more than two standard errors from zero."""
        return self.errors is not None and _beyond(self.values, self.errors)


def _beyond(values: tuple[float, ...], deviations: tuple[float, ...]) -> bool:
    return any(abs(v) > 2 * d for v, d in zip(values, deviations, strict=True))


@dataclass(frozen=True, eq=False)
class Findings:
    """What there is to say about a fitted model."""

    title: str
    model: str
    certificate: Certificate
    attack: Attack
    plan: Plan | None
    frontier: Frontier | None
    ranking: tuple[tuple[str, ...], ...]
    ranking_notes: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names of the models: one, or one for each class."""
    coefficients: tuple[Coefficient, ...]
    intercepts: tuple[float, ...]
    columns: tuple[tuple[str, str, str], ...]
    """Declared columns: name, kind, bounds or categories."""
    shapes: tuple[Drawn, ...]
    """Of an additive model, what its shaped columns give to the score."""
    public: tuple[tuple[str, str], ...]
    """Other facts that were taken as public."""
    evaluation: Evaluation | None = None
    """How good the model is, if that was bought."""
    summary: Summary | None = None
    """The table of coefficients with standard errors, of a fit that released what it needs."""

    @property
    def how_sure(self) -> str:
        """What is known of the coefficients' errors, in one sentence."""
        if self.summary is None:
            return (
                "How much of them is noise is not said: that takes a fit with intervals=True, or "
                "privopt.IntervalsByParts."
            )
        known = self.summary.estimate.identified
        if not known.any():
            return "They are not identified at this epsilon: noise hides too much to say how sure."
        if not known.all():
            return (
                "Some are not identified at this epsilon: noise hides too much to say how sure; "
                "standard errors of the others hold sampling and noise together."
            )
        return "Standard errors hold the sampling of the records and the noise together."

    @property
    def headline(self) -> str:
        """The guarantee in one sentence."""
        certificate = self.certificate
        changed, count = RELATIONS[certificate.neighbouring]
        factor = f"e^ε = {_factor(certificate.epsilon)}"
        add = "" if certificate.delta == 0 else f", plus at most δ = {shown(certificate.delta)}"
        return (
            f"If {changed.format(unit=certificate.unit)}, every possible outcome of the whole fit "
            f"keeps its probability up to a factor of {factor}{add}. {count}"
        )

    @property
    def guess(self) -> str:
        """What that means, in one sentence."""
        share = 100 * self.attack.guesses()
        return (
            f"Somebody who knows all other records and sees everything that was released, and who "
            f"must guess whether one {self.certificate.unit} was there, is right in at most "
            f"{_up(share)} of 100 cases; a coin is right in 50."
        )

    @property
    def false_alarms(self) -> str:
        """The same with few false alarms, in one sentence."""
        most = 100 * self.attack.true_positives(0.01)
        return (
            "Whoever claims that somebody was in the data, and is wrong about at most 1 % of those "
            f"who were not, is right about at most {_up(most)} % of those who were."
        )

    @property
    def as_gaussian(self) -> str:
        """The whole curve as one number, in one sentence."""
        return (
            f"mu = {round_up(self.attack.mu, 3)}: at deltas from 1e-10 to .9 telling whether one "
            f"{self.certificate.unit} was there is at least as hard as telling one draw of "
            f"N(0, 1) from one of N({round_up(self.attack.mu, 3)}, 1)."
        )

    def attacks(self) -> list[tuple[str, str, str]]:
        """False alarms, the most right alarms, and the most that belief can rise to from 1/2."""
        return [
            (
                f"{100 * rate:g} %",
                f"{_up(100 * self.attack.true_positives(rate))} %",
                f"{_up(100 * self.attack.belief(rate))} %",
            )
            for rate in FALSE_ALARMS
        ]

    def curve(self) -> list[tuple[str, str]]:
        """Some points of epsilon(delta), for a table."""
        wanted = {*TABLE_DELTAS, self.certificate.delta}
        return [
            (shown(delta), round_up(epsilon))
            for delta, epsilon in self.attack.curve
            if delta in wanted
        ]

    def settings(self) -> list[tuple[str, str]]:
        """Settings of the solver, as the certificate states them."""
        return [
            (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
            for name, value in self.certificate.settings.items()
            if value is not None
        ]


def findings(
    model: Any, title: str | None = None, evaluation: Evaluation | None = None
) -> Findings:
    """Gather what can be said about a fitted estimator, or a pipeline that ends in one."""
    final, encoder = _parts(model)
    certificate = getattr(final, "privacy_", None)
    if not isinstance(certificate, Certificate):
        raise ValueError(f"{type(final).__name__} has no certificate: fit it first.")
    plan = getattr(final, "plan_", None)
    plan = plan if isinstance(plan, Plan) else None
    ranking, said = _ranked(plan)
    outputs, coefficients, intercepts = _coefficients(final, encoder)
    return Findings(
        title=title or f"A private {type(final).__name__}",
        model=type(final).__name__,
        certificate=certificate,
        attack=Attack(certificate),
        plan=plan,
        frontier=_frontier(plan),
        ranking=ranking,
        ranking_notes=said,
        outputs=outputs,
        coefficients=coefficients,
        intercepts=intercepts,
        columns=_columns(encoder),
        shapes=drawn(final, encoder),
        public=_public(final, certificate),
        evaluation=evaluation,
        summary=summary_of(model),
    )


def summary_of(model: Any) -> Summary | None:
    """The table of coefficients of a fit or pipeline, in units of the columns as they were given;
    None for one that released nothing to compute standard errors from."""
    final, encoder = _parts(model)
    if not callable(getattr(final, "summary", None)):
        return None
    try:
        summary = final.summary()
    except (Refused, ValueError):
        return None
    if encoder is None:
        return summary
    names, units = _names(final, encoder, 0), np.append(1 / encoder.scales(), 1.0)
    estimate = summary.estimate.mapped(np.diag(units), np.zeros(len(units)))
    return replace(summary, names=[*names, "intercept"], estimate=estimate)


def _parts(model: Any) -> tuple[Any, DeclaredColumns | None]:
    """The estimator, and what encodes its columns if the library knows it."""
    steps = [step for _, step in getattr(model, "steps", [("model", model)])]
    known = len(steps) == 2 and isinstance(steps[0], DeclaredColumns)
    return steps[-1], steps[0] if known else None


def _ranked(plan: Plan | None) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The table of solvers, its head first, and the sentences below it."""
    if plan is None:
        return (), ()
    try:
        ranking = rank(plan.facts, plan.budget)
        return (COLUMNS, *rows(ranking)), tuple(notes(ranking))
    except (Refused, ValueError):
        return (), ()


def _frontier(plan: Plan | None) -> Frontier | None:
    if plan is None:
        return None
    try:
        return plan.frontier()
    except (Refused, ValueError):
        return None


def _coefficients(
    final: Any, encoder: DeclaredColumns | None
) -> tuple[tuple[str, ...], tuple[Coefficient, ...], tuple[float, ...]]:
    if not hasattr(final, "coef_"):
        return (), (), ()
    coef = np.atleast_2d(final.coef_)
    names = _names(final, encoder, coef.shape[1])
    ones = np.ones(len(names))
    scales, ranges = (ones, ones) if encoder is None else (encoder.scales(), encoder.ranges())

    errors = getattr(final, "standard_errors_", None)

    def column(table: np.ndarray, j: int) -> tuple[float, ...]:
        return tuple((np.atleast_2d(table)[:, j] / scales[j]).tolist())

    found = [
        Coefficient(
            name,
            column(coef, j),
            None if errors is None else column(errors[..., :-1], j),
            float(ranges[j]),
        )
        for j, name in enumerate(names)
    ]
    found.sort(key=lambda one: (one.faint, -max(map(abs, one.effects))))
    outputs = ("effect",)
    if hasattr(final, "classes_"):
        classes = [str(label) for label in final.classes_.tolist()]
        outputs = tuple(classes) if len(coef) > 1 else (f"towards {classes[-1]}",)
    # The encoder centres columns; the effect of a unit stays, the constant is for the middle.
    intercepts = tuple(np.atleast_1d(final.intercept_).astype(float).tolist())
    return outputs, tuple(found), intercepts


def _names(final: Any, encoder: DeclaredColumns | None, width: int) -> list[str]:
    if encoder is not None:
        return [str(name) for name in encoder.get_feature_names_out()]
    return [
        str(name) for name in getattr(final, "feature_names_in_", [f"x{j}" for j in range(width)])
    ]


def _columns(encoder: DeclaredColumns | None) -> tuple[tuple[str, str, str], ...]:
    if encoder is None:
        return ()
    found = []
    for name, entry in encoder.columns.items():
        if entry["kind"] == "categorical":
            said = ", ".join(str(value) for value in entry["categories"])
        elif "lower" in entry:
            said = f"{entry['lower']:g} to {entry['upper']:g}"
        else:
            said = "taken as it is"
        found.append((str(name), entry["kind"], said))
    return tuple(found)


def _public(final: Any, certificate: Certificate) -> tuple[tuple[str, str], ...]:
    settings = certificate.settings
    found: list[tuple[str, str]] = []
    if "n" in settings:
        counted = certificate.neighbouring != "add_remove"
        found.append(("rows" if counted else "rows, as declared", f"{settings['n']}"))
    if "p" in settings:
        found.append(("columns of the model's matrix, a constant included", f"{settings['p']}"))
    for name, words in (
        ("classes", "classes"),
        ("target_bounds", "bounds of the target"),
        ("y_bound", "bound of the target"),
        ("feature_bounds", "bound of the columns"),
    ):
        value = getattr(final, name, None)
        if value is not None:
            said = ", ".join(str(v) for v in np.ravel(np.asarray(value, dtype=object)).tolist())
            found.append((words, said if len(said) < 200 else said[:200] + " ..."))
    if getattr(final, "data_norm_", None) is not None:
        found.append(("bound on the norm of a row", f"{final.data_norm_:g}"))
    found += [("assumed", text) for text in certificate.assumptions]
    return tuple(found)


def _factor(epsilon: float) -> str:
    return round_up(math.exp(epsilon), 3) if epsilon < 15 else f"e^{epsilon:g}"


def _up(percent: float) -> str:
    """Three digits, never below the value."""
    return round_up(min(percent, 100.0), 3)
