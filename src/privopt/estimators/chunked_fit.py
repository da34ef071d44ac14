"""A fit to data in chunks: the steps of ``LinearModel.fit``, with nothing done on the whole.

Labels, bounds of columns and checks are applied inside a chunk, where it is read, by the estimator
itself. The only numbers that come back before the budget is paid are how many chunks were refused
for which of two reasons, and a fit with one of them goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from privopt.engines import Engine
from privopt.estimators.outcome import publish
from privopt.facts import Facts
from privopt.ledger import account_for
from privopt.noise import source_for
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.chunked import ChunkedRows
from privopt.oracle.dense import DenseRows
from privopt.planner import public_count
from privopt.privacy import Budget, Neighbouring
from privopt.solvers import execute, row_bounds
from privopt.sources import Dataset

MISSING = (
    "X contains NaN or infinity: remove such rows, or take "
    'nan_policy="empty" to count them as empty records.'
)
UNFIT = "the target holds a label that is not declared, or one that is missing or no number."


@dataclass(frozen=True)
class Prepare:
    """What an estimator makes of a chunk: rows, labels of further models, and what it refuses."""

    model: Any
    bounds: RowBounds
    joint: bool

    def __call__(self, chunk: Any) -> tuple[DenseRows, np.ndarray, np.ndarray]:
        X, y = chunk.read()
        model, refused = self.model, np.zeros(2, dtype=np.int64)
        refused[0] = model.nan_policy == "raise" and not np.isfinite(X).all()
        try:
            targets = model._targets(y)
            labels = (targets.classes,) if self.joint else targets.labels
        except (TypeError, ValueError):  # whose text may quote a label
            refused[1], labels = 1, (np.zeros(len(y)),)
        signs = model._classification and not self.joint
        rows = DenseRows.build(model._design(X), labels[0], self.bounds, signs)
        return rows, np.stack(labels), refused


@dataclass(frozen=True)
class Pick:
    """One of the things a chunk was made into."""

    number: int

    def __call__(self, made: Any) -> Any:
        return made[self.number]


@dataclass(frozen=True)
class Relabelled:
    """The rows of another model, which differ in their labels alone."""

    number: int
    signs: bool

    def __call__(self, made: Any) -> DenseRows:
        rows, labels, _ = made
        return rows.labelled(labels[self.number], self.signs)


def oracles_of(
    model: Any,
    data: Dataset,
    engine: Engine,
    bounds: RowBounds,
    joint: bool,
    **how: Any,
) -> list[Oracle]:
    """Oracles over the chunks, one for each model; refuses what cannot be fitted, unpaid."""
    made = engine.keep(Prepare(model, bounds, joint), data.chunks)
    missing, unfit = engine.add(Pick(2), made).tolist()
    if missing or unfit:
        raise ValueError(MISSING if missing else UNFIT)
    counts = [chunk.rows for chunk in data.chunks]
    dimension = model._columns(data.shape[1]) + (bounds.intercept != 0)
    signs = model._classification and not joint
    many = 1 if joint else len(example_targets(model).labels)
    tasks = [Pick(0), *(Relabelled(k, signs) for k in range(1, many))]
    rows = [
        ChunkedRows(engine, engine.keep(task, made), counts, dimension, bounds) for task in tasks
    ]
    first = Oracle.over_chunks(rows[0], **how)
    return [first, *map(first.relabelled, rows[1:])]


def refuse_whole(model: Any, engine: Any) -> None:
    """Refuse what is done on the whole of the data alone, and what is no engine."""
    if not isinstance(engine, Engine):
        raise TypeError("engine must be one of privopt.engines, for example engines.Here().")
    if model.nan_policy not in ("raise", "empty"):
        raise ValueError(f'nan_policy must be "raise" or "empty", got {model.nan_policy!r}.')
    for name in ("rows_per_user", "max_weight", "_parts", "_blocks"):
        if getattr(model, name, None) is not None:
            what = name if name[0] != "_" else "a fit in parts"
            raise ValueError(f"{what} is for data in memory: data in chunks has no order.")


def example_targets(model: Any) -> Any:
    """What follows from the declared labels alone: how many models there are, and attributes."""
    if not model._classification:
        return model._targets(np.zeros(1))
    if getattr(model, "classes", None) is None:
        raise ValueError(
            "labels of data in chunks are not read in advance: declare them with classes=[...]."
        )
    found = model._targets(np.unique(np.asarray(model.classes)))
    return replace(found, labels=tuple(labels[:1] for labels in found.labels))


def bare(model: Any, data: Dataset) -> Any:
    """A copy of the parameters that a chunk needs, which can be sent to a worker."""
    from sklearn.base import clone

    found: Any = cast(Any, clone(model)).set_params(ledger=None, dataset=None, random_state=None)
    if data.named:
        found.feature_names_in_ = np.array(data.names, dtype=object)
    found.n_features_in_ = len(data.names)
    return found


def fit_chunks(model: Any, data: Dataset, engine: Engine) -> Any:
    """``LinearModel.fit`` for a data set in chunks."""
    refuse_whole(model, engine)
    budget = Budget(model.epsilon, model.delta, cast(Neighbouring, model.neighbouring))
    source, account = source_for(model.random_state), account_for(model.ledger, model.dataset)
    aside = bare(model, data)
    (rows, features), targets = data.shape, example_targets(aside)
    n = public_count(rows, budget, model.n_public)
    problem = replace(
        aside._problem(n, features),
        shaped=aside._shaped(features),
        intervals=getattr(model, "intervals", False),
    )
    width = aside._columns(features)
    p, repeats = problem.dimension(width), len(targets.labels)
    plan = model._plan(Facts(problem, n, p, budget.neighbouring, repeats, chunked=True), budget)
    joint = plan.solver.joint and targets.classes is not None
    how = {"neighbouring": budget.neighbouring, "source": source}
    # Unpaid, as the checks of an array are: what is refused here costs nothing.
    oracles = oracles_of(aside, data, engine, row_bounds(plan), joint, **how)
    assumptions = (*targets.assumptions, *model._promises, *engine.assumptions)
    answer, certificate = execute(plan, oracles, source, assumptions=assumptions, account=account)
    return publish(model, answer, certificate, plan, targets, aside, features, width)
