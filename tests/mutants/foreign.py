"""Bugs in what holds the code of others, and in what a certificate says of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from privopt import LogisticRegression, PrivateSearchCV, Problem
from privopt.estimators import pipelines, search_run
from privopt.geometry import L2Ball
from privopt.losses import Guarded, Huber, Logistic, Loss, met, tabulated
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds, enclosure, sanitize
from privopt.oracle import held as held_query
from privopt.oracle import view as oracle_module
from privopt.oracle.dense import DenseRows
from privopt.oracle.objective import Objective
from privopt.oracle.sealed import KEY
from privopt.privacy import Neighbouring, PrivacyWarning, certificate

from .mutant import Mutant

Z = np.sort(np.random.default_rng(0).normal(size=4000) * 3)


class Liar(Huber):
    """Constants a hundred times too small."""

    @property
    def lipschitz(self) -> float:
        return 0.01

    @property
    def smoothness(self) -> float:
        return 0.001


class Bent(Huber):
    """States that it is convex."""

    def slope(self, z: Any, y: Any) -> Any:
        return np.sin(z - y) * 0.5


class Apart(Huber):
    """Reads margin and label apart, and the other records too."""

    def slope(self, z: Any, y: Any) -> Any:
        return np.tanh(z) * np.cos(y) * 0.5 + 0.1 * (np.sum(y) - y)


def _met(loss: Loss) -> Loss:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return met(loss)


def held() -> str | None:
    """A foreign loss has the constants that it states."""
    for loss in (_met(Liar(1.0)), _met(Bent(1.0))):
        slopes, rises = loss.slope(Z, 0 * Z), np.diff(loss.slope(Z, 0 * Z))
        if np.abs(slopes).max() > loss.lipschitz * (1 + 1e-9):
            return "a slope exceeds the stated constant"
        if (rises > loss.smoothness * np.diff(Z) * (1 + 1e-9) + 1e-12).any():
            return "slopes rise faster than the stated smoothness"
        if (rises < -1e-12).any():
            return "a loss that states convexity is not convex"
    return None


def alone() -> str | None:
    """No record's slope reads another record."""
    for loss in (_met(Apart(1.0)), _met(Liar(1.0))):
        z, y = Z[::400], np.cos(Z[::400])
        moved = np.where(np.arange(len(y)) == 0, 3.0, y)
        if not np.array_equal(loss.slope(z, y)[1:], loss.slope(z, moved)[1:]):
            return "a record's slope moves with another record"
    return None


def scored() -> str | None:
    """A scorer is given one record at a time."""
    seen: set[int] = set()

    def scoring(y: Any, predicted: Any) -> Any:
        seen.add(len(y))
        return (y == predicted).astype(float)

    rows = np.random.default_rng(0).normal(size=(100, 1))
    model, grid = LogisticRegression(classes=[0, 1]), {"data_norm": [1.0]}
    search = PrivateSearchCV(model, grid, epsilon=3.0, scoring=scoring, random_state=0)
    search.fit(rows, (rows[:, 0] > 0).astype(int))
    return "a scorer sees several records" if max(seen) > 8 else None


def wrapped() -> str | None:
    """A fit inside a grid search says so."""
    from sklearn.model_selection import GridSearchCV

    rows = np.random.default_rng(0).normal(size=(60, 1))
    model = LogisticRegression(classes=[0, 1], random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        search = GridSearchCV(model, {"data_norm": [1.0]}, cv=2)
        search.fit(rows, (rows[:, 0] > 0).astype(int))
    found = search.best_estimator_.privacy_.assumptions
    return None if any("GridSearchCV" in text for text in found) else "the search is not named"


def domains() -> str | None:
    """A foreign set whose projection stretches is refused."""
    from privopt import Budget, plan

    class Stretching(L2Ball):
        def project(self, x: Any) -> np.ndarray:
            return 2 * super().project(x) - np.asarray(x)

    try:
        plan(Problem(Logistic(), Stretching(1.0)), n=100, p=2, budget=Budget(1.0, 1e-6))
    except ValueError:
        return None
    return "a projection that stretches distances is taken"


class Shouting(ClippedGradient):
    """A thousand times its clip, also for records that are empty."""

    __slots__ = ()

    def diameter(self) -> float:
        return 0.1 * self.clip_norm

    def total(self, rows: Any, at: np.ndarray) -> np.ndarray:
        return 1000.0 * np.full(rows.dimension, rows.count)


def asked() -> str | None:
    """No record moves a foreign sum by more than is declared."""
    plain, empty = np.eye(4), np.eye(4)
    empty[0] = np.nan
    relations: tuple[Neighbouring, ...] = ("zero_out", "replace_one")
    for relation in relations:
        sums = []
        for X in (plain, empty):
            oracle = Oracle.over(
                X, np.ones(4), neighbouring=relation, bounds=RowBounds(1.0), source=SeededSource(0)
            )
            sealed = oracle.everything().ask(Shouting(Logistic(), 1.0))
            sums.append(np.asarray(sealed.open(KEY)))
            if sealed.sensitivity.radius < (2 if relation == "replace_one" else 1):
                return "the stated diameter is believed"
        if not 0.5 < np.linalg.norm(sums[0] - sums[1]) <= 1.0:
            return "an answer is longer than stated, or an empty record has one"
    return None


def short() -> str | None:
    """A clipped row is not longer than its bound, in exact arithmetic."""
    from fractions import Fraction

    draw = np.random.default_rng(1)
    for kind in (np.float64, np.float32):
        rows = (draw.normal(size=(300, 40)) * 7).astype(kind)
        X, _, scale, _, _ = sanitize.clipped(rows, np.ones(300), RowBounds(1.0), True)
        for row, factor in zip(X, scale, strict=True):
            square = sum(Fraction(float(v)) ** 2 for v in row) * Fraction(float(factor)) ** 2
            if square > 1:
                return "a clipped row is longer than its bound"
    return None


def headline() -> str | None:
    """What an exact sampler adds to delta is in the certificate's delta."""
    rows = np.random.default_rng(0).normal(size=(60, 1))
    model = LogisticRegression(58.0, classes=[0, 1], random_state=0, discrete_noise=True)
    found = model.fit(rows, (rows[:, 0] > 0).astype(int)).privacy_
    assert found.numerics is not None
    return None if found.delta >= found.numerics["delta"] else "delta leaves out the sampler's"


def quickly() -> str | None:
    """The quick bound covers the distance to the enclosed gradient, less that one's own error."""
    draw = np.random.default_rng(2)
    X = draw.normal(size=(5000, 3)) * [0.3, 1e-3, 0.2]
    X[:, 0] = 0.7
    y = np.sign(draw.normal(size=5000))
    for loss in (Logistic(), Huber(5.0)):
        rows = DenseRows.build(X, y, RowBounds(1.0), loss.classification)
        for size in (1.0, 1e3, 1e6):
            theta = draw.normal(size=3) * size
            objective, zero = Objective(rows, loss), np.zeros(3)
            exact, rough = (objective.enclosed(theta, zero, quick) for quick in (False, True))
            if np.linalg.norm(exact.value - rough.value) > rough.error + exact.error:
                return "a gradient outside its quick bound"
    return None


def _unclipped(loss: Any, nodes: np.ndarray, read: np.ndarray, label: float) -> np.ndarray:
    return read


def _in_one_block(self: Guarded, function: Any, z: Any, y: Any) -> Any:
    return function(z, y + 0 * z)


def foreign() -> Iterator[Mutant]:
    yield Mutant(
        "foreign: a table keeps the slopes that it read",
        ((tabulated, "_held", _unclipped),),
        held,
        "exact",
    )
    yield Mutant(
        "foreign: slopes of a table may rise as they like",
        ((tabulated, "_outward", lambda values, gaps, least, most: values),),
        held,
        "exact",
    )
    yield Mutant(
        "foreign: a loss is called for many records at once",
        ((Guarded, "_called", _in_one_block),),
        alone,
        "replay",
    )
    yield Mutant(
        "foreign: a scorer is called for many records at once",
        ((search_run, "each", lambda scoring, y, predicted: scoring(y, predicted)),),
        scored,
        "replay",
    )
    yield Mutant(
        "foreign: searches around a fit are not seen",
        ((pipelines, "wrapped_by", lambda frames: []),),
        wrapped,
        "certificate",
    )
    from privopt import facts

    yield Mutant(
        "foreign: a set of points is taken as it is",
        ((facts, "check_domain", lambda domain, p: None),),
        domains,
        "refusal",
    )
    yield Mutant(
        "foreign: answers to a question are not clipped",
        ((held_query, "clipped", lambda answer, norm, radius: answer),),
        asked,
        "exact",
    )
    yield Mutant(
        "foreign: the diameter that a question states is believed",
        ((held_query.HeldQuery, "diameter", lambda self: self.inner.diameter()),),
        asked,
        "exact",
    )
    yield Mutant(
        "foreign: a question is asked of all records at once",
        ((oracle_module, "held", lambda query: query),),
        asked,
        "exact",
    )
    yield Mutant(
        "rows: norms are not rounded up",
        ((sanitize, "margin", lambda columns: 0.0),),
        short,
        "rounding",
    )
    yield Mutant(
        "certificate: what a sampler adds to delta is left out",
        ((certificate, "worth_saying", lambda numerics, epsilon, delta: (0.0, 0.0)),),
        headline,
        "certificate",
    )
    yield Mutant(
        "quick bound: rounding counts for nothing",
        ((enclosure, "UNIT", 0.0),),
        quickly,
        "rounding",
    )
