"""Bugs that real libraries have shipped, planted here; each must be caught by name.

The buggy run goes through the same door as an honest one: an oracle, a gate, the context's hook.
"""

from __future__ import annotations

import numpy as np
import pytest

from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.losses import Hinge, Logistic
from privopt.mechanisms import HOOK, Gate, Gaussian
from privopt.noise import SeededSource, gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.oracle.dense import DenseRows
from privopt.privacy import Refused

BOUNDS = RowBounds(1.0)
QUERY = ClippedGradient(Logistic(), 1.0)
STEPS = 5


def descend(
    X,
    y,
    *,
    relation="zero_out",
    query=QUERY,
    mechanism=None,
    n=60,
    steps=STEPS,
    gate_class=Gate,
    bounds=BOUNDS,
):
    """An honest little gradient descent; the tests below replace one part of it."""
    source = SeededSource(0)
    oracle = Oracle.over(X, y, neighbouring=relation, bounds=bounds, source=source)
    gate = gate_class(source, hook=HOOK.get())
    view = oracle.everything()
    mechanism = mechanism or Gaussian(2.0)
    theta = np.zeros(oracle.dimension)
    for _ in range(steps):
        theta = theta - gate.release(mechanism, view.ask(query, theta)) / n
    return theta, len(gate.log), [event.kinds for event in gate.log]


def findings(run, relation="zero_out"):
    return {
        finding
        for pair in hostile_pairs(relation)
        for finding in replay(lambda X, y: run(X, y, relation), pair)
    }


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
def test_the_honest_run_is_clean(relation):
    assert findings(lambda X, y, r: descend(X, y, relation=r), relation) == set()


# ---------------------------------------------------------------- sensitivity
# The library's own question is changed, since one of somebody else's would be held to its radius.
def test_missing_clip_is_caught(monkeypatch):
    def unclipped(self, margins, labels, sizes):
        return 3 * self.loss.slope(margins, labels)

    monkeypatch.setattr(ClippedGradient, "_weigh", unclipped)
    found = findings(lambda X, y, r: descend(X, y, relation=r))
    assert any("moved" in text for text in found)


def test_clip_that_ignores_the_row_norm_is_caught(monkeypatch):
    """As if every row had norm one, whatever its norm is."""
    weigh = ClippedGradient._weigh
    monkeypatch.setattr(
        ClippedGradient,
        "_weigh",
        lambda self, margins, labels, sizes: weigh(self, margins, labels, np.ones_like(sizes)),
    )
    query = ClippedGradient(Hinge(), 1.0)
    found = findings(
        lambda X, y, r: descend(X, y, relation=r, query=query, bounds=RowBounds(100.0))
    )
    assert any("moved" in text for text in found)


def test_l_for_two_l_under_replace_one_is_caught(monkeypatch):
    """L where replacing a record moves the sum by 2L."""
    monkeypatch.setattr(ClippedGradient, "diameter", lambda self: self.clip_norm)
    query = ClippedGradient(Hinge(), 1.0)

    def run(X, y, r):
        return descend(X, y, relation=r, query=query)

    assert any("moved" in text for text in findings(run, "replace_one"))
    assert findings(run, "zero_out") == set()


# ---------------------------------------------------------------- data in public parameters
def test_n_used_as_public_under_add_remove_is_caught():
    def run(X, y, r):
        return descend(X, y, relation=r, n=len(X))

    assert any("output depends" in text for text in findings(run, "add_remove"))
    assert findings(run, "zero_out") == set()  # there the number of rows is public


def test_noise_from_n_is_caught():
    def run(X, y, r):
        return descend(X, y, relation=r, mechanism=Gaussian(2.0 + 1 / max(len(X), 1)))

    assert any("noise depends" in text for text in findings(run, "add_remove"))


def test_bounds_read_from_data_are_caught():
    def run(X, y, r):
        norms = np.linalg.norm(np.where(np.isfinite(X), X, 0.0) / 1e150, axis=1) * 1e150
        query = ClippedGradient(Logistic(), float(np.clip(norms.max(initial=1.0), 1.0, 1e6)))
        return descend(X, y, relation=r, query=query)

    assert any("declared sensitivity depends" in text for text in findings(run))


def test_steps_chosen_from_data_are_caught():
    def run(X, y, r):
        return descend(X, y, relation=r, steps=1 + round(np.sqrt(len(X))))

    found = findings(run, "add_remove")
    assert any("more releases" in text or "fewer releases" in text for text in found)


def test_early_stopping_on_the_loss_is_caught():
    def run(X, y, r):
        mean = np.nanmean(np.where(np.isfinite(y), y, 0.0)) if len(y) else 0.0
        return descend(X, y, relation=r, steps=3 if mean > 0 else 4)

    assert any("releases" in text for text in findings(run, "add_remove"))


# ---------------------------------------------------------------- data in side outputs
def test_loss_value_returned_is_caught():
    def run(X, y, r):
        theta, *rest = descend(X, y, relation=r)
        clean = np.nan_to_num(np.clip(X, -1, 1))
        return theta, float(np.logaddexp(0, -(clean @ theta)).mean()), rest

    assert any("output depends" in text for text in findings(run))


def test_printing_and_warning_about_data_is_caught():
    def shout(X, y, r):
        print("rows:", np.nansum(np.clip(X, -1, 1)))
        return descend(X, y, relation=r)

    def warn(X, y, r):
        import warnings

        if not np.isfinite(X).all():
            warnings.warn("some rows hold NaN", stacklevel=1)
        return descend(X, y, relation=r)

    assert any("printed text depends" in text for text in findings(shout))
    assert any("warnings depends" in text for text in findings(warn))


def test_raising_on_data_is_caught():
    def run(X, y, r):
        if not np.isfinite(X).all():
            raise ValueError("NaN found")
        return descend(X, y, relation=r)

    assert any("error depends" in text for text in findings(run))


def test_nan_row_propagated_is_caught(monkeypatch):
    """Without the cleaning of rows a NaN reaches the sum, and the replay sees it."""

    def careless(cls, X, y, bounds, classification=True):
        y = np.where(y > 0, 1.0, -1.0)
        return cls(X, y, None, None, np.linalg.norm(X, axis=1), bounds)

    def propagating(self, rows, at):
        return rows.weighted_sum(at, self._weigh)

    monkeypatch.setattr(DenseRows, "build", classmethod(careless))
    monkeypatch.setattr(ClippedGradient, "total", propagating)
    with np.errstate(all="ignore"):
        found = findings(lambda X, y, r: descend(X, y, relation=r))
    assert any("moved nan" in text for text in found)


# ---------------------------------------------------------------- the log
class Forgetful(Gate):
    """Charges every second release only."""

    __slots__ = ("calls",)

    def release(self, mechanism, sealed):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 2:
            return super().release(mechanism, sealed)
        twin = Gate(self._source, hook=self._hook)
        return twin.release(mechanism, sealed)


def test_two_releases_charged_once_is_caught():
    """The tape counts what left; the log must count the same."""
    (_, logged, _), tape = record(lambda X, y: descend(X, y, gate_class=Forgetful), _data())
    assert len(tape.releases) == STEPS
    assert logged < len(tape.releases)
    (_, logged, _), tape = record(descend, _data())
    assert logged == len(tape.releases)


def test_a_release_that_was_not_declared_is_refused():
    """A solver that releases more on data than on no data is stopped before the value is opened."""
    source = SeededSource(0)
    X, y = _data()
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=BOUNDS, source=source)
    dry = Gate(source)
    empty = Oracle.empty(4, neighbouring="zero_out", bounds=BOUNDS, source=source)
    dry.release(Gaussian(2.0), empty.everything().ask(QUERY))
    gate = Gate(source, declared=dry.log)
    view = oracle.everything()
    gate.release(Gaussian(2.0), view.ask(QUERY))
    with pytest.raises(Refused, match="differs from what the dry run declared"):
        gate.release(Gaussian(2.0), view.ask(QUERY))
    assert len(gate.log) == 1


# ---------------------------------------------------------------- the noise
class HalfNoise(Gaussian):
    """Declares its multiplier, draws half of it."""

    __slots__ = ()

    def run(self, payload, sensitivity, source):
        return payload + gaussian(source, self.multiplier * sensitivity.radius / 2, payload.shape)


class PublicNoise(Gaussian):
    """Draws the same noise at every step."""

    __slots__ = ()

    def run(self, payload, sensitivity, source):
        return payload + 0.0 * gaussian(source, 1.0, payload.shape)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [HalfNoise(2.0), PublicNoise(2.0)])
def test_halved_noise_declared_as_full_is_caught(mechanism):
    """The honest run passes at 1e-6, the mutant is far beyond it."""
    tapes = [record(lambda X, y: descend(X, y, steps=60), _data())[1]]
    assert noise_p_value(tapes) > 1e-6
    tapes = [record(lambda X, y: descend(X, y, steps=60, mechanism=mechanism), _data())[1]]
    assert noise_p_value(tapes) < 1e-9


def _data():
    pair = hostile_pairs("zero_out")[0]
    return pair.first
