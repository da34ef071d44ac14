"""Running sums: sealed running sums with public decay."""

import math

import numpy as np
import pytest

from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian
from privopt.mechanisms.maps import Loosen, Scale
from privopt.noise import SilentSource
from privopt.oracle import (
    ClippedGradient,
    CountRecords,
    Oracle,
    RowBounds,
    RunningSum,
    Sealed,
    Sensitivity,
)
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.events import Sampling

QUERY = ClippedGradient(Logistic(), 0.3)


def blocks(k=6, neighbouring="zero_out"):
    rng = np.random.default_rng(0)
    oracle = Oracle.over(
        rng.normal(size=(30, 3)),
        rng.choice([-1.0, 1.0], size=30),
        neighbouring=neighbouring,
        bounds=RowBounds(1.0),
        source=SilentSource(),
    )
    return oracle.blocks(k)


def test_the_running_sum_is_the_naive_one():
    decays, weights = [0.5, 0.9, 1.0, 0.25, 0.7, 0.1], [1.0, 2.0, 0.5, 3.0, 1.0, 10.0]
    running_sum, values = RunningSum(), []
    for t, block in enumerate(blocks()):
        sealed = block.everything().ask(QUERY, np.full(3, 0.1 * t))
        values.append(sealed.open(KEY).copy())
        got = running_sum.step(decays[t], sealed, weights[t]).open(KEY)
        # Every earlier value has suffered all decays since its own step, the first decay none.
        expected = sum(
            weights[s] * math.prod(decays[s + 1 : t + 1]) * values[s] for s in range(t + 1)
        )
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


def test_the_path_tells_each_cells_movement():
    """Zero out one record: the running sum moves by what its public path allows, at every later
    step."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 3)), rng.choice([-1.0, 1.0], size=30)
    decays, weights = [1.0, 0.5, 0.8, 0.9, 0.3, 1.0], [1.0, 2.0, 1.0, 0.5, 4.0, 1.0]

    def run(X):
        oracle = Oracle.over(
            X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource()
        )
        running_sum = RunningSum()
        return [
            running_sum.step(decay, block.everything().ask(QUERY, -np.ones(3)), weight)
            for block, decay, weight in zip(oracle.blocks(6), decays, weights, strict=True)
        ]

    base, tight = run(X), 0.0
    path = base[-1].sensitivity.running_sum.path
    assert path.cells == [(i,) for i in range(6)]
    assert path.radii == pytest.approx([0.3 * weight for weight in weights])
    for record in range(30):
        emptied = X.copy()
        emptied[record] = np.nan
        cell = record // 5
        for t, (one, other) in enumerate(zip(base, run(emptied), strict=True)):
            moved = np.linalg.norm(one.open(KEY) - other.open(KEY))
            if t < cell:
                assert moved == 0.0
                continue
            allowed = path.radii[cell] * math.exp(path.log_decay[t] - path.log_decay[cell])
            assert moved <= allowed * (1 + 1e-12)
            tight = max(tight, moved / allowed)
    assert tight > 0.999


@pytest.mark.parametrize(("neighbouring", "radius"), [("zero_out", 0.3), ("replace_one", 0.6)])
def test_positions_and_radii(neighbouring, radius):
    running_sum = RunningSum()
    steps = [
        running_sum.step(0.5, block.everything().ask(QUERY), 2.0)
        for block in blocks(3, neighbouring)
    ]
    assert [sealed.sensitivity.running_sum.step for sealed in steps] == [0, 1, 2]
    assert steps[0].sensitivity.running_sum.path is steps[2].sensitivity.running_sum.path
    assert steps[0].sensitivity.running_sum.path.radii == [2 * radius] * 3
    assert all(sealed.sensitivity.radius == 1.0 for sealed in steps)
    np.testing.assert_allclose(
        np.diff(steps[0].sensitivity.running_sum.path.log_decay), [math.log(0.5)] * 2
    )


def test_released_sums_keep_their_values_when_the_running_sum_goes_on():
    running_sum, gate, seen = RunningSum(), Gate(SilentSource()), []
    for block in blocks():
        sealed = running_sum.step(0.9, block.everything().ask(QUERY))
        seen.append((sealed, gate.release(Gaussian(1.0), sealed).copy()))
    for sealed, value in seen:
        np.testing.assert_array_equal(sealed.open(KEY), value)
    assert len(gate.log) == 6
    assert [event.running_sum.step for event in gate.log] == list(range(6))


def test_a_running_sum_does_not_write_into_the_values_it_takes():
    running_sum = RunningSum()
    sealed = [block.everything().ask(QUERY) for block in blocks()[:3]]
    before = [one.open(KEY).copy() for one in sealed]
    for one in sealed:
        running_sum.step(0.5, one, 1.0)
    for one, kept in zip(sealed, before, strict=True):
        np.testing.assert_array_equal(one.open(KEY), kept)


def test_a_record_enters_a_running_sum_once():
    """A second entry would move the sum twice; parts and wholes of a cell count as entries."""
    parts = blocks()
    for first, second in [(parts[0], parts[0]), (parts[0].blocks(2)[0], parts[0])]:
        for one, other in [(first, second), (second, first)]:
            running_sum = RunningSum()
            running_sum.step(1.0, one.everything().ask(QUERY))
            with pytest.raises(Refused, match="enters a running sum once"):
                running_sum.step(1.0, other.everything().ask(QUERY))


def refusals():
    view = blocks()[0].everything()
    other = RunningSum()
    inner = other.step(1.0, view.ask(QUERY))
    two = Sensitivity("l2", 1.0, 1.0, cells=((0,), (1,)))
    sampled = Sensitivity("l2", 1.0, 1.0, sampling=Sampling(0.5))
    return {
        "a sampled value": Sealed(KEY, np.zeros(3), sampled),
        "a value of another lane": inner,
        "an image of another lane's value": inner.through(Scale(2.0)),
        "a value of two cells": Sealed(KEY, np.zeros(3), two),
        "a value of no cell": Sealed(KEY, np.zeros(3), Sensitivity("l2", 1.0, 1.0, cells=())),
        "a function": view.function(Logistic()),
        "coordinates": Sealed(KEY, np.zeros(3), Sensitivity("coordinates", np.ones(3), np.ones(3))),
    }


@pytest.mark.parametrize("what", refusals())
def test_what_a_running_sum_does_not_take(what, monkeypatch):
    value, running_sum, opened = refusals()[what], RunningSum(), []
    monkeypatch.setattr(Sealed, "open", lambda self, key: opened.append(self))
    with pytest.raises(Refused, match="a running sum"):
        running_sum.step(0.5, value)
    assert opened == []


def test_a_running_sum_stays_with_its_first_norm():
    first, second = blocks(2)
    running_sum = RunningSum()
    running_sum.step(1.0, first.everything().ask(QUERY))
    with pytest.raises(Refused, match="same norm"):
        running_sum.step(1.0, second.everything().ask(QUERY).through(Loosen("l2", "linf")))
    kept = running_sum.step(1.0, second.everything().ask(QUERY))  # a refusal leaves no trace
    assert kept.sensitivity.running_sum.step == 1


@pytest.mark.parametrize(
    ("decay", "weight"),
    [
        (0.0, 1.0),
        (-0.5, 1.0),
        (1.01, 1.0),
        (math.nan, 1.0),
        (math.inf, 1.0),
        (0.5, 0.0),
        (0.5, -1.0),
        (0.5, math.inf),
        (0.5, math.nan),
    ],
)
def test_decays_and_weights_out_of_range(decay, weight):
    running_sum, view = RunningSum(), blocks()[0].everything()
    with pytest.raises(ValueError, match="decay"):
        running_sum.step(decay, view.ask(CountRecords()), weight)
