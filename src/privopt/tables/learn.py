"""From a declared table to a fitted pipeline: encoder and private estimator in one object."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.pipeline import Pipeline

from privopt import estimators
from privopt.estimators.linear_model import LinearModel
from privopt.facts import Facts
from privopt.planner.choose import Ranking, rank
from privopt.privacy import Budget
from privopt.tables.encoder import DeclaredColumns, codes, column_entries
from privopt.tables.schema import Column, Schema, Target, check_target, did_you_mean

CATEGORIES = 10
"""Categories that a column of text is presumed to have before they are declared."""


CLASSIFIERS = ("LogisticRegression", "LinearSVC", "SparseLogisticRegression")
DEFAULT_REGRESSOR = "LinearRegression"


def regressors() -> tuple[str, ...]:
    """Every public estimator of one table that predicts numbers; the default comes first."""
    kinds = {name: getattr(estimators, name) for name in estimators.__all__}
    found = sorted(
        name
        for name, kind in kinds.items()
        if inspect.isclass(kind)
        and issubclass(kind, RegressorMixin)
        and not hasattr(kind, "partial_fit")
    )
    return tuple(sorted(found, key=lambda name: name != DEFAULT_REGRESSOR))


def model_names(target: Target) -> tuple[str, ...]:
    """Estimators for a target; the first is the default."""
    return CLASSIFIERS if target.kind == "classes" else regressors()


def build(schema: Schema, model: str | None, settings: Mapping[str, Any]) -> Pipeline:
    """Encoder and estimator, not fitted; ``settings`` are the estimator's own parameters."""
    names = model_names(schema.target)
    name = names[0] if model is None else model
    if name not in names:
        what = "a label" if schema.target.kind == "classes" else "a number"
        hint = did_you_mean(name, names) or f": choose from {', '.join(names)}."
        raise ValueError(f"there is no model {name!r} for {what}{hint}")
    kind = getattr(estimators, name)
    known = inspect.signature(kind).parameters
    facts = {key: value for key, value in public_facts(schema).items() if key in known}
    for key in settings:
        if key not in known or key in facts or key == "random_state":
            free = [one for one in known if one not in facts and one != "random_state"]
            raise ValueError(f"{name} has no setting {key!r} here{did_you_mean(key, free) or '.'}")
    if schema.target.undeclared == "empty" and "nan_policy" not in known:
        raise ValueError(
            f'{name} cannot count records as empty: leave undeclared = "empty" out of [target].'
        )
    apart = bool(settings.get("intervals"))  # all categories of a column add up to the constant
    encoder = DeclaredColumns(column_entries(schema.used), reference=apart)
    if settings.get("features") == "splines":  # a category has no shape
        settings = {**settings, "features": encoder.numbers()}
    return Pipeline([("columns", encoder), ("model", kind(**{**facts, **settings}))])


def public_facts(schema: Schema) -> dict[str, Any]:
    """What the schema says to an estimator, by the name of the parameter."""
    target = schema.target
    scaled = all(c.kind != "numeric" or c.lower is not None for c in schema.used.values())
    # With bounds every column of the matrix lies in [-1, 1]: the encoder sees to it.
    facts: dict[str, Any] = {"nan_policy": "empty", **({"bounds": (-1.0, 1.0)} if scaled else {})}
    if target.kind == "classes":
        return {**facts, "classes": list(target.classes) or None}
    assert target.lower is not None
    assert target.upper is not None
    largest = max(abs(target.lower), abs(target.upper))
    return {
        **facts,
        "target_bounds": (target.lower, target.upper),
        "y_bound": largest,
        "fit_intercept": True,
    }


def presumed(types: Mapping[str, str], target: str, file: str) -> Schema:
    """A schema to plan with before bounds are declared, from names and types alone; a column of
    unknown type counts as a number, a target of unknown type as two classes."""
    check_target(target, types, file)
    kinds = {
        "text": Column("categorical", categories=tuple(range(CATEGORIES))),
        "boolean": Column("categorical", categories=(False, True)),
        "other": Column("ignored"),
    }
    number = Column("numeric", -1.0, 1.0)
    columns = {name: kinds.get(kind, number) for name, kind in types.items() if name != target}
    if types[target] == "number":
        return Schema(Target(target, "number", lower=-1.0, upper=1.0), columns)
    return Schema(Target(target, "classes", (False, True)), columns)


def ranking(schema: Schema, model: str | None, n: int, budget: Budget) -> tuple[Ranking, str]:
    """How the solvers rank for the model that ``build`` makes, and the model's name."""
    final = build(schema, model, {})[-1]
    name = type(final).__name__
    if not isinstance(final, LinearModel):
        raise ValueError(f"{name} has one solver only: there is nothing to rank.")
    problem = final._problem(n, schema.width)
    classes = len(schema.target.classes)
    repeats = classes if classes > 2 else 1
    facts = Facts(problem, n, problem.dimension(schema.width), budget.neighbouring, repeats)
    return rank(facts, budget), name


def fit(pipeline: Pipeline, table: Any, target: Target, users: str | None = None) -> Pipeline:
    """Fit in place. A record without a declared target is refused, or made empty.

    ``users`` names the column that says whose row it is; the guarantee is then for users.
    """
    encoder, model = pipeline[0], pipeline[-1]
    y = labels(table.column(target.column), target)
    X = encoder.fit_transform(table)
    if y.empty.any():
        X = _emptied(X, y.empty)
    owners = {} if users is None else {"user_ids": table.column(users).to_pylist()}
    model.fit(X, y.values, **owners)
    return pipeline


@dataclass(frozen=True, eq=False)
class Labels:
    """Targets as an estimator takes them, and which records have none that was declared."""

    values: np.ndarray
    empty: np.ndarray


def labels(values: Any, target: Target) -> Labels:
    """Read the target's column by its declaration; a refusal quotes no value."""
    if target.kind == "classes" and not target.classes:  # read from the data, as an assumption
        found = values.to_numpy()
        return Labels(found, np.zeros(len(found), bool))
    if target.kind == "classes":
        position = codes(values, target.classes)
        empty = position < 0
        found = np.array(target.classes)[np.maximum(position, 0)]
    else:
        found = _numbers(values)
        empty = ~np.isfinite(found)
        found = np.array(found, dtype=float)
        found[empty] = target.lower
    if target.undeclared == "refuse" and empty.any():
        missing = "target that is missing or no number"
        what = "label that is missing or not declared" if target.classes else missing
        raise ValueError(
            f"column {target.column!r} holds a {what}: "
            + (
                "list every label in classes, or "
                if target.classes
                else 'declare labels with kind = "classes", or '
            )
            + 'write undeclared = "empty" into [target] to count such records as empty.'
        )
    return Labels(found, empty)


def _numbers(values: Any) -> np.ndarray:
    """The numbers of a column; what is none, one by one, is missing, so that a record speaks for
    itself alone."""
    import pyarrow as pa

    with suppress(pa.ArrowException):  # whose text may quote a row
        return values.cast(pa.float64()).to_numpy()
    return np.array([_number(value) for value in values.to_pylist()])


def _number(value: Any) -> float:
    with suppress(TypeError, ValueError, OverflowError):
        return float(value)
    return np.nan


def _emptied(X: Any, empty: np.ndarray) -> Any:
    """X with rows that the estimator counts as empty records."""
    if not sp.issparse(X):
        return np.where(empty[:, None], np.nan, X)
    rows = np.flatnonzero(empty)
    holes = sp.csr_array((np.full(len(rows), np.nan), (rows, np.zeros_like(rows))), shape=X.shape)
    return sp.csr_array(X + holes)
