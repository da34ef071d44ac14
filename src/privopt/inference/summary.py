"""The table of coefficients that a statistician reads, in words, HTML, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from privopt.inference.coefficients import Coefficients

WEAK = "not identified at this epsilon"
INTERCEPT = "intercept"
"""How the name of a constant ends."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients with standard errors and intervals; ``str`` is the table as text.

    Attributes
    ----------
    title : str
    names : sequence of str
        Of the coefficients, the intercept last.
    estimate : Coefficients
    level : float
        Of the intervals.
    facts : sequence of (str, str)
        What stands above the table: records, budget, method.
    notes : sequence of str
        What is estimated, what intervals hold, what they cost.
    """

    title: str
    names: Sequence[str]
    estimate: Coefficients
    level: float
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]

    @property
    def head(self) -> list[str]:
        """Names of the columns."""
        tail = f"{50 * (1 - self.level):g}"
        ends = [f"[{tail} %", f"{100 - 50 * (1 - self.level):g} %]"]
        parts = [] if self.estimate.std_err_sampling is None else ["sampling", "privacy"]
        statistic = "t" if self.estimate.kind == "parts" else "z"
        return ["coef", "std err", *parts, statistic, f"P>|{statistic}|", *ends]

    def columns(self) -> dict[str, np.ndarray]:
        """The table as arrays; infinite and missing numbers where nothing is identified."""
        one, level = self.estimate, self.level
        errors, interval = one.std_err, one.interval(level)
        found = [one.value, errors]
        if one.std_err_sampling is not None:
            sampling = np.asarray(one.std_err_sampling)
            with np.errstate(invalid="ignore"):
                privacy = np.sqrt(np.maximum(errors**2 - sampling**2, 0.0))
            found += [sampling, np.where(np.isfinite(sampling), privacy, math.nan)]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.isfinite(errors), one.value / errors, math.nan)
        found += [ratio, one.p_values(), interval[:, 0], interval[:, 1]]
        return dict(zip(self.head, found, strict=True))

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row for each coefficient."""
        import pandas as pd

        return pd.DataFrame(self.columns(), index=list(self.names))

    def to_dict(self) -> dict[str, Any]:
        """The table as plain values; None where nothing is identified."""

        def plain(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        rows = {name: [plain(v) for v in values] for name, values in self.columns().items()}
        return {"names": list(self.names), **rows, "notes": list(self.notes)}

    def cells(self) -> list[list[str]]:
        """The table as text, one list for each coefficient; short where it is not identified."""
        columns, known = self.columns(), self.estimate.identified

        def row(i: int) -> list[str]:
            if not known[i]:
                return [_text(self.estimate.value[i]), WEAK]
            return [
                _p(c[i]) if name.startswith("P>") else _text(c[i]) for name, c in columns.items()
            ]

        return [row(i) for i in range(len(self.names))]

    def __str__(self) -> str:
        head, rows = (
            ["", *self.head],
            [[n, *c] for n, c in zip(self.names, self.cells(), strict=True)],
        )
        full = [row for row in rows if len(row) == len(head)]
        widths = [max(len(row[k]) for row in [head, *full]) for k in range(len(head))]
        widths[0] = max(len(row[0]) for row in rows)
        lines = [self.title, *(f"{name}: {value}" for name, value in self.facts), ""]
        for row in [head, *rows]:
            first = row[0].ljust(widths[0])
            others = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False)]
            lines.append("  ".join([first, *others]).rstrip())
        return "\n".join([*lines, "", *self.notes])

    def to_html(self) -> str:
        """An HTML table with its facts and notes left out: a page has a place for those."""
        head = "".join(f"<th>{escape(name)}</th>" for name in ["", *self.head])
        width = len(self.head)
        body = "".join(f"<tr><th>{escape(n)}</th>{_tds(c, width)}</tr>" for n, c in self._rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html

    def to_markdown(self) -> str:
        """A Markdown table, and the notes below it."""
        width = len(self.head)
        lines = [_bar(["", *self.head]), _bar(["---"] + ["---:"] * width)]
        lines += [_bar([n, *_padded(c, width)]) for n, c in self._rows()]
        return "\n".join([*lines, "", *self.notes])

    def to_latex(self) -> str:
        """A tabular environment with booktabs rules."""
        width = len(self.head)
        lines = [rf"\begin{{tabular}}{{l{'r' * width}}}", r"\toprule"]
        lines += [_ampersands(["", *self.head]), r"\midrule"]
        for name, cells in self._rows():
            if len(cells) < width:
                value, said = cells
                more = rf"\multicolumn{{{width - 1}}}{{l}}{{{_latex(said)}}} \\"
                lines.append(f"{_latex(name)} & {_latex(value)} & {more}")
            else:
                lines.append(_ampersands([name, *cells]))
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def _rows(self) -> list[tuple[str, list[str]]]:
        return list(zip(self.names, self.cells(), strict=True))


def _text(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else ("" if math.isnan(value) else str(value))


def _p(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}"


def _padded(cells: list[str], width: int) -> list[str]:
    return cells + [""] * (width - len(cells))


def _tds(cells: list[str], width: int) -> str:
    if len(cells) == width:
        return "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<td>{escape(cells[0])}</td><td colspan="{width - 1}">{escape(cells[1])}</td>'


def _bar(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_SPECIAL = {c: "\\" + c for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in text)


def _ampersands(cells: list[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"
