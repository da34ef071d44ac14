"""``privopt fit``: from a CSV or Parquet file to a private model, its certificate and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privopt.cli.options import (
    AsJson,
    DataFile,
    Delta,
    Epsilon,
    Force,
    Neighbouring,
    Relation,
    check_writable,
    console,
    plain_errors,
    progress,
)

if TYPE_CHECKING:
    from privopt.tables import Schema


def fit(
    data: DataFile,
    target: Annotated[
        str | None,
        typer.Option(help="Name of the column to predict; the bounds file names it too."),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 0.0,
    bounds: Annotated[
        Path | None,
        typer.Option(help="Public facts about the columns: `privopt init-bounds` writes the file."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.skops"),
    report: Annotated[
        Path | None, typer.Option(help="Also write an HTML report, for example report.html.")
    ] = None,
    neighbouring: Neighbouring = Relation.zero_out,
    model: Annotated[
        str | None,
        typer.Option(help="Estimator, for example Ridge; LogisticRegression or LinearRegression."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the estimator, as NAME=VALUE; may be repeated."),
    ] = None,
    solver: Annotated[str, typer.Option(help='A solver by name, or "auto".')] = "auto",
    n_public: Annotated[
        int | None, typer.Option(help="Public number of rows; needed under add_remove.")
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(help="Column that says whose row it is: the guarantee is then for users."),
    ] = None,
    rows_per_user: Annotated[
        int | None, typer.Option(help="With --users: how many rows of each user count, public.")
    ] = None,
    data_norm: Annotated[
        str | None,
        typer.Option(
            help='Instead of --bounds, for numbers only: bound on the norm of a row, or "private".'
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="With --data-norm: the public labels, separated by commas.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Charge the fit to a budget in this ledger.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the budget; may be left out if there is one.")
    ] = None,
    force: Force = False,
    holdout: Annotated[
        float | None,
        typer.Option(help="Keep this share of the rows, by a public rule, and evaluate on them."),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Standard errors and intervals too, within the same budget."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a private model to a CSV or Parquet file; write the model and its certificate."""
    from privopt.tables import column_types, learn, read_table
    from privopt.tables.judge import judge, parted
    from privopt.tables.schema import check_target

    with plain_errors():
        types = column_types(data)
        if target is not None:
            check_target(target, types, data.name)
        if bounds is None:
            schema = _undeclared(data, types, target, data_norm, classes)
        else:
            schema = declared(bounds, target, data_norm, classes)
            schema.check_names(types, data.name, bounds.name)
        shares = _shares(holdout, epsilon, neighbouring, ledger)
        settings = {
            "epsilon": shares[0],
            "delta": delta,
            "neighbouring": neighbouring.value,
            "n_public": n_public,
            "ledger": None if ledger is None else str(ledger),
            "dataset": dataset,
            **({} if solver == "auto" else {"solver": solver}),
            **({} if rows_per_user is None else {"rows_per_user": rows_per_user}),
            **({} if bounds is not None else {"data_norm": _norm(data_norm)}),
            **({"intervals": True} if intervals else {}),
            **_settings(setting or []),
        }
        pipeline = learn.build(schema, model, settings)
        _check_users(users, rows_per_user, schema, types, data.name)
        certificate_file = out.with_suffix(".certificate.json")
        files = [out, certificate_file]
        judged_file = out.with_suffix(".evaluation.json")
        files += [] if holdout is None else [judged_file]
        files += [] if report is None else [report]
        for path in files:
            check_writable(path, force)
        owners = {} if users is None else {users: "text"}  # ids as they are written
        table = read_table(data, schema.file_types | owners)
        table, held, key = (table, None, "") if holdout is None else parted(table, holdout, users)
        with progress("fitting"):
            learn.fit(pipeline, table, schema.target, users)
        _write(pipeline, out, certificate_file)
        judged = None
        if held is not None:
            how = {"ledger": settings["ledger"], "dataset": dataset, "rows_per_user": rows_per_user}
            relation = neighbouring.value
            with progress("evaluating"):
                judged = judge(
                    pipeline, held, schema.target.column, users, shares[1], relation, **how
                )
            judged_file.write_text(judged.to_json() + "\n", encoding="utf-8")
        if report is not None:
            _report(pipeline, report, judged)
        final: Any = pipeline[-1]
        certificate = final.privacy_
        written = [str(path) for path in files]
        summary = _summary(pipeline) if intervals else None
        if as_json:
            found = {"wrote": written, "certificate": certificate.to_dict()}
            found |= {} if summary is None else {"coefficients": summary.to_dict()}
            if judged is not None:
                found |= {"evaluation": judged.to_dict(), "split": {"share": holdout, "key": key}}
            typer.echo(json.dumps(found, indent=2))
            return
        console.print(str(certificate), markup=False, highlight=False)
        if summary is not None:
            console.print(f"\n{summary}\n", markup=False, highlight=False, soft_wrap=True)
        if judged is not None:
            console.print(f"\n{judged}\n", markup=False, highlight=False, soft_wrap=True)
            console.print(_together(shares, delta, ledger), markup=False, soft_wrap=True)
            console.print(f"rows were parted by the key {key}", markup=False, soft_wrap=True)
        console.print(f"wrote {', '.join(written)}", markup=False, highlight=False, soft_wrap=True)


EVALUATION = 0.2
"""Share of epsilon for the evaluation where both parts are charged to one ledger."""


def _shares(
    holdout: float | None, epsilon: float, neighbouring: Relation, ledger: Path | None
) -> tuple[float, float]:
    """Epsilon of the fit and of the evaluation.

    Each record is in one part, chosen by a rule that looks at no value, so it pays for that part
    alone: both have the whole epsilon. A ledger does not know of the parts and adds.
    """
    if holdout is None:
        return epsilon, 0.0
    if neighbouring is Relation.add_remove:
        raise ValueError(
            "--holdout parts rows by their position, which shifts when one is added or removed: "
            "use --neighbouring zero_out or replace_one."
        )
    if not 0 < holdout < 1:
        raise ValueError(f"--holdout is a share of the rows between 0 and 1, got {holdout:g}.")
    if ledger is None:
        return epsilon, epsilon
    return (1 - EVALUATION) * epsilon, EVALUATION * epsilon


def _together(shares: tuple[float, float], delta: float, ledger: Path | None) -> str:
    from privopt.privacy.certificate import round_up, shown

    added = f"delta={shown(delta)}" if delta else "pure"
    if ledger is not None:
        return f"fit and evaluation were both charged: epsilon={round_up(sum(shares))} ({added})."
    return (
        "Each record is in one of the two parts and pays for that one: fit and evaluation together "
        f"have epsilon={round_up(max(shares))} ({added})."
    )


def declared(
    bounds: Path, target: str | None, data_norm: str | None = None, classes: str | None = None
) -> Schema:
    """The bounds file, checked against what the command line says."""
    from privopt.tables import Schema

    if data_norm is not None or classes is not None:
        raise ValueError("--data-norm and --classes are for a fit without --bounds.")
    schema = Schema.from_file(bounds)
    if target is not None and target != schema.target.column:
        raise ValueError(
            f"--target is {target!r}, but {bounds.name} was written for {schema.target.column!r}."
        )
    return schema


def _undeclared(
    data: Path, types: dict[str, str], target: str | None, norm: str | None, classes: str | None
) -> Schema:
    """Columns that are numbers and taken as they are, with a bound on whole rows."""
    from privopt.tables import Column, Schema, Target

    if target is None:
        raise ValueError("say which column to predict: --target NAME.")
    if norm is None:
        raise ValueError(
            f"bounds are missing: `privopt init-bounds {data} --target {target}` writes "
            "bounds.toml, fill it in and add --bounds bounds.toml."
        )
    for name, kind in types.items():
        if name != target and kind not in ("number", "integer", "boolean", "unknown"):
            raise ValueError(
                f"column {name!r} holds {kind}, not numbers: declare it in a bounds file, which "
                "`privopt init-bounds` writes."
            )
    columns = {name: Column("numeric") for name in types if name != target}
    return Schema(Target(target, "classes", _parsed(classes, types[target])), columns)


def _parsed(text: str | None, kind: str) -> tuple[Any, ...]:
    """Labels of ``--classes``, of the type that the column has."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if kind == "boolean":
        known = {"false": False, "true": True, "0": False, "1": True}
        if any(part.lower() not in known for part in parts):
            raise ValueError("the labels are true or false: give --classes false,true.")
        return tuple(known[part.lower()] for part in parts)
    if kind == "text":
        return tuple(parts)
    return tuple(_value(part) for part in parts)


def _norm(text: str | None) -> float | str:
    if text is None or text == "private":
        return "private"
    found = _value(text)
    if not isinstance(found, int | float):
        raise ValueError(f'--data-norm must be a number or "private", got {text!r}.')
    return float(found)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """``NAME=VALUE`` of the command line."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier():
            raise ValueError(f"--set takes NAME=VALUE, for example alpha=0.1, got {pair!r}.")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    """A number, true, false, or else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_users(
    users: str | None, rows: int | None, schema: Schema, types: dict[str, str], file: str
) -> None:
    from privopt.tables.schema import check_target

    if (users is None) != (rows is None):
        raise ValueError("--users and --rows-per-user belong together.")
    if users is not None:
        check_target(users, types, file)
        if users in schema.used or users == schema.target.column:
            raise ValueError(
                f"{users!r} says whose row it is, so the model must not see it: declare it with "
                'kind = "ignored".'
            )


def _write(pipeline: Any, out: Path, certificate_file: Path) -> None:
    import privopt

    certificate_file.write_text(pipeline[-1].privacy_.to_json() + "\n", encoding="utf-8")
    privopt.save(pipeline, out)


def _summary(pipeline: Any) -> Any:
    from privopt.report.findings import summary_of

    return summary_of(pipeline)


def _report(pipeline: Any, report: Path, judged: Any) -> None:
    from privopt.report import write_report

    with progress("writing the report"):
        write_report(pipeline, report, evaluation=judged)
