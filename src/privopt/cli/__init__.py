"""The command line: one file for each command."""

from __future__ import annotations

from typing import Annotated

import typer

from privopt.cli.account import account
from privopt.cli.audit import audit
from privopt.cli.demo import demo
from privopt.cli.evaluate import evaluate
from privopt.cli.fit import fit
from privopt.cli.init_bounds import init_bounds
from privopt.cli.ledger import ledger
from privopt.cli.plan import plan
from privopt.cli.predict import predict
from privopt.cli.prediction_intervals import prediction_intervals
from privopt.cli.report import report
from privopt.cli.statement import statement

app = typer.Typer(
    name="privopt",
    help="Differentially private optimization: the epsilon it prints is true.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell(wanted: bool) -> None:
    if wanted:
        from privopt import __version__

        typer.echo(f"privopt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


app.command()(demo)
app.command()(plan)
app.command()(init_bounds)
app.command()(fit)
app.command()(evaluate)
app.command()(predict)
app.command()(prediction_intervals)
app.command()(report)
app.command()(statement)
app.command()(account)
app.command()(audit)
app.add_typer(ledger)

__all__ = ["app"]
