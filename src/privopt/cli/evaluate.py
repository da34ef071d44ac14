"""``privopt evaluate``: how good a saved model is, on private rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privopt.cli.options import (
    AsJson,
    DataFile,
    Delta,
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

if TYPE_CHECKING:
    from privopt.evaluation import Evaluation

Budget = Annotated[float, typer.Option(help="Privacy loss epsilon of the evaluation, positive.")]


def evaluate(
    model: ModelFile,
    data: DataFile,
    target: Annotated[str, typer.Option(help="Name of the column with the truth.")],
    epsilon: Budget = 0.1,
    delta: Delta = 0.0,
    training: Annotated[
        bool, typer.Option("--training", help="The rows are those that the model was fitted to.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also keep everything as JSON, say evaluation.json.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write the model's HTML report with these metrics.")
    ] = None,
    neighbouring: Neighbouring = Relation.zero_out,
    n_public: Annotated[
        int | None, typer.Option(help="Public number of rows; needed under add_remove.")
    ] = None,
    users: Annotated[
        str | None, typer.Option(help="Column that says whose row it is: privacy for users.")
    ] = None,
    rows_per_user: Annotated[
        int | None, typer.Option(help="With --users: how many rows of each user count, public.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Charge the evaluation to a budget in this ledger.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the budget; may be left out if there is one.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Metrics of a saved model on the rows of a file, each with an interval, for one epsilon.

    The rows must be others than those it was fitted to, or say --training.
    """
    from privopt.tables import column_types, read_table
    from privopt.tables.judge import judge, wanted

    with plain_errors():
        if (users is None) != (rows_per_user is None):
            raise ValueError("--users and --rows-per-user belong together.")
        pipeline = loaded(model)
        columns = wanted(pipeline, target, users, column_types(data), model.name, data.name)
        for path in filter(None, (out, report)):
            check_writable(path, force)
        table = read_table(data, columns)
        with progress("evaluating"):
            found = judge(
                pipeline,
                table,
                target,
                users,
                epsilon,
                neighbouring.value,
                delta=delta,
                rows="training" if training else "held_out",
                n_public=n_public,
                rows_per_user=rows_per_user,
                ledger=None if ledger is None else str(ledger),
                dataset=dataset,
            )
        keep(found, pipeline, out, report)
        if as_json:
            typer.echo(found.to_json())
            return
        console.print(str(found), markup=False, highlight=False, soft_wrap=True)
        written = ", ".join(str(path) for path in (out, report) if path is not None)
        if written:
            console.print(f"wrote {written}", markup=False, highlight=False, soft_wrap=True)


def keep(found: Evaluation, pipeline: Any, out: Path | None, report: Path | None) -> None:
    """Write what was asked for."""
    if out is not None:
        out.write_text(found.to_json() + "\n", encoding="utf-8")
    if report is not None:
        from privopt.report import write_report

        with progress("writing the report"):
            write_report(pipeline, report, evaluation=found)
