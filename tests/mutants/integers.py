"""Planted bugs of releases in exact integers, and the checks that kill them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from privopt.audit import low_bits
from privopt.losses import Absolute, Logistic
from privopt.mechanisms import DiscreteGaussian, DiscreteLaplace, on_grid
from privopt.noise import SeededSource, discrete, discrete_gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds, counting, dense, view
from privopt.oracle.sealed import KEY
from privopt.oracle.sensitivity import Grid, Sensitivity
from privopt.privacy import Event, Log, certificate
from privopt.privacy.kinds import GaussianKind

from .checks import law
from .mutant import Check, Mutant

DELTA = 1e-5


def coarse(factor: float, draw: Callable[..., Any] = discrete_gaussian) -> Callable[..., Any]:
    """The sampler's integers times a factor."""
    return lambda source, size: np.rint(factor * draw(source, size)).astype(np.int64)


HALF_GAUSSIAN = (on_grid, "discrete_gaussian", coarse(0.5))
UNSHORTENED = (dense, "shorten", lambda lengths, bound, p: np.ones_like(lengths))
"""Counting cuts every record to the declared bound: without it, a bound too small shows."""


# ---------------------------------------------------------------- checks
def _counts(X: np.ndarray, y: np.ndarray, query: Any, steps: float) -> np.ndarray:
    view = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0)
    ).everything()
    theta = np.linspace(-1.0, 1.0, X.shape[1])
    return view.ask(query, theta, resolution=steps).open(KEY)


def _records(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return 3 * rng.standard_normal((n, p)), np.where(rng.random(n) < 0.5, 1.0, -1.0)


def within_steps() -> str | None:
    """Integer vectors of single records are never longer than the declared number of steps."""
    X, y = _records(300, 3)
    query = ClippedGradient(Absolute(), 0.3)
    for i in range(300):
        counts = _counts(X[i : i + 1], y[i : i + 1], query, 1000.0)
        if sum(int(c) ** 2 for c in counts) > 1000**2:
            return "a record is longer than its sensitivity"
    return None


def order_free() -> str | None:
    """The sum is that of the records' own integers, in every order."""
    X, y = _records(400, 5)
    query = ClippedGradient(Logistic(), 0.5)
    whole = _counts(X, y, query, 2.0**33)
    parts = sum(_counts(X[i : i + 1], y[i : i + 1], query, 2.0**33) for i in range(400))
    return None if np.array_equal(whole, parts) else "not the sum of the records' own integers"


@cache
def sampled(kind: Any) -> Check:
    """The law of a hardened release; false alarm 1e-7."""

    def check() -> str | None:
        mechanism = kind(2.0)
        sensitivity = Sensitivity(
            mechanism.accepts, 1.0, 1.0, grid=Grid(1 / mechanism.resolution, 40_000)
        )
        noise = mechanism.run(np.zeros(40_000, dtype=np.int64), sensitivity, SeededSource(1))
        family = stats.norm if kind is DiscreteGaussian else stats.laplace
        value = stats.kstest(noise, family(scale=2.0).cdf).pvalue
        return f"noise beside its law, p={value:.0e}" if value < 1e-7 else None

    return check


def quiet_bits() -> str | None:
    """Low-order bits of releases on two neighbours."""
    mechanism = DiscreteGaussian(2.0)
    sensitivity = Sensitivity("l2", 1.0, 1.0, grid=Grid(1 / mechanism.resolution, 1))
    rows = [_records(n, 1) for n in (39, 40)]
    query = ClippedGradient(Logistic(), 1.0)
    numbers = []
    for seed, (X, y) in enumerate(rows):
        payload = np.repeat(_counts(X, y, query, mechanism.resolution), 20_000)
        numbers.append(mechanism.run(payload, sensitivity, SeededSource(seed)))
    assert sensitivity.grid is not None
    found = low_bits(*numbers, sensitivity.grid.step)
    return f"low bits prove epsilon {found:.2f}" if found > 0.2 else None


def all_bits_read() -> str | None:
    """Three outcomes in 2^128 for the first of two values: both words decide."""
    tables, more = discrete.Tables([[3, 2**128 - 3]], 0), np.array([2, 3], dtype=np.uint64)
    digits = tables.digits(np.zeros(2, dtype=np.uint64), lambda count: more)
    return None if digits.tolist() == [0, 1] else "a chance below 2^-64 is not kept"


def slack_counted() -> str | None:
    """What the certificate says for three releases of ten coordinates, by hand."""
    mechanism = DiscreteGaussian(1.0)
    numerics = mechanism.numerics(
        Sensitivity("l2", 1.0, 1.0, grid=Grid(1 / mechanism.resolution, 10))
    )
    log = Log()
    for _ in range(3):
        log.append(Event("DiscreteGaussian", (GaussianKind(1.0, 1.0),), numerics=numerics))
    found = certificate.slack(log, 1.0)
    assert found is not None
    right = 60 * 169 / 24 / discrete.GAUSSIAN_STD**2
    if not right <= found["epsilon"] <= 1.01 * right:
        return f"slack of {found['epsilon']:.1e} instead of {right:.1e}"
    least = (1 + math.e) * 30 * 3 * 2.0**-112
    return None if found["delta"] >= least else "delta's slack is too small"


# ---------------------------------------------------------------- bugs
def integers() -> Iterator[Mutant]:
    def up(vectors: Any) -> Any:
        return (np.sign(vectors) * np.ceil(np.abs(vectors))).sum(axis=0).astype(np.int64)

    def late(vectors: Any) -> Any:
        return np.trunc(vectors.sum(axis=0)).astype(np.int64)

    def one_word(self: Any, words: Any, more: Any, table: Any = 0) -> Any:
        return honest_digits(self, words, lambda count: more(count) * np.uint64(0), table)

    def in_floating_point(self: Any, payload: Any, noise: Any, sensitivity: Any) -> Any:
        step = sensitivity.grid.step
        return payload * (step * 1.1) / 1.1 + noise * step

    honest_digits = discrete.Tables.digits
    yield Mutant(
        "integers: cut off away from zero",
        ((dense, "added", up),),
        within_steps,
        "exact",
    )
    yield Mutant("integers: cut off after the sum", ((dense, "added", late),), order_free, "exact")
    yield Mutant(
        "integers: the clip counts in floating point only",
        (
            UNSHORTENED,
            (ClippedGradient, "_weigh", lambda self, z, y, s: self.loss.slope(z, y)),
        ),
        within_steps,
        "exact",
    )
    yield Mutant(
        "integers: value and noise added in floating point",
        ((on_grid.OnGrid, "_noisy", in_floating_point),),
        quiet_bits,
        "low bits",
    )
    yield Mutant(
        "integers: a grid of twice the steps",
        tuple(
            (module, "grid_step", lambda sensitivity, steps: sensitivity / steps / 2)
            for module in (on_grid, view, counting)
        ),
        law("noisy_gd", DELTA),
        "law",
    )
    yield Mutant(
        "integers: one digit less than the scale says",
        ((discrete, "GAUSSIAN_DIGITS", 3),),
        sampled(DiscreteGaussian),
        "law",
    )
    yield Mutant(
        "integers: digits half as wide",
        ((discrete, "gaussian_weights", _narrow(discrete.gaussian_weights)),),
        sampled(DiscreteGaussian),
        "law",
    )
    yield Mutant(
        "integers: half the Laplace noise",
        (
            (
                on_grid,
                "discrete_laplace",
                lambda source, size: discrete.discrete_laplace(source, size) // 2,
            ),
        ),
        sampled(DiscreteLaplace),
        "law",
    )
    yield Mutant(
        "integers: a one-sided geometric variable for a Laplace one",
        (
            (
                on_grid,
                "discrete_laplace",
                lambda source, size: np.abs(discrete.discrete_laplace(source, size)),
            ),
        ),
        sampled(DiscreteLaplace),
        "law",
    )
    yield Mutant(
        "integers: the second random word is not read",
        ((discrete.Tables, "digits", one_word),),
        all_bits_read,
        "exact",
    )
    yield Mutant(
        "integers: slack of one coordinate for all of them",
        ((on_grid.OnGrid, "_grid", lambda self, sensitivity: Grid(sensitivity.grid.step, 1)),),
        slack_counted,
        "closed form",
    )
    yield Mutant(
        "integers: slack of one release for all of them",
        ((certificate, "slack", lambda log, epsilon: _first(log, epsilon)),),
        slack_counted,
        "closed form",
    )


def _narrow(honest: Callable[..., Any]) -> Callable[..., Any]:
    """A table of the same length whose law has half the width."""

    def weights(std: int, tail: int, bits: int = discrete.BITS) -> list[int]:
        inner = honest(std // 2, tail, bits)
        pad = [0] * (tail * std - len(inner) // 2)
        return [*pad, *inner, *pad]

    return weights


_honest_slack = certificate.slack


def _first(log: Log, epsilon: float) -> Any:
    short = Log()
    short.append(log[0])
    return _honest_slack(short, epsilon)
