"""``privopt plan``: which algorithm, and why, without any data."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from privopt.cli.options import (
    Delta,
    Epsilon,
    LossName,
    Neighbouring,
    Relation,
    console,
    plain_errors,
)


def plan(
    n: Annotated[int, typer.Option(help="Number of records, public.")],
    p: Annotated[int, typer.Option(help="Number of features.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    neighbouring: Neighbouring = Relation.zero_out,
    loss: Annotated[LossName, typer.Option(help="Loss.")] = LossName.logistic,
    data_norm: Annotated[float, typer.Option(help="Bound on the norm of a row.")] = 1.0,
    radius: Annotated[
        float | None, typer.Option(help="Radius of an l2 ball for theta; none by default.")
    ] = None,
    models: Annotated[int, typer.Option(help="Models fitted to the same records.")] = 1,
) -> None:
    """Rank the algorithms for a problem by their proved bounds."""
    from privopt import Budget, Problem
    from privopt import plan as make_plan
    from privopt.geometry import L2Ball, WholeSpace
    from privopt.planner.explain import COLUMNS, notes, rows

    with plain_errors():
        domain = WholeSpace() if radius is None else L2Ball(radius)
        ranking = make_plan(
            Problem(_loss(loss), domain, data_norm=data_norm),
            n=n,
            p=p,
            budget=Budget(epsilon, delta, neighbouring.value),
            repeats=models,
        )
        table = Table(title=f"{loss.value}, n={n}, p={p}, epsilon={epsilon:g}, delta={delta:g}")
        for column in COLUMNS:
            table.add_column(column, no_wrap=column == "solver")
        for row in rows(ranking):
            table.add_row(*row)
        if ranking.plans:
            console.print(table)
        for sentence in notes(ranking):
            console.print(f"[dim]{sentence}[/dim]", highlight=False)
        if not ranking.plans:
            raise ValueError("no solver applies.")


def _loss(name: LossName):
    from privopt import losses

    return {
        "logistic": losses.Logistic,
        "huber": losses.Huber,
        "smoothed_hinge": losses.SmoothedHinge,
        "hinge": losses.Hinge,
        "absolute": losses.Absolute,
        "squared": losses.Squared,
    }[name.value]()
