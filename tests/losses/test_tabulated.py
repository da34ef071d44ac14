"""A foreign loss is a table made before the data: what it states holds, whatever it computes."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt import Problem, solve
from privopt.audit import replay
from privopt.audit.neighbours import hostile_pairs
from privopt.geometry import L2Ball
from privopt.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Quantile,
    SmoothedHinge,
    SmoothedQuantile,
    Squared,
    Tabulated,
    TukeyBiweight,
    Welsch,
    met,
)
from privopt.privacy import Budget, Refused

OWN = [
    Logistic(),
    Hinge(),
    SmoothedHinge(0.2),
    Huber(0.3),
    Huber(2.0),
    Squared(),
    Absolute(),
    Quantile(0.3),
    SmoothedQuantile(0.7, 0.1),
    Welsch(0.7),
    TukeyBiweight(1.5),
]
rng = np.random.default_rng(0)
Z = np.concatenate([rng.normal(size=400) * 3, rng.normal(size=50) * 1e4, [0.0, -0.0, 1.0, -1.0]])


def labels(loss: Loss) -> np.ndarray:
    found = rng.normal(size=len(Z))
    return np.where(found > 0, 1.0, -1.0) if loss.classification else found


def foreign(loss: Loss) -> Loss:
    """The same loss in a class that the library does not know."""
    kind = type(f"My{type(loss).__name__}", (type(loss),), {})
    found = copy.copy(loss)
    object.__setattr__(found, "__class__", kind)
    return found


@pytest.mark.parametrize("loss", OWN, ids=repr)
def test_a_correct_loss_stays_what_it_is(loss: Loss) -> None:
    table, y = met(foreign(loss)), labels(loss)
    assert type(table) is Tabulated
    scale = 1.0 if math.isfinite(loss.lipschitz) else 1e4
    # Near a bend the table rounds it off over one cell, a thousandth of the margin.
    assert np.abs(table.slope(Z, y) - loss.slope(Z, y)).max() <= 5e-3 * scale
    rises = [one.value(Z, y) - one.value(0 * Z, y) for one in (table, loss)]
    np.testing.assert_allclose(*rises, rtol=1e-5, atol=1e-5)
    for name in ("lipschitz", "smoothness", "convex", "one_signed", "weak_convexity"):
        assert getattr(table, name) == getattr(loss, name)
    assert table.range_on(3.0, 1.0) >= loss.range_on(3.0, 1.0) * (1 - 1e-3)
    pieces = loss.pieces(y)
    if pieces is not None:
        for one, other in zip(table.pieces(y), pieces, strict=True):
            np.testing.assert_allclose(one, other + 0 * y)
    points, column = np.column_stack([Z, Z + 1]), y[:, None]
    np.testing.assert_array_equal(table.slope(points, column)[:, 0], table.slope(Z, y))
    assert table.slope(Z.astype(np.float32), y.astype(np.float32)).dtype == np.float32
    assert pickle.loads(pickle.dumps(Tabulated(loss))) == Tabulated(loss)


# ---------------------------------------------------------------- what the table enforces
@dataclass(frozen=True)
class Any_(Loss):
    """A loss drawn at random that states constants drawn at random."""

    seed: int
    states: tuple[float, float, float]
    kinds: tuple[bool, bool, bool]

    def _wave(self, z):
        draw = np.random.default_rng(self.seed)
        a, b, c = draw.normal(size=3) * 3
        d, e, f = draw.uniform(0.1, 10, size=3)
        jump = np.where(z > c, a, b)
        return a * np.sin(d * z) + b * np.tanh(e * (z - c)) + jump * (draw.random() < 0.5) + f / 5

    def value(self, z, y):
        return 0.0 * z

    def slope(self, z, y):
        return self._wave(z * y if self.kinds[2] else z - y)

    def curvature(self, z, y):
        return 1e9 + 0.0 * z

    def _range(self, margin, label):
        return 1e-9

    convex = property(lambda self: self.kinds[0])
    one_signed = property(lambda self: self.kinds[1])
    classification = property(lambda self: self.kinds[2])
    lipschitz = property(lambda self: self.states[0])
    smoothness = property(lambda self: self.states[1])
    linear_beyond = property(lambda self: self.states[2])

    @property
    def weak_convexity(self):
        return 0.0 if self.convex else self.smoothness / 3


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.tuples(
        st.sampled_from([0.01, 0.5, 3.0, 100.0, math.inf]),
        st.sampled_from([0.01, 1.0, 50.0, math.inf]),
        st.sampled_from([0.3, 5.0, math.inf]),
    ),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_whatever_a_loss_computes_it_is_what_it_states(seed, states, kinds) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = met(Any_(seed, states, kinds))
    assert type(table) is Tabulated
    draw = np.random.default_rng(seed)
    z = np.sort(np.concatenate([draw.normal(size=3000) * 4, draw.normal(size=500) * 1e5]))
    for y in (-1.0, 1.0) if kinds[2] else (0.0, 0.7):
        s = table.slope(z, np.full_like(z, y))
        size = 1e-12 * max(1.0, np.abs(s).max())
        assert np.abs(s).max() <= table.lipschitz + size
        rises, gaps = np.diff(s), np.diff(z)
        assert (rises <= table.smoothness * gaps * (1 + 1e-9) + size).all()
        least = 0.0 if table.convex else -table.weak_convexity
        assert (rises >= least * gaps * (1 + 1e-9) - size).all()
        if table.one_signed:
            assert (s >= -size).all() or (s <= size).all()
        beyond = np.abs(z - y) > table.linear_beyond
        for side in (z < y, z > y):
            ends = s[beyond & side]
            assert ends.size == 0 or np.ptp(ends) <= size
        values = table.value(z, np.full_like(z, y))
        areas = gaps * (s[1:] + s[:-1]) / 2
        near = np.abs(z[1:]) < 2
        if math.isfinite(table.smoothness):
            bend = (table.smoothness + table.weak_convexity) * gaps**2 + 1e-9
            assert (np.abs(np.diff(values) - areas) <= bend)[near].all()
        inside = np.abs(z) <= 3.0
        assert np.ptp(values[inside]) <= table.range_on(3.0, 1.0) * (1 + 1e-9) + size


@pytest.mark.parametrize("loss", OWN, ids=repr)
@pytest.mark.parametrize("part", ["lipschitz", "smoothness"])
def test_constants_a_hundred_times_too_small_are_kept_and_said(loss: Loss, part: str) -> None:
    stated = getattr(loss, part)
    if not math.isfinite(stated):
        return
    kind = type("Liar", (type(loss),), {part: property(lambda self: stated / 100)})
    liar = copy.copy(loss)
    object.__setattr__(liar, "__class__", kind)
    with pytest.warns(UserWarning, match="the loss Liar breaks a constant"):
        table = met(liar)
    y = labels(loss)
    order = np.argsort(Z)
    z, y = Z[order], np.full_like(Z, y[0])
    s = table.slope(z, y)
    if part == "lipschitz":
        assert np.abs(s).max() <= stated / 100 * (1 + 1e-12)
    else:
        assert (np.diff(s) <= stated / 100 * np.diff(z) * (1 + 1e-9) + 1e-12).all()


# ---------------------------------------------------------------- no record sees another
class Mean(Huber):
    def slope(self, z, y):
        return super().slope(z - np.median(z) - 1.0 * (z.size % 2), y)


class Place(Logistic):
    def slope(self, z, y):
        return super().slope(z, y) * (1 - np.arange(z.size).reshape(z.shape) / z.size)


class Sorted(Logistic):
    def slope(self, z, y):
        return np.sort(super().slope(z, y))


@pytest.mark.parametrize("loss", [Mean(1.0), Place(), Sorted()], ids=lambda one: type(one).__name__)
def test_a_loss_that_couples_made_up_records_is_refused(loss: Loss) -> None:
    if type(loss) is Mean:  # reads margin and label apart as soon as records differ
        assert type(met(loss)) is not Huber
        return
    with pytest.raises(Refused, match="by itself"):
        met(loss)


class Waiting(Logistic):
    """Behaves until a batch has the size of the real one."""

    def slope(self, z, y):
        found = super().slope(z, y)
        return found + (np.mean(y) if z.size == 30 else 0.0)


class Remembering(Logistic):
    """What it returns depends on what it has seen before."""

    seen: list[float] = []  # noqa: RUF012

    def slope(self, z, y):
        if 1 < z.size <= 64:
            Remembering.seen.append(float(np.sum(z * y)))
        return super().slope(z, y) + (sum(Remembering.seen) if 1 < z.size <= 64 else 0.0)


@pytest.mark.parametrize("loss", [Waiting(), Remembering()], ids=lambda one: type(one).__name__)
def test_a_loss_that_hides_what_it_does_is_never_called_again(loss: Loss) -> None:
    table = met(loss)
    z, y = rng.normal(size=30), np.where(rng.normal(size=30) > 0, 1.0, -1.0)
    alone = np.array([table.slope(z[i : i + 1], y[i : i + 1])[0] for i in range(30)])
    np.testing.assert_array_equal(table.slope(z, y), alone)
    np.testing.assert_array_equal(table.slope(z, y), table.slope(z, y))
    np.testing.assert_allclose(alone, Logistic().slope(z, y), atol=1e-5)


# ---------------------------------------------------------------- through a solver
class Flat(Huber):
    """Constants a hundred times too small."""

    @property
    def lipschitz(self) -> float:
        return 0.01

    @property
    def smoothness(self) -> float:
        return 0.01


class Shallow(Logistic):
    @property
    def lipschitz(self) -> float:
        return 0.01

    @property
    def smoothness(self) -> float:
        return 0.0025


@pytest.mark.parametrize("solver", ["objective_perturbation", "output_perturbation", "noisy_gd"])
@pytest.mark.parametrize("loss", [Flat(1.0), Shallow()], ids=lambda one: type(one).__name__)
def test_replay_finds_nothing_in_a_loss_that_lies(loss: Loss, solver: str) -> None:
    with pytest.warns(UserWarning, match="breaks a constant"):
        problem = Problem(loss, L2Ball(2.0))
    budget = Budget(1.0, 1e-5)

    def run(X, y):
        found = solve(problem, X, y, budget=budget, solver=solver, random_state=0)
        assert any(type(loss).__name__ in text for text in found.certificate.assumptions)
        return found.theta

    pairs = hostile_pairs("zero_out", classification=loss.classification)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}
