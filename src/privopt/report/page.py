"""One self-contained HTML page: facts and static pictures first, plotly on top where there is any.

Every text that comes from a user (a column's name, a label, a title) is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from privopt.privacy.certificate import round_up, shown
from privopt.report.chart import GREY, Bars, Curves, Line
from privopt.report.findings import Coefficient, Findings
from privopt.report.forest import forest
from privopt.report.judged import judged, signed
from privopt.report.markup import bullets, figure, row_table, scripts, table
from privopt.report.shapes import pictures

SHOWN = 20
"""Coefficients in the picture and in the first table; all of them are on the page."""


def page(found: Findings) -> str:
    """The page as text."""
    plots: list[dict[str, Any]] = []
    body = "".join(
        [
            _head(found),
            _attack(found, plots),
            _curve(found, plots),
            _frontier(found, plots),
            judged(found, plots),
            forest(found, plots),
            _coefficients(found, plots),
            _shapes(found, plots),
            _plan(found),
            _public(found),
            _limits(),
            signed(found),
            _raw(found),
        ]
    )
    style = resources.files("privopt.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(found.title)}</title>'
        f"<style>{style}</style></head>\n<body><main>{body}</main>{scripts(plots)}</body></html>\n"
    )


# ------------------------------------------------------------ sections
def _head(found: Findings) -> str:
    certificate = found.certificate
    facts = [
        ("epsilon (ε)", round_up(certificate.epsilon)),
        ("delta (δ)", "0 (pure)" if certificate.delta == 0 else shown(certificate.delta)),
        ("neighbours", certificate.neighbouring),
        ("protects", f"one {certificate.unit}"),
        ("model", found.model),
        ("algorithm", certificate.solver.replace("_", " ")),
    ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd{' class=long' if len(value) > 9 else ''}>"
        f"{_breakable(value)}</dd></div>"
        for name, value in facts
    )
    warning = (
        ""
        if certificate.private
        else '<p class="warn"><strong>Not private.</strong> The noise came from a seed: whoever '
        "knows it can subtract it. Fit again without random_state before you publish anything.</p>"
    )
    ledger = ""
    if certificate.ledger is not None:
        where = f"{certificate.ledger['dataset']}, entry {certificate.ledger['entry']}"
        ledger = f'<p class="soft">Charged to the budget of {escape(where)}.</p>'
    return (
        f'<h1>{escape(found.title)}</h1><p class="soft">What its privacy budget bought.</p>'
        f'{warning}<dl class="facts">{cells}</dl><h2>The guarantee in plain words</h2>'
        f"<p>{escape(found.headline)}</p><p>{escape(found.guess)}</p>{ledger}"
    )


def _attack(found: Findings, plots: list[dict[str, Any]]) -> str:
    rates = [10 ** (k / 8) for k in range(-24, 1)]
    chart = Curves(
        [
            Line("at most, for this model", rates, [found.attack.true_positives(r) for r in rates]),
            Line("a coin", rates, rates, GREY, dashed=True),
        ],
        "false alarms",
        "right alarms",
        log_x=True,
        log_y=True,
    )
    unit = escape(found.certificate.unit)
    return (
        "<h2>What an attacker can and cannot do</h2>"
        f"<p>A test looks at everything that was released and says whether one {unit} was in the "
        "data. These limits hold for every test, with any computing power and any knowledge of the "
        "other records; nothing about them is estimated.</p>"
        '<div class="pair"><div>'
        + table(
            ("false alarms", "right alarms, at most", "belief after an alarm, from 50 %"),
            found.attacks(),
            numbers=3,
        )
        + f"<p>{escape(found.as_gaussian)}</p>"
        + "<p><strong>Cannot:</strong> do better than this table about any one "
        f"{unit}, whatever else is published later from other data.</p>"
        "<p><strong>Can:</strong></p><ul>"
        "<li>learn what holds for people in general, and draw conclusions about a person from it, "
        "whether that person was in the data or not;</li>"
        "<li>combine this model with others fitted to the same records: their losses add up;</li>"
        f"<li>learn more about somebody with several records: for k of them up to {_times(found)}; "
        "</li><li>read everything that was declared public, below.</li></ul></div>"
        + figure(chart, plots, "Grey: guessing. Both axes are logarithmic.")
        + "</div>"
    )


def _curve(found: Findings, plots: list[dict[str, Any]]) -> str:
    pairs = [(delta, epsilon) for delta, epsilon in found.attack.curve if 0 < delta <= 0.1]
    stated = (found.certificate.delta, found.certificate.epsilon)
    chart = Curves(
        [Line("epsilon", [d for d, _ in pairs], [e for _, e in pairs])],
        "delta",
        "epsilon",
        log_x=True,
        here=stated if stated[0] > 0 else None,
    )
    return (
        "<h2>Epsilon at other deltas</h2>"
        "<p>The same fit has an epsilon for every delta, and all of these pairs hold at once.</p>"
        '<div class="pair"><div>'
        + table(("delta", "epsilon"), found.curve(), numbers=2)
        + "</div>"
        + figure(chart, plots, "Red: the pair that the certificate states.")
        + "</div>"
    )


def _frontier(found: Findings, plots: list[dict[str, Any]]) -> str:
    frontier = found.frontier
    if frontier is None:
        return ""
    rows = [row for row in frontier.rows() if 0 < row[1] < math.inf]
    if len(rows) < 2:
        return ""
    stated = 0.0 if found.plan is None else found.plan.budget.epsilon
    here = next((row[:2] for row in rows if math.isclose(row[0], stated)), None)
    chart = Curves(
        [Line("predicted error", [r[0] for r in rows], [r[1] for r in rows], marks=True)],
        "epsilon",
        "predicted excess risk",
        log_x=True,
        log_y=True,
        here=here,
    )
    source = (
        "proved bounds, which are worst cases: the error is usually far smaller"
        if frontier.source == "bound"
        else "simulations on made-up data of the same shape"
    )
    return (
        "<h2>What another budget would buy</h2>"
        f"<p>Predicted from public facts alone, by {source}. The excess risk is the mean loss "
        "above that of the best model without privacy.</p>"
        '<div class="pair"><div>'
        + table(
            ("epsilon", "predicted excess risk"),
            [(f"{epsilon:g}", f"{error:.3g}") for epsilon, error, _ in rows],
            numbers=2,
        )
        + bullets(frontier.notes)
        + "</div>"
        + figure(chart, plots, "Red: this model. Both axes are logarithmic.")
        + "</div>"
    )


def _coefficients(found: Findings, plots: list[dict[str, Any]]) -> str:
    if not found.coefficients:
        return ""
    first = found.coefficients[:SHOWN]
    picture = ""
    if len(found.outputs) == 1:
        chart = Bars(
            [one.name for one in first],
            [one.effects[0] for one in first],
            _whiskers(first),
            "change of the score",
        )
        over = "from a column's lower to its upper bound" if found.columns else "for one unit"
        caption = f"Bars: {over}."
        if first[0].errors is not None:
            caption += " Whiskers: two standard errors."
        picture = figure(chart, plots, caption)
    rest = ""
    if len(found.coefficients) > SHOWN:
        rest = (
            f"<details><summary>All {len(found.coefficients)} coefficients</summary>"
            + _coefficient_table(found, found.coefficients)
            + "</details>"
        )
    constants = ", ".join(f"{value:.4g}" for value in found.intercepts)
    return (
        "<h2>Effects of the columns</h2>"
        "<p>Effect of one unit of each column on the score, largest over the column's range first. "
        f"{escape(found.how_sure)} Bold: more than two standard errors from zero; faint, at the "
        "end: less.</p>"
        + picture
        + _coefficient_table(found, first)
        + rest
        + f'<p class="soft">Constant, for columns scaled by their bounds: {escape(constants)}.</p>'
    )


def _shapes(found: Findings, plots: list[dict[str, Any]]) -> str:
    charts = [one.chart("part of the score") for one in found.shapes]
    return pictures([figure(chart, plots, chart.x_title) for chart in charts], found.outputs)


def _coefficient_table(found: Findings, shown: Sequence[Coefficient]) -> str:
    head = ["column"]
    sure = bool(shown) and shown[0].errors is not None
    for name in found.outputs:
        head += [name, "standard error"] if sure else [name]
    lines = []
    for one in shown:
        cells = [f'<td class="name">{escape(one.name)}</td>']
        for k, value in enumerate(one.values):
            cells.append(f'<td class="number">{value:.4g}</td>')
            if one.errors is not None:
                error = one.errors[k]
                said = f"{error:.2g}" if math.isfinite(error) else "not identified"
                cells.append(f'<td class="number">{said}</td>')
        kind = " class=faint" if one.faint else " class=chosen" if one.clear else ""
        lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
    return row_table(head, "".join(lines), numbers=len(head) - 1)


def _whiskers(shown: Sequence[Coefficient]) -> list[float] | None:
    """Two standard errors over each column's span; None if they are not known."""
    found = [2 * one.errors[0] * one.span for one in shown if one.errors is not None]
    return found if found and all(map(math.isfinite, found)) else None


def _plan(found: Findings) -> str:
    if found.plan is None:
        return ""
    others = ""
    if found.ranking:
        head, *rows = found.ranking
        lines = "".join(
            f"<tr{' class=chosen' if row[0] == found.plan.name else ''}>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in row)
            + "</tr>"
            for row in rows
        )
        others = (
            "<details><summary>The other algorithms that apply, and why the rest do not</summary>"
            + row_table(head, lines)
            + bullets(found.ranking_notes)
            + "</details>"
        )
    return (
        "<h2>The plan</h2>"
        f"<p>Before any data was touched, <strong>{escape(found.plan.name)}</strong> was chosen: "
        f"{escape(found.plan.solver.summary)}. It made {found.certificate.releases} release(s), "
        "with settings that follow from public facts and the budget alone:</p>"
        + table(("setting", "value"), found.settings())
        + others
    )


def _public(found: Findings) -> str:
    columns = ""
    if found.columns:
        columns = "<p>Bounds and categories of the columns, as declared:</p>" + table(
            ("column", "kind", "bounds or categories"), found.columns
        )
    return (
        "<h2>What was assumed to be public</h2>"
        "<p>None of this is covered by the guarantee. It must come from outside the data: what was "
        "read off the rows is in the model, and no noise hides it.</p>"
        + table(("fact", "value"), found.public)
        + columns
    )


def _limits() -> str:
    return (
        "<h2>What is not covered</h2><ul>"
        "<li>Several records of one person, unless the unit above says so.</li>"
        "<li>Scores, plots and choices that were computed from the same data without privacy.</li>"
        "<li>Preprocessing that was fitted to the data without privacy, before this model.</li>"
        "<li>Other models fitted to the same records; a ledger adds them up.</li>"
        "<li>How long the fit took, and whether it refused its input.</li>"
        "<li>The last digits of released numbers, where noise is drawn in floating point.</li></ul>"
    )


def _raw(found: Findings) -> str:
    text = escape(found.certificate.to_json())
    return (
        '<details class="raw"><summary>The certificate, from which epsilon can be recomputed'
        f"</summary><pre>{text}</pre></details>"
        f'<footer class="soft">Made by {escape(found.certificate.library)}. This page was computed '
        "from the certificate, the plan and the released model; it contains no private data and "
        "costs no budget.</footer>"
    )


# ------------------------------------------------------------ pieces
def _breakable(name: str) -> str:
    """A class name that may be broken before its capitals."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "<wbr>", escape(name))


def _times(found: Findings) -> str:
    grows = "" if found.certificate.delta == 0 else ", and delta grows too"
    return f"k times the epsilon ({round_up(5 * found.certificate.epsilon)} for five{grows})"
