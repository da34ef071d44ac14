"""``privopt prediction-intervals``: how far targets of new rows lie from a model's predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from privopt.cli.options import (
    AsJson,
    DataFile,
    Force,
    ModelFile,
    Neighbouring,
    Relation,
    check_writable,
    console,
    loaded,
    plain_errors,
    progress,
)


def prediction_intervals(
    model: ModelFile,
    data: DataFile,
    target: Annotated[str, typer.Option(help="Name of the column with the truth.")],
    level: Annotated[float, typer.Option(help="Share of new targets that lie inside.")] = 0.9,
    epsilon: Annotated[float, typer.Option(help="Privacy loss epsilon, positive.")] = 0.5,
    out: Annotated[
        Path | None, typer.Option(help="Also keep it as JSON, for `privopt predict --band`.")
    ] = None,
    neighbouring: Neighbouring = Relation.zero_out,
    ledger: Annotated[
        Path | None, typer.Option(help="Charge it to a budget in this ledger.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the budget; may be left out if there is one.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """One number that makes intervals of a regression's predictions, from rows of a file.

    The rows must be others than those the model was fitted to.
    """
    from privopt.tables import column_types, read_table
    from privopt.tables.judge import banded, wanted

    with plain_errors():
        pipeline = loaded(model)
        columns = wanted(pipeline, target, None, column_types(data), model.name, data.name)
        if out is not None:
            check_writable(out, force)
        table = read_table(data, columns)
        with progress("measuring residuals"):
            found = banded(
                pipeline,
                table,
                target,
                level=level,
                epsilon=epsilon,
                neighbouring=neighbouring.value,
                ledger=None if ledger is None else str(ledger),
                dataset=dataset,
            )
        text = json.dumps(found.to_dict(), indent=2)
        if out is not None:
            out.write_text(text + "\n", encoding="utf-8")
        if as_json:
            typer.echo(text)
            return
        console.print(str(found), markup=False, highlight=False, soft_wrap=True)
        if out is not None:
            console.print(f"wrote {out}", markup=False, highlight=False, soft_wrap=True)
