"""Correlated noise through the gate: positions, what is refused, what is charged, what is kept."""

import numpy as np
import pytest

from privopt.losses import Logistic
from privopt.mechanisms import CorrelatedGaussian, Gate, Gaussian, same_event
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.privacy import ROOT, Refused, spend
from privopt.privacy.events import Sampling
from privopt.privacy.factorizations import BLT, Banded, Honaker, Independent, Tree
from privopt.privacy.participation import Participation

STEPS = 7
FACTORIZATIONS = [Independent(STEPS), Tree(STEPS), Tree(STEPS, "nodes"), Honaker(STEPS)]


@pytest.fixture
def oracle():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(70, 3)), rng.choice([-1.0, 1.0], 70)
    return Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0))


def run(oracle, gate, mechanism, steps=STEPS, clip=1.0):
    query = ClippedGradient(Logistic(), clip)
    parts = oracle.blocks(STEPS)
    return [gate.release(mechanism, parts[t].everything().ask(query)) for t in range(steps)]


@pytest.mark.parametrize("factorization", FACTORIZATIONS)
def test_a_single_pass_charges_each_cell_its_own_column(oracle, factorization):
    gate = Gate(SeededSource(1))
    run(oracle, gate, CorrelatedGaussian(factorization, 2.0))
    found = {cell: charge for cell, charge in spend(gate.log).cells.items()}
    assert set(found) == {(t,) for t in range(STEPS)}
    for (t,), charge in found.items():
        ((step, count),) = charge.items()
        assert count == 1
        expected = np.sqrt(factorization.losses_squared([(t,)])[0]) / 2.0
        assert step.kinds[0].mu == pytest.approx(expected, rel=1e-12)


def test_a_record_in_all_steps_pays_the_whole_gram(oracle):
    gate, factorization = Gate(SeededSource(1)), Tree(STEPS)
    mechanism = CorrelatedGaussian(factorization, 1.0)
    query = ClippedGradient(Logistic(), 1.0)
    for _ in range(STEPS):
        gate.release(mechanism, oracle.everything().ask(query))
    encoder = factorization.encode(np.eye(STEPS))
    (((step, _),),) = [charge.items() for charge in spend(gate.log).cells.values()]
    assert step.kinds[0].mu ** 2 == pytest.approx((encoder.sum(axis=1) ** 2).sum())


def test_a_declared_rule_is_charged_to_everybody(oracle):
    gate, rule = Gate(SeededSource(1)), Participation.epochs(3, 2)
    mechanism = CorrelatedGaussian(Tree(STEPS), 1.0, rule)
    query = ClippedGradient(Logistic(), 1.0)
    for steps in range(1, STEPS + 1):
        gate.release(mechanism, oracle.everything().ask(query))
        ((cell, charge),) = spend(gate.log).cells.items()
        ((step, _),) = charge.items()
        assert cell == ROOT
        expected = Tree(STEPS).sensitivity_squared(rule, steps)
        assert step.kinds[0].mu ** 2 == pytest.approx(expected)


def test_two_streams_have_their_own_noise_and_their_own_bill(oracle):
    gate = Gate(SeededSource(1))
    one, two = (CorrelatedGaussian(Tree(STEPS), 1.0) for _ in range(2))
    assert one == two
    first, second = run(oracle, gate, one), run(oracle, gate, two)
    assert not np.allclose(first[0], second[0])
    assert all(charge.total() == 2 for charge in spend(gate.log).cells.values())


def test_a_step_past_the_horizon_is_refused_and_not_logged(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(3), 1.0)
    with pytest.raises(Refused, match="declared for 3 steps"):
        run(oracle, gate, mechanism)
    assert len(gate.log) == 3


def test_a_changed_clip_norm_is_refused(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0)
    run(oracle, gate, mechanism, steps=1)
    with pytest.raises(Refused, match="clip norm"):
        run(oracle, gate, mechanism, steps=1, clip=2.0)
    assert len(gate.log) == 1


def test_sampled_batches_are_refused_for_trees(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0)
    with pytest.raises(Refused, match="banded"):
        gate.release(mechanism, oracle.poisson(0.1).ask(ClippedGradient(Logistic(), 1.0)))
    assert len(gate.log) == 0


def test_overlapping_parts_are_not_accounted(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0)
    query = ClippedGradient(Logistic(), 1.0)
    gate.release(mechanism, oracle.everything().ask(query))
    gate.release(mechanism, oracle.blocks(2)[0].everything().ask(query))
    with pytest.raises(Refused, match="disjoint parts"):
        spend(gate.log)


def test_independent_noise_on_batches_is_charged_as_noisy_sgd(oracle):
    query, logs = ClippedGradient(Logistic(), 1.0), []
    for mechanism in (CorrelatedGaussian(Independent(4), 1.5), Gaussian(1.5)):
        gate = Gate(SeededSource(1))
        for _ in range(4):
            gate.release(mechanism, oracle.poisson(0.3).ask(query))
        logs.append(spend(gate.log))
    assert logs[0] == logs[1]


def test_without_noise_the_answer_is_the_data(oracle):
    mechanism = CorrelatedGaussian(Honaker(STEPS), 1.0)
    got = run(oracle, Gate(SilentSource()), mechanism)
    query = ClippedGradient(Logistic(), 1.0)
    plain = [
        Gate(SilentSource()).release(Gaussian(1.0), part.everything().ask(query))
        for part in oracle.blocks(STEPS)
    ]
    assert np.array_equal(got, plain)


def test_dry_run_and_run_have_the_same_events(oracle):
    empty = Oracle.empty(3, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource())
    dry, wet, other = Gate(SilentSource()), Gate(SeededSource(3)), Gate(SilentSource())
    run(empty, dry, CorrelatedGaussian(Honaker(STEPS), 1.0))
    run(oracle, wet, CorrelatedGaussian(Honaker(STEPS), 1.0))
    assert all(same_event(*pair) for pair in zip(dry.log, wet.log, strict=True))
    run(empty, other, CorrelatedGaussian(Tree(STEPS), 1.0))
    assert not any(same_event(*pair) for pair in zip(dry.log, other.log, strict=True))


@pytest.mark.parametrize("factorization", FACTORIZATIONS)
def test_a_stream_goes_on_from_its_kept_state(oracle, factorization):
    whole = run(oracle, Gate(SeededSource(5)), CorrelatedGaussian(factorization, 1.0))
    source = SeededSource(5)
    first, one = Gate(source), CorrelatedGaussian(factorization, 1.0)
    begun = run(oracle, first, one, steps=4)
    second, two = Gate(source), CorrelatedGaussian(factorization, 1.0)
    second.resume(two, first.noise_state(one))
    query = ClippedGradient(Logistic(), 1.0)
    parts = oracle.blocks(STEPS)
    rest = [second.release(two, parts[t].everything().ask(query)) for t in range(4, STEPS)]
    assert np.allclose(begun + rest, whole, atol=1e-12)
    # The log of the second half knows what the first half spent.
    assert set(spend(second.log).cells) == {(t,) for t in range(STEPS)}


def test_a_state_from_elsewhere_is_refused(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0)
    run(oracle, gate, mechanism, steps=3)
    state = gate.noise_state(mechanism)
    cut = {**state, "noise": {**state["noise"], "vectors": state["noise"]["vectors"][:1]}}
    for bad in ({}, cut, {**state, "cells": state["cells"][:1]}):
        with pytest.raises(Refused, match="not the state"):
            Gate(SeededSource(1)).resume(CorrelatedGaussian(Tree(STEPS), 1.0), bad)
    for other in (Honaker(STEPS), Tree(STEPS + 1)):
        with pytest.raises(Refused, match="not the state"):
            Gate(SeededSource(1)).resume(CorrelatedGaussian(other, 1.0), state)
    with pytest.raises(Refused, match="not the state"):
        Gate(SeededSource(1)).resume(CorrelatedGaussian(Tree(STEPS), 2.0), state)
    with pytest.raises(Refused, match="has begun"):
        gate.resume(mechanism, state)


@pytest.mark.parametrize("rule", [Participation.separated(2, 3), Participation.epochs(2, 3)])
def test_parts_that_break_the_declared_rule_are_refused(oracle, rule):
    query, parts = ClippedGradient(Logistic(), 1.0), oracle.blocks(3)

    def taken(order):
        gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0, rule)
        for part in order:
            gate.release(mechanism, parts[part].everything().ask(query))
        return len(gate.log)

    assert taken([0, 1, 2, 0, 1, 2]) == 6
    for order in ([0, 1, 0], [0, 1, 2, 0, 1, 2, 0], [1, 1]):
        with pytest.raises(Refused, match="more often than was declared"):
            taken(order)


def test_a_ruled_stream_goes_on_from_its_kept_state(oracle):
    rule, source = Participation.single_pass(), SeededSource(5)
    query = ClippedGradient(Logistic(), 1.0)
    first, one = Gate(source), CorrelatedGaussian(Honaker(STEPS), 1.0, rule)
    for _ in range(3):
        first.release(one, oracle.everything().ask(query))
    state = first.noise_state(one)
    assert state["cells"] is None
    second, two = Gate(source), CorrelatedGaussian(Honaker(STEPS), 1.0, rule)
    second.resume(two, state)
    second.release(two, oracle.everything().ask(query))
    ((step, _),) = spend(second.log).cells[ROOT].items()
    assert step.kinds[0].mu ** 2 == pytest.approx(Honaker(STEPS).sensitivity_squared(rule, 4))


def test_the_mechanism_alone_releases_nothing():
    with pytest.raises(Refused, match="through a gate"):
        CorrelatedGaussian(Tree(3), 1.0).run(np.zeros(2), None, SeededSource(0))  # type: ignore[arg-type]


# ---------------------------------------------------------------- groups that take turns
BANDED = Banded.optimised(STEPS, 3)


def turns(oracle, gate, mechanism, groups, rate, steps=STEPS):
    query, parts = ClippedGradient(Logistic(), 1.0), oracle.cyclic(groups)
    for t in range(steps):
        gate.release(mechanism, parts[t % groups].poisson(rate).ask(query))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
def test_banded_noise_on_groups_is_charged_as_sampled_steps(relation):
    oracle = Oracle.empty(3, neighbouring=relation, bounds=RowBounds(1.0), source=SilentSource())
    gate = Gate(SilentSource())
    turns(oracle, gate, CorrelatedGaussian(BANDED, 2.0), 3, 0.25)
    factor = 2 if relation == "replace_one" else 1
    # Seven steps, three groups: the first comes three times, the others twice.
    for cell, charge in spend(gate.log).cells.items():
        ((step, count),) = charge.items()
        assert count == (3 if cell == (0,) else 2)
        assert step.sampling == Sampling(0.25)
        assert step.kinds[0].mu == pytest.approx(1 / 2.0)
        assert step.kinds[0].single == pytest.approx(1 / (2.0 * factor))


@pytest.mark.parametrize(
    ("factorization", "groups", "words"),
    [
        (BANDED, 2, "after 3 steps"),
        (Tree(STEPS), 3, "banded noise"),
        (Honaker(STEPS), 7, "banded noise"),
        (BLT(STEPS, (0.5,), (0.3,)), 3, "banded noise"),
    ],
)
def test_other_noise_on_sampled_groups_is_refused(oracle, factorization, groups, words):
    gate = Gate(SeededSource(1))
    with pytest.raises(Refused, match=words):
        turns(oracle, gate, CorrelatedGaussian(factorization, 1.0), groups, 0.5)
    assert len(gate.log) <= groups


def test_a_stream_is_sampled_alike_or_not_at_all(oracle):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(BANDED, 1.0)
    parts, query = oracle.cyclic(3), ClippedGradient(Logistic(), 1.0)
    gate.release(mechanism, parts[0].poisson(0.5).ask(query))
    for view in (parts[1].poisson(0.25), parts[1].everything()):
        with pytest.raises(Refused, match="sampled alike"):
            gate.release(mechanism, view.ask(query))
    ruled = CorrelatedGaussian(BANDED, 1.0, Participation.single_pass())
    with pytest.raises(Refused, match="not by a rule"):
        gate.release(ruled, parts[0].poisson(0.5).ask(query))


def test_a_failed_step_ends_the_stream(oracle, monkeypatch):
    gate, mechanism = Gate(SeededSource(1)), CorrelatedGaussian(Tree(STEPS), 1.0)
    query = ClippedGradient(Logistic(), 1.0)

    def broken(self, draw):
        raise ValueError("half-written buffers")

    with monkeypatch.context() as patch:
        patch.setattr("privopt.privacy.factorizations.tree.Stack.next", broken)
        with pytest.raises(Refused, match="details are withheld"):
            gate.release(mechanism, oracle.everything().ask(query))
    with pytest.raises(Refused, match="start a new stream"):
        gate.release(mechanism, oracle.everything().ask(query))
    assert len(gate.log) == 1
