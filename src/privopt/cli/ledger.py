"""``privopt ledger``: make, show, verify and burn the budgets of data sets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from privopt.cli.options import Delta, Epsilon, Neighbouring, Relation, console, plain_errors

ledger = typer.Typer(
    name="ledger",
    help="One budget for each data set, in a file that no crash and no race can overspend.",
    no_args_is_help=True,
)

LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.")]
DatasetName = Annotated[str, typer.Option("--dataset", help="Name of the data set.")]
CertificateFile = Annotated[
    Path | None, typer.Option("--certificate", help="A certificate.json of a fit.")
]


class How(StrEnum):
    """How fits add up."""

    auto = "auto"
    basic = "basic"
    gaussian = "gaussian"


@ledger.command()
def create(
    path: LedgerFile,
    dataset: DatasetName = "data",
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    neighbouring: Neighbouring = Relation.zero_out,
    unit: Annotated[str, typer.Option(help="Whom one row stands for.")] = "record",
    composition: Annotated[How, typer.Option(help="How fits add up.")] = How.auto,
) -> None:
    """Give a data set its total budget; makes the file if there is none."""
    from privopt.ledger import Ledger

    with plain_errors():
        made = Ledger.create(
            path,
            epsilon,
            delta,
            neighbouring=neighbouring.value,
            unit=unit,
            dataset=dataset,
            composition=composition.value,
        )
        console.print(str(made.dataset(dataset)), markup=False, highlight=False, soft_wrap=True)


@ledger.command()
def show(path: LedgerFile) -> None:
    """What every data set has spent, and what is left."""
    from privopt.ledger import Ledger
    from privopt.privacy.certificate import round_down, round_up

    with plain_errors():
        found = Ledger(path)
        title = f"{path.name}: entry {found.head[0]}, hash {found.head[1][:12]}"
        # Narrow enough for eighty columns: a file or a pipe has no other width.
        table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for column in ("data set", "relation", "total", "spent", "left", "fits"):
            table.add_column(column, no_wrap=column != "fits")
        for name in found.datasets:
            account = found.dataset(name)
            budget, counts = account.budget, account.counts
            (epsilon, delta), (rest, room) = account.spent, account.left
            table.add_row(
                name,
                budget.neighbouring
                if budget.unit == "record"
                else f"{budget.neighbouring}, {budget.unit}",
                f"{budget.epsilon:g} at {budget.delta:g}",
                f"{round_up(epsilon)} at {delta:.4g}",
                f"{round_down(rest)} at {room:.4g}",
                ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none",
            )
        console.print(table)
        console.print("epsilon at delta; what is left counts for one more fit.", highlight=False)


@ledger.command()
def verify(
    path: LedgerFile,
    certificate: CertificateFile = None,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Write a lost or broken head anew: nothing is missing."),
    ] = False,
) -> None:
    """Check every entry from the first; with a certificate, that its entry is there."""
    from privopt.ledger import Ledger
    from privopt.privacy import Certificate

    with plain_errors():
        found = Ledger.accept(path) if accept else Ledger(path)
        read = None if certificate is None else Certificate.from_json(certificate.read_text())
        count = found.verify(read)
        console.print(f"{path.name}: {count} entries, every hash is right.", highlight=False)


@ledger.command()
def burn(
    path: LedgerFile,
    dataset: DatasetName = "data",
    certificate: CertificateFile = None,
) -> None:
    """Charge a fit that was made without the ledger; without one, settle what is open."""
    from privopt.ledger import Ledger
    from privopt.privacy import Certificate

    with plain_errors():
        account = Ledger(path).dataset(dataset)
        if certificate is None:
            console.print(f"{account.burn_open()} open reservation(s) burned.", highlight=False)
        else:
            account.burn(Certificate.from_json(certificate.read_text()))
        console.print(str(account), markup=False, highlight=False, soft_wrap=True)
