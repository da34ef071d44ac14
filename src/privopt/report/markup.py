"""Pieces of the page: tables, lists, figures and the scripts that make figures live."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import Any

from privopt.report.chart import Chart

SCRIPT = """
for (const figure of document.querySelectorAll("figure[data-plot]")) {
  const spec = JSON.parse(document.getElementById(figure.dataset.plot).textContent);
  figure.classList.add("live");
  Plotly.newPlot(figure.querySelector(".plot"), spec.data, spec.layout,
    {responsive: true, displayModeBar: false});
}
"""


def table(head: Iterable[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table whose last ``numbers`` columns are set like numbers."""
    head = list(head)
    lines = []
    for row in rows:
        cells = [
            f'<td class="{"number" if k >= len(head) - numbers else "name"}">{escape(cell)}</td>'
            for k, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return row_table(head, "".join(lines), numbers)


def row_table(head: Sequence[str], body: str, numbers: int = 0) -> str:
    cells = "".join(
        f"<th{' class=number' if k >= len(head) - numbers else ''}>{escape(name)}</th>"
        for k, name in enumerate(head)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def bullets(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def figure(chart: Chart, plots: list[dict[str, Any]], caption: str) -> str:
    plots.append(chart.plotly())
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    inside = f'<div class="plot"></div>{chart.svg()}{words}'
    return f'<figure data-plot="plot-{len(plots)}">{inside}</figure>'


def scripts(plots: list[dict[str, Any]]) -> str:
    """Plotly and its figures; without the package the static pictures stand alone."""
    library = plotly()
    if library is None:
        return ""
    specs = "".join(
        f'<script type="application/json" id="plot-{number}">'
        f"{json.dumps(spec).replace('<', chr(92) + 'u003c')}</script>"
        for number, spec in enumerate(plots, 1)
    )
    return f"{specs}<script>{library}</script><script>{SCRIPT}</script>"


@cache
def plotly() -> str | None:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return get_plotlyjs()
