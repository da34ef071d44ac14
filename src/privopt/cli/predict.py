"""``privopt predict``: apply a saved model to new rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from privopt.cli.options import (
    DataFile,
    Force,
    ModelFile,
    check_writable,
    complaints,
    console,
    loaded,
    plain_errors,
    progress,
)

ROWS = 1 << 16
"""Rows that are scored at a time."""


def predict(
    model: ModelFile,
    data: DataFile,
    out: Annotated[Path, typer.Option(help="CSV or Parquet file to write.")] = Path("scores.csv"),
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column to copy next to the scores, such as an id; may be repeated."),
    ] = None,
    band: Annotated[
        Path | None,
        typer.Option(help="What `privopt prediction-intervals --out` wrote: adds low and high."),
    ] = None,
    force: Force = False,
) -> None:
    """Predict a class with its probabilities, or a number, for every row of a file.

    Predictions cost no budget: they are computed from the released model and the new rows alone.
    """
    from privopt.evaluation import PredictionIntervals
    from privopt.tables import DeclaredColumns, column_types, read_table, write_table
    from privopt.tables.files import check_writable_kind
    from privopt.tables.schema import FILE_TYPES

    with plain_errors():
        check_writable_kind(out)
        pipeline = loaded(model)
        encoder = pipeline[0] if hasattr(pipeline, "steps") else None
        if not isinstance(encoder, DeclaredColumns):
            raise ValueError(
                f"{model.name} does not know the columns of a table: `privopt fit` writes such "
                "models, others predict in Python."
            )
        kinds = {name: dict(entry)["kind"] for name, entry in encoder.columns.items()}
        wanted = [name for name, kind in kinds.items() if kind != "ignored"]
        types = column_types(data)
        _check_columns(wanted, types, data.name)
        kept = keep or []
        _check_columns(kept, types, data.name, "")
        check_writable(out, force)
        extra = [name for name in types if name not in (*wanted, *kept)]
        if extra:
            complaints.print(
                f"note: columns the model does not use are ignored: {', '.join(extra)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        known = {name: FILE_TYPES[kinds[name]] for name in wanted}
        table = read_table(data, dict.fromkeys(kept, "text") | known)
        beside = {name: table.column(name) for name in kept}
        if band is not None and hasattr(pipeline[-1], "classes_"):
            raise ValueError("--band is for regressions, and this model was not fitted to numbers.")
        scores = _scores(pipeline, table.select(wanted))
        if band is not None:
            found = PredictionIntervals.from_dict(pipeline, json.loads(band.read_text("utf-8")))
            ends = found.around(scores["prediction"])
            scores |= {"low": ends[:, 0], "high": ends[:, 1]}
        if twice := beside.keys() & scores.keys():
            raise ValueError(f"--keep {min(twice)}: the answer has a column of that name.")
        write_table(beside | scores, out)
        console.print(f"wrote {out}: {table.num_rows} predictions", markup=False, highlight=False)


def _check_columns(
    wanted: list[str], present: Any, file: str, why: str = ", which the model was fitted to"
) -> None:
    from privopt.tables.schema import did_you_mean

    for name in wanted:
        if name not in present:
            hint = did_you_mean(name, present) or f"{why}."
            raise ValueError(f"{file} has no column {name!r}{hint}")


def _scores(pipeline: Any, table: Any) -> dict[str, Any]:
    """Columns of the answer."""
    import numpy as np

    from privopt.tables.encoder import spoken

    final, parts = pipeline[-1], []
    with progress("predicting") as tick:
        for start in range(0, table.num_rows, ROWS):
            rows = table.slice(start, ROWS)
            X = pipeline[0].transform(rows)
            found = {"prediction": final.predict(X)}
            if hasattr(final, "predict_proba"):
                probability = final.predict_proba(X)
                found |= {
                    f"probability_{spoken(label)}": probability[:, index]
                    for index, label in enumerate(final.classes_.tolist())
                }
            elif hasattr(final, "decision_function"):
                scores = final.decision_function(X).reshape(len(X) if X.ndim == 2 else -1, -1)
                names = [""] if scores.shape[1] == 1 else [f"_{c}" for c in final.classes_.tolist()]
                found |= {f"score{name}": scores[:, i] for i, name in enumerate(names)}
            parts.append(found)
            tick(start + rows.num_rows, table.num_rows)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
