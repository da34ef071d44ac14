"""Write a report or a card to a file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from privopt.evaluation import Evaluation
from privopt.report.card import card
from privopt.report.findings import findings
from privopt.report.page import page


def write_report(
    model: Any,
    path: str | PathLike[str],
    *,
    title: str | None = None,
    evaluation: Evaluation | None = None,
) -> None:
    """Write one self-contained HTML page about a fitted model; it costs no budget.

    Parameters
    ----------
    model : estimator
        A fitted estimator of privopt, or a pipeline that ends in one.
    path : str or path
    title : str, optional
        Heading of the page; the model's name by default.
    evaluation : Evaluation, optional
        What ``privopt.evaluate`` found; the page shows it with its intervals.
    """
    _write(path, page(findings(model, title, evaluation)))


def write_card(
    model: Any,
    path: str | PathLike[str],
    *,
    title: str | None = None,
    evaluation: Evaluation | None = None,
) -> None:
    """Write a model card in Markdown; the parameters are those of ``write_report``."""
    _write(path, card(findings(model, title, evaluation)))


def _write(path: str | PathLike[str], text: str) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
