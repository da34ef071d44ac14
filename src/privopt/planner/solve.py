"""Solve: from a problem, data and a budget to an answer with its certificate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from privopt.engines import Engine
from privopt.engines.here import Here
from privopt.facts import Facts
from privopt.ledger import account_for
from privopt.noise import source_for
from privopt.oracle import Oracle
from privopt.oracle.chunked import ChunkedRows
from privopt.oracle.users import OWNED, rows_that_count
from privopt.planner.choose import choose
from privopt.planner.groups import choose_for_group
from privopt.privacy import Budget, PrivacyWarning
from privopt.problem import Problem
from privopt.solvers import Result, Tick, execute, row_bounds
from privopt.solvers.solver import no_tick
from privopt.sources import Dataset


def public_count(realised: int, budget: Budget, n_public: int | None) -> int:
    """The number of records that parameters may depend on."""
    if budget.neighbouring == "add_remove":
        if n_public is None:
            raise ValueError(
                "under add_remove the number of rows is private: give n_public, a public estimate "
                'of it, or use neighbouring="zero_out".'
            )
        n = n_public
    else:
        n = realised if n_public is None else n_public
    if n < 1:
        raise ValueError(f"n_public must be a positive number of records, got {n}.")
    if budget.delta > 1 / n:
        warnings.warn(
            f"delta={budget.delta:g} is larger than 1/n={1 / n:.2g}: such a guarantee allows "
            "publishing whole records at random; take delta well below 1/n.",
            PrivacyWarning,
            stacklevel=4,
        )
    return n


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def solve(
    problem: Problem,
    X: Any,
    y: Any = None,
    *,
    budget: Budget,
    solver: str = "auto",
    discrete_noise: bool | str = "auto",
    n_public: int | None = None,
    user_ids: Any = None,
    rows_per_user: int | None = None,
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    key: str | None = None,
    tick: Tick = no_tick,
    engine: Engine | None = None,
    **choices: Any,
) -> Result:
    """Solve a problem privately.

    Parameters
    ----------
    problem : Problem
    X : array of shape (n, p)
        NumPy array, torch tensor or SciPy sparse matrix; private. Rows that hold NaN or infinity
        count as empty records. Or a Dataset, without y: then they are read chunk by chunk.
    y : array of shape (n,)
        Labels, -1 and +1 for classification losses; private.
    budget : Budget
    solver : str, default="auto"
        A name from the catalogue, or "auto" for the smallest bound.
    discrete_noise : bool or "auto", default="auto"
        Releases in exact integers, which keep nothing in their low-order bits: "auto" where the
        solver can, True or refuse, False in floating point.
    n_public : int, optional
        Declared number of records; required under add_remove.
    user_ids, rows_per_user : array and int, optional
        Who owns each row, and how many rows of a user count: the guarantee is then for users.
    random_state : int, optional
        Makes the noise reproducible, and the certificate say that the result is not private.
    ledger : Ledger or path, optional
        Charges the run to the budget of ``dataset`` before the data is read, or refuses it.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.
    key : str, optional
        Names this release in the ledger. A second call with the same key is not charged: it returns
        what the first one did, without touching data.
    tick : callable, optional
        Called with (steps done, steps in all).
    engine : Engine, optional
        Where the chunks of a Dataset are kept and summed: ``engines.Here()`` by default.
    **choices
        Settings of the named solver, overriding its own.

    Returns
    -------
    Result
        ``theta``, ``certificate`` and ``plan``.
    """
    chunked = isinstance(X, Dataset)
    if chunked and y is not None:
        raise ValueError("a data set in chunks names its target: leave y out.")
    if engine is not None and not chunked:
        raise ValueError("an engine keeps chunks: give a data set, by privopt.dataset(...).")
    if not chunked and (getattr(X, "ndim", None) != 2 or X.shape[0] != len(cast(Any, y))):
        raise ValueError("X must be two-dimensional with one label in y for each row.")
    owned = None if chunked else rows_that_count(user_ids, len(cast(Any, y)), rows_per_user)
    if chunked and (user_ids is not None or rows_per_user is not None):
        raise ValueError("a data set in chunks has no ids: give arrays for privacy of users.")
    if owned is not None:
        X, y = cast(Any, X)[owned.rows], np.asarray(y)[owned.rows]
        budget = replace(budget, unit="user")
    source = source_for(random_state)
    account = account_for(ledger, dataset)
    n = public_count(int(X.shape[0]), budget, n_public)
    group = rows_per_user or 1
    facts = Facts.of_rows(problem, X, n, budget.neighbouring, group=group, chunked=chunked)
    make = partial(choose, discrete_noise=discrete_noise, **choices)
    chosen = choose_for_group(facts, budget, solver, make)

    where = Here() if engine is None else engine

    def read() -> list[Oracle]:
        if chunked:
            rows = ChunkedRows.read(where, X, row_bounds(chosen), problem.loss.classification)
            return [Oracle.over_chunks(rows, neighbouring=budget.neighbouring, source=source)]
        return [
            Oracle.over(
                X,
                y,
                neighbouring=budget.neighbouring,
                bounds=row_bounds(chosen),
                source=source,
                classification=problem.loss.classification,
                owned=None if owned is None else owned.each,
            )
        ]

    named = where.assumptions if chunked else ()
    named += () if owned is None else (OWNED,)
    answer, certificate = execute(
        chosen, read, source, assumptions=named, tick=tick, account=account, key=key
    )
    return Result(answer.thetas[0], certificate, chosen)
