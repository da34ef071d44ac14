"""``privopt plan``: which algorithm, and why, before any data is used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

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

if TYPE_CHECKING:
    from privopt.planner import Ranking
    from privopt.privacy import Budget

Page = dict[str, Any]

FILE = "For a file"
LEAST = 20
"""Room for how an algorithm works, below which nothing is said of it."""


def plan(
    data: Annotated[
        Path | None,
        typer.Argument(help="CSV or Parquet file: its column names and types, and its row count."),
    ] = None,
    n: Annotated[int | None, typer.Option(help="Number of records, public.")] = None,
    p: Annotated[int | None, typer.Option(help="Number of features.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    neighbouring: Neighbouring = Relation.zero_out,
    loss: Annotated[LossName, typer.Option(help="Loss.")] = LossName.logistic,
    attack_tpr: Annotated[
        float | None,
        typer.Option(
            help="In place of --epsilon: right alarms of an attacker, at most, from 0 to 1."
        ),
    ] = None,
    attack_fpr: Annotated[
        float, typer.Option(help="With --attack-tpr: at this rate of false alarms.")
    ] = 0.01,
    data_norm: Annotated[float, typer.Option(help="Bound on the norm of a row.")] = 1.0,
    radius: Annotated[
        float | None, typer.Option(help="Radius of an l2 ball for theta; none by default.")
    ] = None,
    models: Annotated[int, typer.Option(help="Models fitted to the same records.")] = 1,
    target: Annotated[
        str | None, typer.Option(help="Name of the column to predict.", rich_help_panel=FILE)
    ] = None,
    bounds: Annotated[
        Path | None,
        typer.Option(help="Its public facts: privopt init-bounds.", rich_help_panel=FILE),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Estimator, for example Ridge.", rich_help_panel=FILE)
    ] = None,
) -> None:
    """Rank the algorithms for a problem, or for the model of a file, without using its data."""
    from privopt.cache import remembered

    with plain_errors():
        if attack_tpr is not None:
            epsilon = _against(attack_tpr, attack_fpr, delta)
        if data is not None:
            from privopt.privacy import Budget

            budget = Budget(epsilon, delta, neighbouring.value)
            ranking, name = _of_file(data, target, bounds, model, n, budget)
            _show(_page(ranking, name, ranking.facts.p))
            console.print("\nWhat another epsilon would buy:", highlight=False)
            console.print(str(ranking.best.frontier()), markup=False, highlight=False)
            return
        if n is None or p is None:
            raise ValueError("give a file, or --n and --p.")
        asked = (loss.value, radius, data_norm, n, p, epsilon, delta, neighbouring.value, models)
        # The same question again is answered without loading any numerics.
        _show(remembered("plan", asked, lambda: _made(*asked), _whole))


def _against(right: float, false: float, delta: float) -> float:
    """Epsilon from what an attacker may achieve, and a sentence that says so."""
    from privopt.privacy.attacks import epsilon_against

    epsilon = math.floor(epsilon_against(right, false, delta) * 1e4) / 1e4
    console.print(
        f"epsilon = {epsilon:g}: an attacker who is wrong about {100 * false:g} % of those who "
        f"were not in the data is right about at most {100 * right:g} % of those who were.",
        highlight=False,
    )
    return epsilon


def _made(
    loss: str,
    radius: float | None,
    data_norm: float,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    neighbouring: str,
    models: int,
) -> Page:
    from privopt import Budget, Problem
    from privopt import plan as make_plan
    from privopt.geometry import L2Ball, WholeSpace

    domain = WholeSpace() if radius is None else L2Ball(radius)
    problem = Problem(_loss(LossName(loss)), domain, data_norm=data_norm)
    budget = Budget(epsilon, delta, cast(Any, neighbouring))
    ranking = make_plan(problem, n=n, p=p, budget=budget, repeats=models)
    return _page(ranking, loss, p)


def _page(ranking: Ranking, name: str, p: int) -> Page:
    """What is shown of a ranking, as plain values."""
    from privopt.planner.explain import COLUMNS, notes, rows

    facts, budget = ranking.facts, ranking.budget
    size = f"n={facts.n}, p={p}, epsilon={budget.epsilon:g}, delta={budget.delta:g}"
    lines = [list(row) for row in rows(ranking)]
    columns, sentences = list(COLUMNS), notes(ranking)
    return {"title": f"{name}, {size}", "columns": columns, "rows": lines, "notes": sentences}


def _whole(page: Any) -> bool:
    """Whether a kept page is one: rows as wide as the columns, and texts everywhere."""
    cells = [cell for row in page["rows"] for cell in row]
    texts = [page["title"], *page["columns"], *page["notes"], *cells]
    wide = all(len(row) == len(page["columns"]) for row in page["rows"])
    return wide and all(isinstance(text, str) for text in texts)


def _show(page: Page) -> None:
    table = Table(title=page["title"], box=None, padding=(0, 2, 0, 0), pad_edge=False)
    columns, lines, room, shown = page["columns"], page["rows"], console.width, 0
    for place, column in enumerate(columns):
        width = max([len(line[place]) for line in lines] + [len(w) for w in column.split()])
        last = place == len(columns) - 1
        # On a narrow terminal the last columns are left out rather than squeezed.
        if room < (LEAST if last else width + 2):
            break
        table.add_column(column, no_wrap=last, width=min(width, room - 2) if last else width)
        room, shown = room - width - 2, place + 1
    for line in lines:
        table.add_row(*line[:shown])
    if lines:
        console.print(table)
    for sentence in page["notes"]:
        console.print(f"[dim]{sentence}[/dim]", highlight=False)
    if not lines:
        raise ValueError("no solver applies.")


def _of_file(
    data: Path,
    target: str | None,
    bounds: Path | None,
    model: str | None,
    n: int | None,
    budget: Budget,
) -> tuple[Ranking, str]:
    """The ranking of the model that ``privopt fit`` would fit, and its name."""
    from privopt.cli.fit import declared
    from privopt.tables import column_types, count_rows, learn, presumed

    types = column_types(data)
    if bounds is not None:
        schema = declared(bounds, target)
        schema.check_names(types, data.name, bounds.name)
    elif target is None:
        raise ValueError("say which column to predict: --target NAME.")
    else:
        schema = presumed(types, target, data.name)
    if n is None and budget.neighbouring == "add_remove":
        raise ValueError("under add_remove the number of rows is private: give a public --n.")
    unknown = "unknown" in types.values()
    looked = "the names of the columns" if unknown else "the names and types of the columns"
    if n is None:
        n, looked = count_rows(data), f"{looked} and the number of rows, which counts as public"
    console.print(f"[dim]Looked at {looked}; no value was used.[/dim]", highlight=False)
    if bounds is None:
        text = f"text counts as {learn.CATEGORIES} categories"
        console.print(
            f"[dim]Presumed {schema.width} columns: "
            + ("all count as numbers, and the target as two classes," if unknown else text)
            + " until a bounds file says what they are.[/dim]",
            highlight=False,
        )
    return learn.ranking(schema, model, n, budget)


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
