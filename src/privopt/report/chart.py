"""Charts that are drawn twice from the same numbers: as SVG, which needs nothing, and by plotly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 12, 50
BLUE, GREY, RED, PALE = "#1f5fa8", "#8a8f98", "#b3392f", "#b9bfc7"


class Chart(Protocol):
    """Drawn as SVG, which needs nothing, and described for plotly."""

    def svg(self) -> str: ...
    def plotly(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Line:
    """A named curve; with ``low`` and ``high`` a band lies around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = BLUE
    dashed: bool = False
    marks: bool = False
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    @property
    def band(self) -> tuple[list[float], list[float]]:
        """The outline of the band, there and back."""
        if self.low is None or self.high is None:
            return [], []
        return [*self.x, *reversed(self.x)], [*self.high, *reversed(self.low)]


@dataclass(frozen=True)
class Curves:
    """Curves on one pair of axes; ``here`` marks a point in red."""

    lines: Sequence[Line]
    x_title: str
    y_title: str
    log_x: bool = False
    log_y: bool = False
    here: tuple[float, float] | None = None

    def svg(self) -> str:
        """A static picture; numbers on the axes are rounded, the tables beside it are not."""
        xs = Axis([x for line in self.lines for x in line.x], self.log_x, LEFT, WIDTH - RIGHT)
        heights = [y for line in self.lines for y in (*line.y, *line.band[1])]
        ys = Axis(heights, self.log_y, HEIGHT - BOTTOM, TOP)
        parts = [_axes(xs, ys, self.x_title, self.y_title)]
        for line in self.lines:
            outline = " ".join(f"{xs(x):.1f},{ys(y):.1f}" for x, y in zip(*line.band, strict=True))
            if outline:
                parts.append(f'<polygon points="{outline}" fill="{line.colour}" opacity="0.18"/>')
            points = " ".join(
                f"{xs(x):.1f},{ys(y):.1f}" for x, y in zip(line.x, line.y, strict=True)
            )
            dash = ' stroke-dasharray="5 4"' if line.dashed else ""
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{line.colour}" '
                f'stroke-width="2.2"{dash}/>'
            )
            if line.marks:
                parts += [
                    _dot(xs(x), ys(y), line.colour) for x, y in zip(line.x, line.y, strict=True)
                ]
        if self.here is not None:
            parts.append(_dot(xs(self.here[0]), ys(self.here[1]), RED, 5))
        return picture("".join(parts), HEIGHT, f"{self.y_title} against {self.x_title}")

    def plotly(self) -> dict[str, Any]:
        """Data and layout for plotly.js."""
        data: list[dict[str, Any]] = [
            {
                "type": "scatter",
                "mode": "lines",
                "x": line.band[0],
                "y": line.band[1],
                "fill": "toself",
                "fillcolor": line.colour,
                "opacity": 0.18,
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            }
            for line in self.lines
            if line.low is not None
        ]
        data += [
            {
                "type": "scatter",
                "mode": "lines+markers" if line.marks else "lines",
                "name": line.name,
                "x": list(line.x),
                "y": list(line.y),
                "line": {"color": line.colour, "dash": "dash" if line.dashed else "solid"},
            }
            for line in self.lines
        ]
        if self.here is not None:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": "this model",
                    "x": [self.here[0]],
                    "y": [self.here[1]],
                    "marker": {"color": RED, "size": 11},
                }
            )
        return {
            "data": data,
            "layout": layout(340)
            | {
                "xaxis": plotly_axis(
                    self.x_title, self.log_x, [x for one in self.lines for x in one.x]
                ),
                "yaxis": plotly_axis(
                    self.y_title, self.log_y, [y for one in self.lines for y in one.y]
                ),
            },
        }


@dataclass(frozen=True)
class Bars:
    """Named values; whiskers reach so far to both sides."""

    names: Sequence[str]
    values: Sequence[float]
    whiskers: Sequence[float] | None
    title: str

    def svg(self) -> str:
        step, left = 23, 176
        height = TOP + step * len(self.names) + BOTTOM
        whiskers = self.whiskers or [0.0] * len(self.names)
        ends = [v + s * w for v, w in zip(self.values, whiskers, strict=True) for s in (-1, 1)]
        xs = Axis([0.0, *ends], False, left, WIDTH - RIGHT)
        bottom = height - BOTTOM
        parts = [ticks_below(xs, bottom, self.title, left)]
        for i, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
            y = TOP + step * (i + 0.5)
            a, b = sorted((xs(0.0), xs(value)))
            parts.append(
                f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{escape(short(name))}</text>"
                f'<rect x="{a:.1f}" y="{y - 7:.1f}" width="{max(b - a, 0.5):.1f}" height="14" '
                f'fill="{BLUE}" opacity="0.75"/>'
            )
            if self.whiskers is not None:
                low, high = xs(value - whiskers[i]), xs(value + whiskers[i])
                parts.append(
                    f'<path d="M{low:.1f} {y - 4:.1f}v8m0-4H{high:.1f}m0-4v8" '
                    'stroke="#222" fill="none"/>'
                )
        zero = xs(0.0)
        parts.append(f'<path d="M{zero:.1f} {TOP}V{bottom}" stroke="#444"/>')
        return picture("".join(parts), height, self.title)

    def plotly(self) -> dict[str, Any]:
        bar: dict[str, Any] = {
            "type": "bar",
            "orientation": "h",
            "x": list(self.values),
            "y": list(range(len(self.names))),
            "text": [escape(name) for name in self.names],
            "textposition": "none",
            "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
            "marker": {"color": BLUE, "opacity": 0.75},
        }
        whiskers = [
            {
                "type": "scatter",
                "mode": "markers",
                "x": bar["x"],
                "y": bar["y"],
                "hoverinfo": "skip",
                "marker": {"size": 1, "color": "#222"},
                "error_x": {"type": "data", "array": list(length), "color": "#222", "width": 4},
            }
            for length in (self.whiskers,)
            if length is not None
        ]
        axis = {
            "autorange": "reversed",
            "tickvals": list(range(len(self.names))),
            "ticktext": [escape(short(name)) for name in self.names],
            "automargin": True,
        }
        frame = layout(110 + 24 * len(self.names)) | {
            "xaxis": plotly_axis(self.title, False, self.values),
            "yaxis": axis,
            "showlegend": False,
        }
        return {"data": [bar, *whiskers], "layout": frame}


class Axis:
    """From values to pixels, with round ticks."""

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float) -> None:
        self.log, self.start, self.end = log, start, end
        low, high = self._at(min(values)), self._at(max(values))
        if log:
            low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
        pad = 0.0 if log else 0.04 * (high - low)
        self.low, self.high = low - pad, high + pad
        if self.high <= self.low:
            self.low, self.high = low - 0.5, high + 0.5

    def _at(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def __call__(self, value: float) -> float:
        share = (self._at(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            every = max(1, math.ceil((self.high - self.low) / 6))
            powers = range(math.ceil(self.low), math.floor(self.high) + 1, every)
            return [(10.0**k, f"{10.0**k:g}") for k in powers]
        raw = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(m * size for m in (1, 2, 5, 10) if m * size >= raw)
        first = math.ceil(self.low / step)
        marks = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        return [(mark, f"{mark:.4g}") for mark in marks]


def _axes(xs: Axis, ys: Axis, x_title: str, y_title: str) -> str:
    bottom = HEIGHT - BOTTOM
    parts = [ticks_below(xs, bottom, x_title, LEFT)]
    for value, text in ys.ticks():
        parts.append(
            f'<path d="M{LEFT} {ys(value):.1f}H{WIDTH - RIGHT}" stroke="#e3e6ea"/>'
            f'<text x="{LEFT - 6}" y="{ys(value) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle:.0f})">{escape(y_title)}</text>'
    )
    return "".join(parts)


def ticks_below(xs: Axis, bottom: float, title: str, left: float) -> str:
    parts = []
    for value, text in xs.ticks():
        parts.append(
            f'<path d="M{xs(value):.1f} {TOP}V{bottom}" stroke="#e3e6ea"/>'
            f'<text x="{xs(value):.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
        )
    parts.append(
        f'<path d="M{left} {bottom}H{WIDTH - RIGHT}" stroke="#444"/>'
        f'<text x="{(left + WIDTH - RIGHT) / 2:.0f}" y="{bottom + 40}" '
        f'text-anchor="middle">{escape(title)}</text>'
    )
    return "".join(parts)


def _dot(x: float, y: float, colour: str, size: float = 3) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'


def picture(body: str, height: float, label: str) -> str:
    """The SVG around a chart's parts."""
    return (
        '<svg class="static" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}" font-size="14.5" font-family="system-ui, sans-serif" '
        f'fill="#222"><rect width="100%" height="100%" fill="#fff"/>{body}</svg>'
    )


def short(name: str) -> str:
    """A name that fits beside a bar."""
    return name if len(name) <= 22 else name[:21] + "…"


def layout(height: int) -> dict[str, Any]:
    """What all plots of the page share."""
    return {
        "height": height,
        "margin": {"l": 62, "r": 14, "t": 14, "b": 52},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#222"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
    }


def plotly_axis(title: str, log: bool, values: Sequence[float]) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": escape(title)}, "gridcolor": "#e3e6ea"}
    if not log:
        return axis
    decades = math.log10(max(values) / max(min(values), 1e-300))
    return axis | {"type": "log", "exponentformat": "power", "dtick": max(1, round(decades / 5))}
