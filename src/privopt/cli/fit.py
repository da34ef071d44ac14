"""``privopt fit``: from a CSV or Parquet file to a private model with its certificate."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from privopt.cli.options import Delta, Epsilon, Neighbouring, Relation, console, plain_errors


def fit(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with numeric features.")],
    target: Annotated[str, typer.Option(help="Name of the label column.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    neighbouring: Neighbouring = Relation.zero_out,
    data_norm: Annotated[
        float, typer.Option(help="Public bound on the norm of a row; longer rows are scaled down.")
    ] = 1.0,
    classes: Annotated[
        str | None, typer.Option(help="Public list of labels, separated by commas.")
    ] = None,
    n_public: Annotated[
        int | None, typer.Option(help="Public number of rows; needed under add_remove.")
    ] = None,
    solver: Annotated[str, typer.Option(help='A solver by name, or "auto".')] = "auto",
    ledger: Annotated[
        Path | None, typer.Option(help="Charge the fit to a budget in this ledger.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the budget; may be left out if there is one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for model.json and certificate.json.")] = Path(
        "privopt-model"
    ),
) -> None:
    """Fit a private logistic regression and write the model and its certificate."""
    from privopt import LogisticRegression

    with plain_errors():
        X, y, names = _read(data, target)
        labels = None if classes is None else _parse_classes(classes, y)
        model = LogisticRegression(
            epsilon=epsilon,
            delta=delta,
            neighbouring=neighbouring.value,
            data_norm=data_norm,
            classes=labels,
            n_public=n_public,
            solver=solver,
            ledger=ledger,
            dataset=dataset,
        )
        with Progress(
            SpinnerColumn(), TextColumn("fitting"), TimeElapsedColumn(), console=console
        ) as progress:
            progress.add_task("fit", total=None)
            model.fit(X, y)
        out.mkdir(parents=True, exist_ok=True)
        (out / "certificate.json").write_text(model.privacy_.to_json() + "\n")
        (out / "model.json").write_text(json.dumps(_as_json(model, names), indent=2) + "\n")
        console.print(str(model.privacy_), highlight=False)
        console.print(f"wrote {out / 'model.json'} and {out / 'certificate.json'}")


def _read(path: Path, target: str) -> tuple[Any, Any, list[str]]:
    """Features, labels and feature names; refuses what is not numeric, naming the column."""
    import numpy as np
    import pyarrow as pa

    if not path.exists():
        raise ValueError(f"there is no file {path}.")
    table = None
    with contextlib.suppress(pa.ArrowException):  # whose text may quote a row
        table = _table(path)
    if table is None:
        raise ValueError(
            f"{path.name} could not be read as a table: check that every line has the same number "
            "of fields (details are withheld, they could quote a row)."
        )
    if target not in table.column_names:
        raise ValueError(
            f"{path.name} has no column {target!r}; it has {', '.join(table.column_names)}."
        )
    names = [name for name in table.column_names if name != target]
    for name in names:
        kind = table.schema.field(name).type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            raise ValueError(
                f"column {name!r} holds {kind}, not numbers: encode it with public categories "
                "first."
            )
    columns = [table.column(name).to_numpy().astype(float) for name in names]
    return np.column_stack(columns), np.asarray(table.column(target).to_numpy()), names


def _table(path: Path) -> Any:
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    if path.suffix.lower() == ".csv":
        import pyarrow.csv

        return pyarrow.csv.read_csv(path)
    raise ValueError(f"{path.name} must end in .csv or .parquet.")


def _parse_classes(text: str, y: Any) -> list[Any]:
    import numpy as np

    parts = [part.strip() for part in text.split(",")]
    kind = np.asarray(y).dtype.kind
    if kind == "b":
        known = {"false": False, "true": True, "0": False, "1": True}
        if any(part.lower() not in known for part in parts):
            raise ValueError("the labels are true or false: give --classes false,true.")
        return [known[part.lower()] for part in parts]
    return parts if kind in "OUS" else [float(part) for part in parts]


def _as_json(model: Any, names: list[str]) -> dict[str, Any]:
    return {
        "model": "LogisticRegression",
        "features": names,
        "classes": model.classes_.tolist(),
        "coef": model.coef_.tolist(),
        "intercept": model.intercept_.tolist(),
        "data_norm": model.data_norm,
    }
