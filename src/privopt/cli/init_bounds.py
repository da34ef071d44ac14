"""``privopt init-bounds``: a file of public facts for the user to fill in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privopt.cli.options import DataFile, Force, check_writable, console, plain_errors


class Task(StrEnum):
    """What the target is."""

    classification = "classification"
    regression = "regression"


def init_bounds(
    data: DataFile,
    target: Annotated[str, typer.Option(help="Name of the column to predict.")],
    task: Annotated[Task | None, typer.Option(help="Else you say it in the file.")] = None,
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("bounds.toml"),
    force: Force = False,
) -> None:
    """Write bounds.toml with the names of the columns, for you to fill in.

    A Parquet file declares types, which are filled in too; those of a CSV file would have to be
    read off its cells, and are not. No value of the data goes into it: bounds and categories must
    come from what a column means.
    """
    from privopt.tables import column_types, template
    from privopt.tables.schema import UNKNOWN, check_target

    with plain_errors():
        check_writable(out, force)
        types = column_types(data)
        check_target(target, types, data.name)
        text = template(types, target, data.name, None if task is None else task.value)
        out.write_text(text, encoding="utf-8")
        console.print(
            f'wrote {out}: replace every "{UNKNOWN}" in it, then run '
            f"privopt fit {data} --target {target} --bounds {out}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
