"""Planted bugs for failure modes that the other lists leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import log_softmax
from torch import nn

import privopt.oracle.view as oracle_module
from privopt import LogisticRegression, Problem
from privopt.audit import hostile_pairs, record, replay
from privopt.audit.mechanisms import audit_mechanism
from privopt.audit.table import Row, case
from privopt.estimators.linear_classifier import LinearClassifier
from privopt.geometry import Box, L2Ball
from privopt.losses import Huber, Quantile
from privopt.mechanisms import (
    Gate,
    RankQuantile,
    additive,
    grid_walk,
    objective_perturbation,
    on_grid,
    rank_quantile,
    selection,
)
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds, queries
from privopt.privacy import Accountant, Event, Log, accountant, profiles, spend
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import GaussianKind
from privopt.torch import checks as torch_checks
from privopt.torch import make_private

from .checks import minimised, replayed
from .mutant import Check, Mutant

DELTA = 1e-5
ROWS = Problem(Huber(0.5), L2Ball(3.0))
COLUMNS = Problem(Huber(0.5), Box(-1.0, 2.0), intercept=0.5, column_bounds=1.0)


# ---------------------------------------------------------------- checks
def read_twice() -> str | None:
    """Reading epsilon changes nothing: twice the same number, and the log as it was."""
    log = Log()
    for _ in range(3):
        log.append(Event("Gaussian", (GaussianKind(0.4, 0.4),)))
    for what in (charge_of(GaussianKind(0.4, 0.4), count=3), spend(log)):
        first, second = (Accountant().epsilon(what, DELTA) for _ in range(2))
        if first != second:
            return f"epsilon {first:.4g}, read again {second:.4g}"
    return None


def numbers() -> str | None:
    """Extreme losses cost at least their mean, possibly infinity, never a NaN and never nothing."""
    for mu in (0.3, 5.0, 40.0, 1e4):
        found = Accountant().epsilon(charge_of(GaussianKind(mu, mu), count=2), 1e-9)
        if not found >= mu**2:
            return f"epsilon {found} for a mean loss of {mu**2:g}"
    return None


def declared_classes() -> str | None:
    """The shape of a fitted model does not tell whether the only member of a class was there."""

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        model = LogisticRegression(
            classes=[-1, 0, 1],
            n_public=60,
            neighbouring="replace_one",
            solver="objective_perturbation",
            nan_policy="empty",
            random_state=0,
        )
        return model.fit(X, y.astype(int)).coef_.shape

    pair = next(p for p in hostile_pairs("replace_one") if p.name == "only member of a class")
    found = replay(run, pair)
    return found[0] if found else None


def mixing_refused() -> str | None:
    """A layer that mixes records has no gradient of one record."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    try:
        make_private(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(torch.zeros(20, 3), torch.zeros(20)), batch_size=5
            ),
            epsilon=1.0,
            delta=DELTA,
            epochs=1,
        )
    except Exception:
        return None
    return "a model with batch normalisation was taken"


@cache
def measured(name: str, runs: int, epsilon: float = 1.0) -> Check:
    """A mechanism by itself is not refuted; false alarm 1e-6."""

    def check() -> str | None:
        found = audit_mechanism((name, epsilon), runs=runs, confidence=1 - 1e-6)
        return f"epsilon >= {found.lower_bound:.2f}" if found.refuted else None

    return check


def ranked() -> str | None:
    """Releases of a quantile by ranks have the density of the theorem; false alarm 1e-7."""
    q, multiplier, width = 0.75, 0.5, 0.02
    values = np.array([0.1, 0.2, 0.2, 0.5, 0.9])
    source, mechanism = SeededSource(0), RankQuantile(multiplier, 0.0, 1.0, width)
    rows = Oracle.over(
        np.ones((5, 1)),
        values,
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=source,
        classification=False,
    ).everything()
    sealed = rows.function(Quantile(q))
    drawn = np.array([Gate(source).release(mechanism, sealed)[0] for _ in range(4000)])
    edges = np.linspace(0, 1, 2001)
    theta = (edges[:-1] + edges[1:]) / 2
    below = (values[:, None] < theta - width).sum(axis=0)
    up_to = (values[:, None] <= theta + width).sum(axis=0)
    score = np.maximum(0, np.maximum(below - q * 5, q * 5 - up_to))
    mass = np.exp(-score / (multiplier * 2 * q))
    expected = (mass / mass.sum()).reshape(10, -1).sum(axis=1) * len(drawn)
    seen = np.histogram(drawn, np.linspace(0, 1, 11))[0]
    value = float(stats.chisquare(seen, expected).pvalue)
    return f"releases beside their density, p={value:.0e}" if value < 1e-7 else None


def walked() -> str | None:
    """The enumerated law of a walk on a grid moves by at most epsilon between neighbours."""
    run, pair, certificate = case(Row("grid_walk", 4.0, 0.0))
    found = []
    for side in (pair.first, pair.second):
        tape = record(lambda X, y: run(X, y, SeededSource(0)), side)[1]
        (release,) = tape.releases
        mechanism: Any = release.mechanism
        walk, target = mechanism.prepared(release.payload, release.sensitivity)
        found.append(mechanism.density(walk, target)[1])
    heights = [log_softmax(one) for one in found]
    moved = float(np.abs(heights[0] - heights[1]).max())
    return f"a loss of {moved:.3g}" if moved > certificate.epsilon * (1 + 1e-9) else None


# ---------------------------------------------------------------- mutants
def by_themselves() -> Iterator[Mutant]:
    """Mechanisms that no solver's list sensitivities, or not by its tightest attack."""

    def quieter(module: Any, name: str) -> tuple[Any, str, Any]:
        honest = getattr(module, name)
        return module, name, lambda source, scale, size: honest(source, scale / 2, size)

    for mechanism, module, name, runs in (
        ("Laplace", additive, "laplace", 5000),
        ("ReportNoisyMax", selection, "laplace", 15_000),
        ("PermuteAndFlip", selection, "exponential", 4000),
    ):
        yield Mutant(
            f"{mechanism}: half the {name} noise, seen by an attack",
            (quieter(module, name),),
            measured(mechanism, runs),
            "attack",
            quick=mechanism == "Laplace",
        )
    laplace = on_grid.discrete_laplace
    yield Mutant(
        "DiscreteLaplace: half the integers of its noise, seen by an attack",
        ((on_grid, "discrete_laplace", lambda source, size: laplace(source, size) // 2),),
        measured("DiscreteLaplace", 5000),
        "attack",
    )
    yield Mutant(
        "RankQuantile: half the movement of a rank",
        ((rank_quantile, "movement", lambda q, sensitivity: max(q, 1 - q)),),
        ranked,
        "law",
    )
    ranged = grid_walk.loss_range
    yield Mutant(
        "GridWalk: a quarter of the loss's range",
        ((grid_walk, "loss_range", lambda *args: ranged(*args) / 4),),
        walked,
        "exact",
        quick=False,
    )


def further() -> Iterator[Mutant]:
    yield from by_themselves()
    ask = oracle_module.View.ask

    def kept(self: Any, query: Any, at: Any = None, *, steps: Any = None) -> Any:
        """A question to the same view adds to the answer of the one before."""
        sealed = ask(self, query, at, steps=steps)
        before = _ANSWERS.get(id(self))
        _ANSWERS.clear()
        _ANSWERS[id(self)] = sealed._payload
        if before is not None and before.shape == sealed._payload.shape:
            sealed._payload = sealed._payload + before
        return sealed

    yield Mutant(
        "noisy_gd: a gradient that is not cleared before the next",
        ((oracle_module.View, "ask", kept),),
        replayed("noisy_gd", "replace_one", DELTA, problem=ROWS),
        "replay",
    )

    def in_pairs(self: Any, rows: Any, at: np.ndarray) -> np.ndarray:
        total = np.zeros(rows.dimension)
        for start in range(0, rows.count, 2):
            pair = rows.take(np.arange(start, min(start + 2, rows.count)))
            found = pair.weighted_sum(at, lambda z, y, s: 5 * self.loss.slope(z, y))
            total += found * min(1.0, self.clip_norm / max(np.linalg.norm(found), 1e-300))
        return total

    yield Mutant(
        "noisy_gd: records clipped in pairs, charged as one by one",
        ((queries.ClippedGradient, "total", in_pairs),),
        replayed("noisy_gd", "zero_out", DELTA, discrete_noise=False),
        "replay",
    )
    epsilon = Accountant.epsilon

    def forgetting(self: Any, what: Any, delta: float) -> float:
        found = epsilon(self, what, delta)
        cells = what.cells.values() if hasattr(what, "cells") else [what]
        for charge in cells:
            for step in charge:
                charge[step] = max(1, charge[step] - 1)
        return found

    yield Mutant(
        "accountant: reading epsilon takes a release off the account",
        ((Accountant, "epsilon", forgetting),),
        read_twice,
        "closed form",
    )
    exact = profiles.gaussian_delta

    def broken(e: float, mu: float) -> float:
        found = math.nan if mu > 20 else exact(e, mu)
        return 0.0 if math.isnan(found) else found

    yield Mutant(
        "accountant: a profile that is not a number counts as zero",
        ((profiles, "gaussian_delta", broken), (accountant, "gaussian_delta", broken)),
        numbers,
        "closed form",
    )
    targets = LinearClassifier._targets

    def from_data(self: Any, y: Any) -> Any:
        declared, self.classes = self.classes, None
        try:
            return targets(self, y)
        finally:
            self.classes = declared

    yield Mutant(
        "LogisticRegression: classes read from y although they are declared",
        ((LinearClassifier, "_targets", from_data),),
        declared_classes,
        "replay",
    )
    each = RowBounds.each
    yield Mutant(
        "coordinate_descent: each coordinate has the bound of another column",
        ((RowBounds, "each", lambda self, dimension: np.roll(each(self, dimension), 1)),),
        replayed("coordinate_descent", "zero_out", DELTA, problem=COLUMNS, n_iter=40),
        "replay",
    )
    minimise = objective_perturbation.minimise_surely

    def half(*args: Any, **kwargs: Any) -> Any:
        return minimise(*args, **{**kwargs, "regularisation": kwargs["regularisation"] / 40})

    yield Mutant(
        "objective_perturbation: the regulariser as if the objective were a mean",
        ((objective_perturbation, "minimise_surely", half),),
        minimised("objective_perturbation", 0.0),
        "minimiser",
    )
    yield Mutant(
        "torch: a layer that mixes records is taken",
        ((torch_checks, "objections", lambda model: []),),
        mixing_refused,
        "refusal",
        quick=False,
    )


_ANSWERS: dict[int, Any] = {}
