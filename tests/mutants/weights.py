"""Planted bugs in weights of records and in blocks of streams, and the checks that notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

from privopt import LogisticRegression, RefitStream, Ridge
from privopt.audit import record, replay
from privopt.audit.neighbours import searched_pairs
from privopt.estimators import linear_model, refit_stream
from privopt.estimators.participants import Participants
from privopt.oracle import weighted
from privopt.oracle.mapped import RowMap
from privopt.oracle.weighted import WeightedRows
from privopt.privacy import Refused

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


def blocks_apart() -> str | None:
    """A record moves the releases of one cell alone."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, P))
    y = np.where(X[:, 0] > 0, 1, -1)

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        model = LogisticRegression(1.0, 1e-5, classes=[-1, 1], solver="noisy_gd")
        return RefitStream(model, block_size=10, random_state=0).fit(X, y).coef_

    _, before = record(run, (X, y))
    for place in (9, 10, 39):
        other = X.copy()
        other[place] *= -0.5
        _, after = record(run, (other, y))
        moved = {
            one.event.cells
            for one, two in zip(before.releases, after.releases, strict=True)
            if not np.array_equal(one.payload, two.payload)
        }
        if len(moved) > 1:
            return f"a record moves {len(moved)} cells, and pays for one"
    return None


def named_once() -> str | None:
    """A record that is named cannot come twice, not even after a block that failed."""
    model = LogisticRegression(1.0, 1e-5, classes=[-1, 1], solver="noisy_gd")
    stream = RefitStream(model, random_state=0)
    X, y = np.eye(4, P), np.array([1, -1, 1, -1])
    stream.partial_fit(X, y, record_ids=range(4))
    try:
        stream.partial_fit(X, y, record_ids=range(3, 7))
    except Refused:
        return None
    return "a record took part in two blocks"


def refits() -> Iterator[Mutant]:
    indexed = refit_stream._safe_indexing

    def overlapping(X: Any, part: slice) -> Any:
        found = indexed(X, part)
        found[0] = X[max(part.start - 1, 0)]  # the last record of the block before
        return found

    shared = ((refit_stream, "_safe_indexing", overlapping),)
    yield Mutant("refits: blocks share a record", shared, blocks_apart, "cells")
    forgotten = ((Participants, "enter", lambda self, step, records: None),)
    yield Mutant("refits: names are not kept", forgotten, named_once, "names")


def weights() -> Iterator[Mutant]:
    yield from refits()
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

    def by_largest(sample_weight: Any, model: Any, *others: Any) -> Any:
        if sample_weight is None:
            return original(sample_weight, model, *others)
        largest = float(np.max(sample_weight))
        return original(sample_weight, clone(model).set_params(max_weight=largest), *others)

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
