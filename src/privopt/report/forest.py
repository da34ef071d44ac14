"""The forest plot: each coefficient with its interval, and the part of it that is sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from privopt.inference.summary import INTERCEPT
from privopt.report.chart import (
    BLUE,
    BOTTOM,
    PALE,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    picture,
    plotly_axis,
    short,
    ticks_below,
)
from privopt.report.chart import layout as plot_layout
from privopt.report.findings import Findings
from privopt.report.markup import figure

SHOWN = 30


@dataclass(frozen=True)
class Forest:
    """Named values with two intervals around each, the inner one thick; hollow where weak."""

    names: Sequence[str]
    values: Sequence[float]
    inner: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    weak: Sequence[bool]
    title: str

    def svg(self) -> str:
        step, left = 24, 176
        height = TOP + step * len(self.names) + BOTTOM
        xs = Axis([0.0, *self._ends(), *self.values], False, left, WIDTH - RIGHT)
        bottom = height - BOTTOM
        zero = xs(0.0)
        parts = [ticks_below(xs, bottom, self.title, left)]
        parts.append(f'<path d="M{zero:.1f} {TOP}V{bottom}" stroke="#444"/>')
        for i, name in enumerate(self.names):
            y = TOP + step * (i + 0.5)
            parts.append(
                f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{escape(short(name))}</text>"
            )
            if not self.weak[i]:
                low, high = xs(self.low[i]), xs(self.high[i])
                a, b = (xs(self.values[i] + s * self.inner[i]) for s in (-1, 1))
                parts.append(
                    f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{PALE}" stroke-width="2"/>'
                    f'<path d="M{a:.1f} {y:.1f}H{b:.1f}" stroke="{BLUE}" stroke-width="5"/>'
                )
            fill = "#fff" if self.weak[i] else BLUE
            parts.append(
                f'<circle cx="{xs(self.values[i]):.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" '
                f'stroke="{BLUE}" stroke-width="1.5"/>'
            )
        return picture("".join(parts), height, self.title)

    def plotly(self) -> dict[str, Any]:
        places = list(range(len(self.names)))
        point = {"type": "scatter", "mode": "markers", "x": list(self.values), "y": places}
        data: list[dict[str, Any]] = []
        if not all(self.weak):
            known = [i for i in places if not self.weak[i]]
            above = [self.high[i] - self.values[i] for i in known]
            below = [self.values[i] - self.low[i] for i in known]
            ends = {"type": "data", "array": above, "arrayminus": below, "width": 0}
            thick = {"type": "data", "array": [self.inner[i] for i in known], "width": 0}
            sure = point | {"x": [self.values[i] for i in known], "y": known}
            hidden = {"hoverinfo": "skip", "marker": {"size": 1, "color": BLUE}}
            data = [
                sure | hidden | {"error_x": ends | {"color": PALE, "thickness": 2}},
                sure | hidden | {"error_x": thick | {"color": BLUE, "thickness": 5}},
            ]
        texts = [escape(name) for name in self.names]
        marker = {"size": 9, "color": ["#fff" if one else BLUE for one in self.weak]}
        data.append(
            point
            | {
                "text": texts,
                "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
                "marker": marker | {"line": {"color": BLUE, "width": 1.5}},
            }
        )
        axis = {
            "autorange": "reversed",
            "tickvals": places,
            "ticktext": [escape(short(name)) for name in self.names],
            "automargin": True,
        }
        wide = {"xaxis": plotly_axis(self.title, False, list(self.values)), "yaxis": axis}
        height = 110 + 24 * len(self.names)
        return {"data": data, "layout": plot_layout(height) | wide | {"showlegend": False}}

    def _ends(self) -> list[float]:
        ends = zip(self.low, self.high, self.weak, strict=True)
        return [end for low, high, weak in ends if not weak for end in (low, high)]


def forest(found: Findings, plots: list[dict[str, Any]]) -> str:
    """The section of the page; nothing for a fit without intervals."""
    summary = found.summary
    if summary is None:
        return ""
    one = summary.estimate
    slopes = [i for i, name in enumerate(summary.names) if not name.endswith(INTERCEPT)]
    values, weak = np.asarray(one.value, float)[slopes], ~one.identified[slopes]
    names = [summary.names[i] for i in slopes]
    interval = np.asarray(one.interval(summary.level), float)[slopes]
    sampling = getattr(one, "std_err_sampling", None)
    share = np.zeros(len(values))
    if sampling is not None:
        half = (interval[:, 1] - interval[:, 0])[~weak] / 2
        errors = np.asarray(one.std_err, float)[slopes][~weak]
        part = np.asarray(sampling, float)[slopes][~weak]
        share[~weak] = half * part / np.where(errors > 0, errors, 1.0)
    order = np.argsort(-np.abs(values), kind="stable")[:SHOWN]
    chart = Forest(
        [names[j] for j in order],
        values[order].tolist(),
        share[order].tolist(),
        interval[order, 0].tolist(),
        interval[order, 1].tolist(),
        weak[order].tolist(),
        "coefficient",
    )
    level = f"{100 * summary.level:g} %"
    thin = f"Thin: {level} interval, sampling and noise together." + (
        " Thick: the part that sampling alone would have." if sampling is not None else ""
    )
    hollow = "Hollow: not identified at this epsilon; no interval is given rather than a wrong one."
    caption = " ".join([thin] * (not weak.all()) + [hollow] * bool(weak.any()))
    notes = "".join(f"<p>{escape(note)}</p>" for note in summary.notes)
    return (
        "<h2>Coefficients and how sure they are</h2>"
        + figure(chart, plots, caption)
        + f'{notes}<div class="scroll">{summary.to_html()}</div>'
    )
