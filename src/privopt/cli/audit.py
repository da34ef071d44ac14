"""``privopt audit``: a lower bound on epsilon beside every certified one."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated

import typer
from rich.table import Table

from privopt.cli.options import Neighbouring, Relation, console, plain_errors

COLUMNS = ("solver", "delta", "epsilon", "lower", "ratio", "point", "runs", "verdict")


def audit(
    runs: Annotated[
        int, typer.Option(help="Runs on each of the two data sets; slow solvers get a share of it.")
    ] = 4000,
    solver: Annotated[
        str | None, typer.Option(help="One solver or estimator; all by default.")
    ] = None,
    neighbouring: Neighbouring = Relation.zero_out,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Certified epsilon; may be repeated.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="With which all bounds of the table hold together.")
    ] = 0.95,
    workers: Annotated[int, typer.Option(help="Processes; 0 takes one for each core.")] = 0,
    seed: Annotated[int, typer.Option(help="Makes the table reproducible.")] = 0,
) -> None:
    """Attack every solver on a hostile pair of neighbours and bound its epsilon from below.

    Exits with status 1 if any certificate is refuted.
    """
    from privopt.audit.table import EPSILONS, audit_row, rows

    with plain_errors():
        if not 0 < confidence < 1:
            raise ValueError(f"--confidence must lie in (0, 1), got {confidence:g}.")
        if runs < 20:
            raise ValueError(f"--runs must be at least 20, got {runs}.")
        wanted = rows(neighbouring.value, solver, tuple(epsilon) if epsilon else EPSILONS)
        if not wanted:
            raise ValueError(f"{solver} does not take neighbouring={neighbouring.value}.")
        each = 1 - (1 - confidence) / len(wanted)
        one = partial(audit_row, runs=runs, confidence=each, seed=seed)
        count = min(workers or os.cpu_count() or 1, len(wanted))
        # Narrow enough for eighty columns: a file or a pipe has no other width.
        table = Table(
            title=f"epsilon under {neighbouring.value}",
            box=None,
            padding=(0, 2, 0, 0),
            pad_edge=False,
        )
        for column in COLUMNS:
            left = column in ("solver", "verdict")
            table.add_column(column, justify="left" if left else "right", no_wrap=True)
        refuted = []
        if count == 1:
            found = map(one, wanted)
        else:
            pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
            found = pool.map(one, wanted)
        for row, finding in zip(wanted, found, strict=True):
            table.add_row(
                row.solver,
                f"{row.delta:g}",
                f"{finding.certified:.3f}",
                f"{finding.lower_bound:.3f}",
                f"{finding.ratio:.2f}",
                f"{finding.point:.3f}",
                f"{finding.runs}",
                "[red]REFUTED[/red]" if finding.refuted else "stands",
            )
            if finding.refuted:
                refuted.append(row.solver)
        console.print(table)
        console.print(
            f"All {len(wanted)} lower bounds hold together with {100 * confidence:g} % confidence "
            f"(each with {100 * each:.4g} %). 'lower' reads the rates in the family of the "
            "claimed curve, 'point' in (epsilon, delta) alone.",
            highlight=False,
        )
    if refuted:
        names = ", ".join(dict.fromkeys(refuted))
        console.print(f"[red]A certificate is wrong:[/red] {names}", highlight=False)
        raise typer.Exit(1)
