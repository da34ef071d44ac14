"""Options that several commands share, and how errors are shown."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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


Epsilon = Annotated[
    float,
    typer.Option(
        help="Privacy loss epsilon, positive. At 1 nobody who guesses whether a record was there "
        "is right in more than 74 of 100 cases; at 0.1 in 53. See docs/how-to-choose."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
Delta = Annotated[float, typer.Option(help="Delta in [0, 1); 0 is pure privacy.")]
Neighbouring = Annotated[Relation, typer.Option(help="What may change between neighbours.")]
DataFile = Annotated[Path, typer.Argument(help="CSV or Parquet file.")]
ModelFile = Annotated[Path, typer.Argument(help="A file that `privopt fit` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

console = Console()
complaints = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show what went wrong in one sentence, without a traceback."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OSError) as problem:
        from privopt.privacy import Refused  # only now: it brings numerics along

        if isinstance(problem, RuntimeError) and not isinstance(problem, Refused):
            raise
        text = f"[red]error:[/red] {escape(str(problem))}"  # a column's name may hold brackets
        complaints.print(text, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


def check_writable(path: Path, force: bool) -> None:
    """Before the budget is spent: afterwards it would be too late."""
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: name a file to write.")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: take another name, or --force to replace it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):  # a read-only folder, a full disk
        pass


def loaded(path: Path) -> Any:
    """A saved model that has a certificate."""
    import privopt

    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    model = privopt.load(path)
    final = model[-1] if hasattr(model, "steps") else model
    if not hasattr(final, "privacy_"):
        raise ValueError(f"{path.name} holds a model that was not fitted.")
    return model


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show steps and time left on the error channel; steps are public, and nothing else is shown.

    Runs of solvers inside report to it, and so may the caller, by calling what it gets.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    from privopt.solvers import PROGRESS

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Elapsed())
    with Progress(*columns, Remaining(), console=complaints, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tick(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        token = PROGRESS.set(tick)
        try:
            yield tick
        finally:
            PROGRESS.reset(token)
