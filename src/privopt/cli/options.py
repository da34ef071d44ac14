"""Options that several commands share, and how errors are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


class Relation(StrEnum):
    """Neighbouring relations, by name."""

    zero_out = "zero_out"
    replace_one = "replace_one"
    add_remove = "add_remove"


class LossName(StrEnum):
    """Losses that the command line can name."""

    logistic = "logistic"
    huber = "huber"
    smoothed_hinge = "smoothed_hinge"
    hinge = "hinge"
    absolute = "absolute"
    squared = "squared"


Epsilon = Annotated[float, typer.Option(help="Privacy loss epsilon, positive.")]
Delta = Annotated[float, typer.Option(help="Delta in [0, 1); 0 is pure privacy.")]
Neighbouring = Annotated[Relation, typer.Option(help="What may change between neighbours.")]

console = Console()
complaints = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show what went wrong in one sentence, without a traceback."""
    from privopt.privacy import Refused

    try:
        yield
    except (ValueError, TypeError, Refused, OSError) as problem:
        text = f"[red]error:[/red] {escape(str(problem))}"  # a column's name may hold brackets
        complaints.print(text, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
