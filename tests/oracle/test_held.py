"""Questions that the library did not write are held to the radius and the norm that they state."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt import Budget, Problem, Refused
from privopt.facts import Facts
from privopt.geometry.norms import lp_norm
from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian, Run
from privopt.mechanisms.maps import Scale
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.gradient_difference import GradientDifference
from privopt.oracle.mapped import RowMap
from privopt.oracle.sealed import KEY
from privopt.privacy import Log
from privopt.solvers import catalogue
from privopt.solvers.solver import Plan

X = np.random.default_rng(0).uniform(-1, 1, (12, 3))
Y = np.where(np.arange(12) % 2, 1.0, -1.0)
NORMS = ("l1", "l2", "l3.5", "linf", "coordinates", "range")
RELATIONS = ("zero_out", "replace_one", "add_remove")
RADIUS = 0.5


@dataclass(frozen=True)
class Foreign:
    """States a radius, and does something else."""

    how: str
    norm: str = "l2"

    def radius(self):
        return np.full(3, RADIUS) if self.norm == "coordinates" else RADIUS

    def diameter(self):
        return 0.1 * self.radius()  # which no two balls have

    def total(self, rows, at):
        ones = np.zeros(rows.dimension)
        sums = rows.weighted_sum(ones, lambda z, y, size: z * 0.0 + 1.0)[:3]
        if self.how == "long":
            return 1e6 * sums
        if self.how == "endless":
            return sums / 0.0
        if self.how == "counts empty records":
            return sums * 0.0 + rows.count
        if self.how == "couples records":
            return sums * rows.count**3
        if self.how == "edits the point":
            at += 7.0
            return sums + at
        if self.how == "fails" and sums[0] > 0.5:
            raise ValueError(f"what is {sums[0]}?")
        if self.how == "shapes":
            return sums[: 2 if sums[0] > 0.5 else 3]
        return sums


HOWS = ("honest", "long", "endless", "counts empty records", "couples records", "edits the point")


def _rows(form):
    forms = {"dense": X, "sparse": sp.csr_array(X), "tensor": torch.tensor(X), "mapped": X}
    return forms[form]


def _sum(query, data, labels, relation, resolution=None, form="dense"):
    oracle = Oracle.over(
        data, labels, neighbouring=relation, bounds=RowBounds(2.0), source=SeededSource(0)
    )
    if form == "mapped":
        oracle = oracle.mapped(RowMap(np.ones(3), np.zeros(3), 2.0))
    sealed = oracle.everything().ask(query, np.zeros(3), resolution=resolution)
    step = 1.0 if sealed.sensitivity.grid is None else sealed.sensitivity.grid.step
    return np.asarray(sealed.open(KEY), float) * step, sealed.sensitivity


def _length(change, norm):
    if norm == "range":
        return change.max() - change.min()
    return lp_norm(change, np.inf if norm in ("linf", "coordinates") else float(norm[1:]))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("norm", [*NORMS, *(f"{norm} counted" for norm in NORMS[:4])])
@pytest.mark.parametrize("how", HOWS)
def test_no_record_moves_a_foreign_sum_beyond_what_is_declared(relation, norm, how):
    norm, _, counted = norm.partition(" ")
    resolution = 2.0**20 if counted else None
    query, twice = Foreign(how, norm), 2 if relation == "replace_one" else 1
    plain, sensitivity = _sum(query, X, Y, relation, resolution)
    assert np.max(sensitivity.radius) == twice * RADIUS
    for index in range(3):
        other, labels = X.copy(), Y.copy()
        if relation == "zero_out":
            other[index] = np.nan
        elif relation == "replace_one":
            other[index] *= -1
        else:
            other, labels = np.delete(X, index, 0), np.delete(Y, index)
        moved, _ = _sum(query, other, labels, relation, resolution)
        assert _length(moved - plain, norm) <= twice * RADIUS * (1 + 1e-9)


@pytest.mark.parametrize("form", ["dense", "sparse", "tensor"])
def test_an_honest_question_is_answered_as_it_was(form):
    class Gradient(ClippedGradient):
        __slots__ = ()

    for relation, resolution in itertools.product(RELATIONS, (None, 2.0**30)):
        found, wanted = (
            _sum(query, _rows(form), Y, relation, resolution, form)
            for query in (Gradient(Logistic(), 1.0), ClippedGradient(Logistic(), 1.0))
        )
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-7)
        assert found[1].norm == wanted[1].norm
        assert found[1].radius == wanted[1].radius


@pytest.mark.parametrize("how", ["fails", "shapes"])
@pytest.mark.parametrize("resolution", [None, 2.0**20])
def test_a_record_on_which_a_question_fails_answers_nothing(how, resolution):
    """A refusal would tell that this record is there."""
    found, _ = _sum(Foreign(how), X, Y, "zero_out", resolution)
    ones = X[:, 0] > 0.5
    wanted, _ = _sum(Foreign("honest"), X[~ones], Y[~ones], "zero_out", resolution)
    assert ones.any()
    np.testing.assert_array_equal(found, wanted)


def test_walks_and_paths_take_no_foreign_question():
    class Mine(CoordinateClippedGradient):
        __slots__ = ()

        def weigh(self, margins, labels, sizes):
            return 100.0 * labels

    bounds = RowBounds(2.0, entries=1.0)
    query = Mine(Logistic(), 1.0, bounds, 3)
    for data in (X, sp.csr_array(X)):
        view = Oracle.over(
            data, Y, neighbouring="zero_out", bounds=bounds, source=SeededSource(0)
        ).everything()
        with pytest.raises(Refused, match="Mine is not a question of the library's own"):
            view.coordinate_gradient(query, np.zeros(3))
    with pytest.raises(Refused, match="Mine is not a question of the library's own"):
        view.follow(query, np.zeros(3))
    # Nor does one that is hidden inside of ours.
    inside = GradientDifference(query, np.ones(3), 0.5, 1.0)
    with pytest.raises(Refused, match="not a question of the library's own"):
        view.coordinate_gradient(inside, np.zeros(3))


def test_a_foreign_map_never_sees_what_is_sealed():
    class Louder(Scale):
        __slots__ = ()

        def apply(self, payload):
            raise AssertionError("it saw the data")

    oracle = Oracle.over(
        X, Y, neighbouring="zero_out", bounds=RowBounds(2.0), source=SeededSource(0)
    )
    sealed = oracle.everything().ask(ClippedGradient(Logistic(), 1.0))
    with pytest.raises(Refused, match="Louder is not a map of the library's own"):
        sealed.through(Louder(1.0))
    assert sealed.through(Scale(2.0)).sensitivity.radius == 2.0


class Quoting(Gaussian):
    """Draws other noise, or refuses with the sum in its text."""

    __slots__ = ()

    def run(self, payload, sensitivity, source):
        if not np.any(payload):
            return payload
        raise Refused(f"the sum is {payload}")


def test_a_foreign_mechanism_is_named_and_says_nothing():
    source = SeededSource(0)
    oracle = Oracle.over(X, Y, neighbouring="zero_out", bounds=RowBounds(2.0), source=source)
    gate, sealed = Gate(source), oracle.everything().ask(ClippedGradient(Logistic(), 1.0))
    with pytest.raises(Refused) as caught:
        gate.release(Quoting(1.0), sealed)
    assert str(caught.value) == "Quoting failed; details are withheld, budget is spent."
    assert gate.foreign == ["Quoting"]
    budget = Budget(1.0, 1e-6)
    run = Run(budget, Log(), source, what="mine")
    run.pay(None)
    assert run.certify().assumptions == ()
    run._gate._foreign[Quoting] = True
    assert run.certify().assumptions == (
        "the mechanism Quoting draws the noise that it states: not proved",
    )


def test_a_foreign_solver_is_named():
    own, budget = catalogue()["noisy_gd"], Budget(1.0, 1e-6)
    facts = Facts(Problem(Logistic()), 100, 3, "zero_out")

    class Mine(type(own)):
        pass

    settings = own.settings(facts, budget)
    assert Plan(own, facts, budget, settings).assumptions == ()
    text = "the solver Mine and its questions remember no record: not proved"
    assert Plan(Mine(), facts, budget, settings).assumptions == (text,)
