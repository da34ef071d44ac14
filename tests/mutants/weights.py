"""Planted bugs in weights of records, and the checks that notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from privopt import LogisticRegression, Ridge
from privopt.audit import replay
from privopt.audit.neighbours import searched_pairs
from privopt.estimators import linear_model
from privopt.oracle import weighted
from privopt.oracle.mapped import RowMap
from privopt.oracle.weighted import WeightedRows

from .mutant import Check, Mutant

N, P, MOST = 24, 3, 2.0


def weighed(kind: Any, relation: str = "zero_out", **how: Any) -> Check:
    """Values move by one unweighted record's worth when a record and its weight change."""

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        weights = np.nan_to_num(3 * np.abs(X[:, 0]), nan=0.0, posinf=9.0)
        known = {"neighbouring": relation, "n_public": N, "nan_policy": "empty", **how}
        model = kind(1.0, 1e-5, max_weight=MOST, random_state=0, **known)
        X = np.where(np.isfinite(y)[:, None], X, np.nan)
        y = np.nan_to_num(y) if kind is Ridge else np.where(y > 0, 1, -1)
        model.fit(X, y, sample_weight=weights)
        return model.coef_, model.privacy_.to_json()

    def check() -> str | None:
        classes = kind is LogisticRegression
        for pair in searched_pairs(relation, N, P, classes, 1.0)[::5]:  # type: ignore[arg-type]
            with np.errstate(all="ignore"):
                found = replay(run, pair)
            if found:
                return f"{found[0]} ({pair.name})"
        return None

    return check


def weights() -> Iterator[Mutant]:
    two = {"classes": [-1, 1]}
    plain = weighed(LogisticRegression, solver="objective_perturbation", **two)
    mapped = weighed(LogisticRegression, bounds=(-1.0, 1.0), **two)
    ridge = weighed(Ridge, solver="noisy_gd", discrete_noise=False)
    original = linear_model.case_weights

    def unbounded(rows: Any, given: Any) -> Any:
        return WeightedRows(rows, np.asarray(given, dtype=float) * 3)

    def own_unit(*given: Any) -> Any:
        found, _ = original(*given)
        return (None, 1.0) if found is None else (found / found.mean(), 1.0)

    def by_largest(sample_weight: Any, max_weight: Any, *others: Any) -> Any:
        largest = None if sample_weight is None else float(np.max(sample_weight))
        return original(sample_weight, largest, *others)

    beyond = ((weighted.WeightedRows, "build", staticmethod(unbounded)),)
    for what, check in (("objective", plain), ("mapped rows", mapped), ("gradients", ridge)):
        yield Mutant(f"weights: not moved to the bound ({what})", beyond, check, "replay")
    mean = ((linear_model, "case_weights", own_unit),)
    yield Mutant("weights: in units of their mean", mean, plain, "replay")
    largest = ((linear_model, "case_weights", by_largest),)
    yield Mutant("weights: in units of the largest of the data", largest, ridge, "replay")
    shared = weighted._shared

    def twice(weigh: Any) -> Any:
        return shared(lambda z, y, size: weigh(z, y, size * 0.5) * 2)

    clip = ((weighted, "_shared", twice),)
    yield Mutant("weights: the clip is for half of the record", clip, ridge, "replay")
    notes = RowMap.notes

    def heavy(self: Any, norms: Any) -> Any:
        found = notes(self, norms)
        found[:, 2] = 3 / np.maximum(found[:, 1], 1e-9)
        return found

    long = ((RowMap, "notes", heavy),)
    yield Mutant("weights: short rows count more than once", long, mapped, "replay")
