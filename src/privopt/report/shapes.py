"""Pictures of an additive model: what each shaped column gives to the score, and its noise.

All of it follows from the released model and the plan, so it costs no budget. The band is an
estimate: the perturbed minimiser moves by about noise over curvature. The curvature of a column of
variance one, in rows that are clipped to C, is 1 for a residual within its cap, and for classes
follows from their released rate. It leaves out the noise of the histograms and moments, and how
columns depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.special import expit

from privopt.oracle import RowMap, ShapeTables
from privopt.report.chart import GREY, Curves, Line
from privopt.solvers.families.standardization import CURVATURE_LEFT
from privopt.tables import DeclaredColumns

SHOWN = 12
"""Pictures on a page."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """One column's part of the score at the middle of each bin, straight part included, centred."""

    name: str
    x: np.ndarray
    y: np.ndarray
    deviation: np.ndarray

    def chart(self, output: str) -> Curves:
        """The shape between two deviations of its noise."""
        ends = [(self.y + sign * 2 * self.deviation).tolist() for sign in (1, -1)]
        x = self.x.tolist()
        return Curves(
            [
                Line("the shape", x, self.y.tolist()),
                Line("two deviations above", x, ends[0], GREY, dashed=True),
                Line("two deviations below", x, ends[1], GREY, dashed=True),
            ],
            f"{self.name}: straight part and shape",
            output,
        )


def drawn(model: Any, encoder: DeclaredColumns | None = None) -> tuple[Drawn, ...]:
    """Shapes of a regression or a model of two classes, those that move the score most first; none
    of others. With an encoder before the model, in the table's own names and units."""
    shapes = getattr(model, "shapes_", None)
    if shapes is None or (model.coef_.ndim == 2 and len(model.coef_) != 1):
        return ()
    tables: ShapeTables = model._tables
    row_map: RowMap = model._row_map
    noise = _noise(model, row_map, tables)
    found = []
    for j, shape in enumerate(shapes):
        middle = (shape.edges[1:] + shape.edges[:-1]) / 2
        slope = np.atleast_2d(model.coef_)[0, shape.column]
        score = slope * middle + shape.values[0]
        name = shape.name
        if encoder is not None:
            name = str(encoder.get_feature_names_out()[shape.column])
            middle = middle * encoder.scales()[shape.column] + encoder.shifts()[shape.column]
        found.append(Drawn(name, middle, score - score.mean(), noise[j]))
    found.sort(key=lambda one: -float(np.ptp(one.y)))
    return tuple(found[:SHOWN])


def pictures(figures: Sequence[str], outputs: Sequence[str]) -> str:
    """The section of the page, from figures in HTML; nothing where there are none."""
    if not figures:
        return ""
    rows = [figures[i : i + 2] for i in range(0, len(figures), 2)]
    return (
        "<h2>Shapes of columns</h2>"
        f"<p>What each shaped column gives to the score ({escape(outputs[0])}) over its declared "
        "range, around its mean. Grey: two standard deviations of the last release's noise, an "
        "estimate for columns that do not depend on each other. Where no records lie, a shape says "
        "nothing.</p>" + "".join(f'<div class="pair">{"".join(row)}</div>' for row in rows)
    )


def _noise(model: Any, row_map: RowMap, tables: ShapeTables) -> np.ndarray:
    """Standard deviation of each bin's score."""
    public, clip = model.plan_.settings.public(), row_map.clip_norm
    sigma = public["noise_multiplier"] * model._lipschitz
    if public["noise"] == "pure":
        sigma *= math.sqrt(row_map.dimension + tables.width + 1)
    low, high = (np.array(side) for side in zip(*(end for _, *end in tables.columns), strict=True))
    indices = [index for index, _, _ in tables.columns]
    curved = _curvature(model, row_map) * public["n"] * CURVATURE_LEFT / clip**2
    weights = np.arange(1.0, public["harmonics"] + 1) ** -public["roughness"]
    each = sigma / (curved * weights**2 + public["regularisation"])
    straight = sigma / (curved + public["regularisation"])
    bins = (np.arange(tables.values.shape[1]) + 0.5) / tables.values.shape[1]
    places = low[:, None] + bins * (high - low)[:, None]
    away = row_map.scale[indices, None] * (places - row_map.centre[indices, None])
    square = np.einsum("jbk,k->jb", tables.values**2, each**2) + (away * straight) ** 2
    return np.sqrt(square) / clip * model._unit_of_scores()


def _curvature(model: Any, row_map: RowMap) -> float:
    """Mean curvature of a record's loss, about the model of the constant alone."""
    if model.coef_.ndim == 1:
        return 1.0
    declared = model._declared(len(row_map.centre))
    middle = model.intercept_[0] + model.coef_[0] @ (
        row_map.centre * declared.scale + declared.shift
    )
    return 0.5 * max(float(expit(-abs(middle))), 0.01)
