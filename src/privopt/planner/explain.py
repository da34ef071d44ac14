"""Explain a ranking: a table a person can read, and what another budget would buy."""

from __future__ import annotations

import math
from dataclasses import replace

from privopt.planner.choose import SIMULATED_TIE, TIE, Ranking, rank
from privopt.planner.opinions import opinion_of
from privopt.solvers import Plan

COLUMNS = (
    "solver",
    "predicted excess risk",
    "verdict",
    "noise",
    "passes over data",
    "how it works",
)


def rows(ranking: Ranking) -> list[tuple[str, ...]]:
    """One row of text for each plan, best first."""
    found = []
    for plan in ranking.plans:
        public = plan.settings.public()
        found.append(
            (
                plan.name,
                _error(plan),
                verdict(ranking, plan),
                f"{public.get('noise', '')} x {public.get('noise_multiplier', float('nan')):.3g}",
                f"{plan.settings.passes:.0f}",
                plan.solver.summary + (" (reference)" if opinion_of(plan.name).reference else ""),
            )
        )
    return found


def _error(plan: Plan) -> str:
    if not plan.promised:
        told = plan.predicted
        return "none: not convex" if told is None else f"{told:.2g} (not convex: no proof)"
    if not math.isfinite(plan.settings.bound):
        return "no proof" if plan.predicted is None else f"{plan.predicted:.2g} (no proof)"
    gap = " (gap)" if plan.solver.promise == "stationarity" else ""
    bound = f"<= {plan.settings.bound:.3g}{gap}"
    return bound if plan.predicted is None else f"{plan.predicted:.2g} ({bound})"


def verdict(ranking: Ranking, plan: Plan) -> str:
    """Why a plan was chosen, or why it lost, in a few words."""
    best, opinion = ranking.best, opinion_of(plan.name)
    if plan.name == best.name:
        if opinion.prefer(ranking.facts, ranking.budget):
            return "chosen: see below"
        return "chosen" if len(ranking.plans) > 1 else "chosen: the only one"
    if not plan.promised and plan.expectation is None:
        return "promises nothing here"
    if opinion.reference:
        return "reference: measured worse"
    if plan.predicted is not None and best.predicted is not None:
        ratio, what = plan.predicted / best.predicted, "error"
    elif not math.isfinite(best.settings.bound) or not math.isfinite(plan.settings.bound):
        return "not preferred"
    else:
        ratio, what = plan.settings.bound / best.settings.bound, "bound"
    if ratio < 1 and what == "bound":
        return "smaller bound, measured worse"
    if ratio <= (SIMULATED_TIE if what == "error" else TIE):
        return f"same {what}, {_passes(plan, best)}"
    return f"{ratio:.2g} times the {what}"


def _passes(plan: Plan, best: Plan) -> str:
    more = plan.settings.passes > best.settings.passes
    return "more passes" if more else "not preferred"


def notes(ranking: Ranking) -> list[str]:
    """Sentences about refusals, and about what a positive delta would buy."""
    preferred = [
        opinion_of(plan.name).prefer(ranking.facts, ranking.budget) for plan in ranking.plans
    ]
    sentences = [sentence for sentence in preferred if sentence] + list(ranking.refused.values())
    order = [plan.name for plan in ranking.plans]
    bounds = {plan.name: plan.settings.bound for plan in ranking.plans}
    for plan in ranking.plans:
        for other in opinion_of(plan.name).behind:
            if other not in order[: order.index(plan.name)]:
                continue
            once = plan.settings.passes <= 1 < ranking.plans[order.index(other)].settings.passes
            if once and ranking.facts.convex:
                sentences.append(
                    f"{plan.name} reads the records once; where they may be read more often, "
                    f"{other} is simply better, at n={ranking.facts.n} as at every n measured."
                )
            elif bounds[other] > bounds[plan.name]:
                sentences.append(
                    f"{plan.name} has the smaller bound, but {other} does better on ordinary data "
                    "and is ranked before it."
                )
    if not ranking.facts.convex and not any(plan.promised_excess for plan in ranking.plans):
        sentences.append(
            f"{ranking.facts.loss_name} is not convex: a small excess cannot be promised, only a "
            "nearly stationary point; privacy holds for every solver listed."
        )
    if any(plan.expectation is not None for plan in ranking.plans):
        sentences.append(
            "Numbers before a bound are errors on made-up data of the same shape; no data was "
            "touched for them."
        )
        sentences += [plan.outlook for plan in ranking.plans[:1] if plan.outlook]
    if ranking.budget.pure and ranking.plans and ranking.best.promised:
        delta = min(1e-6, 0.01 / ranking.facts.n)
        relaxed = rank(ranking.facts, replace(ranking.budget, delta=delta))
        gain = ranking.best.settings.bound / relaxed.best.settings.bound
        if relaxed.best.solver.joint:
            sentences.append(
                f"With delta={delta:.1g} instead of 0 all classes would share one release: "
                f"{relaxed.best.name}, which measures better."
            )
        elif gain > 1.05:
            sentences.append(
                f"With delta={delta:.1g} instead of 0 the bound would be {gain:.1f} times smaller "
                f"({relaxed.best.name})."
            )
        else:
            sentences.append("A positive delta would not improve the bound here.")
    return sentences


def as_text(ranking: Ranking) -> str:
    """The ranking as a plain table."""
    facts, budget = ranking.facts, ranking.budget
    head = (
        f"{facts.loss_name}, n={facts.n}, p={facts.p}, epsilon={budget.epsilon:g}, "
        f"delta={budget.delta:g}, {budget.neighbouring}"
        + (f", {facts.repeats} models" if facts.repeats > 1 else "")
    )
    table = [COLUMNS, *rows(ranking)]
    widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([head, "", *lines, "", *notes(ranking)]).rstrip()
