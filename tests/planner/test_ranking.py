"""The ranking: order, ties, references, refusals, and that no data is needed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
import pytest

from privopt import Budget, Problem, Refused, plan
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Absolute, Hinge, Huber, Logistic, Squared
from privopt.planner import choose, rank
from privopt.planner.opinions import MEASURED, REFERENCE, Opinion
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Prediction, Settings, Solver, catalogue

CHOOSE = import_module("privopt.planner.choose")
PROBLEM = Problem(Logistic(), L2Ball(5.0))
FACTS = Facts(PROBLEM, 100, 3, "zero_out")


@dataclass(frozen=True)
class Marked(Settings):
    noise: str = "gaussian"
    noise_multiplier: float = 1.0


class Pretender(Solver):
    """A solver that is nothing but its bound, its passes and its refusal."""

    summary = "pretends"

    def __init__(self, name, bound, passes, refusal=None, opinion=None):
        self.name, self.bound, self.passes = name, bound, passes
        self.refusal, self.opinion = refusal, opinion or Opinion()

    def refuse(self, facts, budget):
        return self.refusal

    def settings(self, facts, budget, **choices):
        return Marked(bound=self.bound, passes=self.passes)

    def run(self, oracle, gate, problem, settings, tick=None):
        raise AssertionError("a plan must not run anything")


@dataclass(frozen=True)
class Told:
    """An expectation that nobody has to compute."""

    error: float

    @property
    def seen(self):
        return Prediction(self.error, self.error, self.error, self.error, 0.01)

    def __call__(self):
        return self.seen


@pytest.fixture(autouse=True)
def bounds_alone(monkeypatch):
    """Simulations have tests of their own."""
    monkeypatch.setattr(CHOOSE.Simulation, "compared", lambda self, plans: {})
    monkeypatch.setattr(CHOOSE, "Expectation", lambda *of: None)


def ranked(monkeypatch, *solvers, predicted=None):
    """A ranking by bounds, or by given errors, without any simulation."""
    known = {name: Told(error) for name, error in (predicted or {}).items()}
    monkeypatch.setattr(CHOOSE.Simulation, "compared", lambda self, plans: known)
    monkeypatch.setattr(CHOOSE, "Expectation", lambda facts, budget, one: known.get(one.name))
    monkeypatch.setattr(CHOOSE, "catalogue", lambda: {solver.name: solver for solver in solvers})
    opinions = {solver.name: solver.opinion for solver in solvers}
    monkeypatch.setattr("privopt.planner.opinions.OPINIONS", opinions)
    CHOOSE._ranked.cache_clear()
    return rank(FACTS, Budget(1.0, 1e-6))


def names(ranking):
    return [plan.name for plan in ranking.plans]


def test_the_smallest_bound_is_first(monkeypatch):
    found = ranked(
        monkeypatch, Pretender("a", 3.0, 1), Pretender("b", 1.0, 900), Pretender("c", 2.0, 1)
    )
    assert names(found) == ["b", "c", "a"]
    assert found.best.name == "b"


@pytest.mark.parametrize(("bound", "first"), [(1.24, "quick"), (1.25, "quick"), (1.26, "slow")])
def test_a_tie_goes_to_fewer_passes(monkeypatch, bound, first):
    """Within a factor 1.25 of the least bound, and not beyond it."""
    assert CHOOSE.TIE == 1.25
    quick, slow = Pretender("quick", bound, 5), Pretender("slow", 1.0, 50)
    assert names(ranked(monkeypatch, slow, quick))[0] == first
    assert names(ranked(monkeypatch, quick, slow))[0] == first


def test_ties_count_from_the_least_bound(monkeypatch):
    """1.2 and 1.44 are close to each other, but only the first is close to the best."""
    found = ranked(
        monkeypatch, Pretender("a", 1.44, 1), Pretender("b", 1.2, 2), Pretender("c", 1.0, 3)
    )
    assert names(found) == ["b", "c", "a"]


def test_reference_solvers_come_last(monkeypatch):
    """However good their bound; and they do not decide who is tied."""
    reference = Pretender("ref", 0.001, 1, opinion=REFERENCE)
    found = ranked(monkeypatch, reference, Pretender("a", 10.0, 9), Pretender("b", 11.0, 3))
    assert names(found) == ["b", "a", "ref"]
    assert names(ranked(monkeypatch, reference)) == ["ref"]


def test_simulated_errors_go_before_bounds(monkeypatch):
    """The smallest error first, be it that of a reference; what was not simulated stays behind."""
    solvers = (
        Pretender("a", 1.0, 9),
        Pretender("b", 100.0, 1),
        Pretender("m", 30.0, 1, None, MEASURED),
        Pretender("r", 0.1, 1, None, REFERENCE),
    )
    found = ranked(monkeypatch, *solvers, predicted={"a": 1.0, "b": 0.1, "m": 0.02})
    assert names(found) == ["m", "b", "a", "r"]
    assert [plan.predicted for plan in found.plans] == [0.02, 0.1, 1.0, None]
    text = str(found)
    assert "0.1 (<= 100)" in text
    assert "5 times the error" in text
    assert "reference: measured worse" in text
    assert "made-up data of the same shape" in text
    assert found.frontier([1.0]).source == "simulation"
    assert names(ranked(monkeypatch, *solvers)) == ["a", "b", "r", "m"]


def test_nothing_is_predicted_above_its_bound(monkeypatch):
    found = ranked(monkeypatch, Pretender("a", 1.0, 1), predicted={"a": 7.0})
    assert found.best.predicted == 1.0


def test_simulated_ties_go_to_fewer_passes(monkeypatch):
    quick, slow = Pretender("quick", 1.0, 5), Pretender("slow", 1.0, 50)
    for error, first in ((1.09, "quick"), (1.11, "slow")):
        found = ranked(monkeypatch, slow, quick, predicted={"quick": error, "slow": 1.0})
        assert names(found)[0] == first


def test_refusals_are_kept_and_explained(monkeypatch):
    found = ranked(
        monkeypatch, Pretender("a", 1.0, 1, "a needs rain."), Pretender("b", 2.0, 1, "b needs sun.")
    )
    assert found.refused == {"a": "a needs rain.", "b": "b needs sun."}
    with pytest.raises(Refused, match=r"no solver applies: a needs rain\. b needs sun\."):
        _ = found.best
    assert "a needs rain." in str(found)


def test_no_solver_is_lost():
    """Every solver of the catalogue is either ranked or refused with a sentence."""
    for loss in (Logistic(), Hinge(), Huber(1.0), Absolute(), Squared()):
        for relation in NEIGHBOURING:
            for delta in (0.0, 1e-6):
                found = plan(
                    Problem(loss, L2Ball(5.0)), n=500, p=4, budget=Budget(1.0, delta, relation)
                )
                assert sorted([*names(found), *found.refused]) == sorted(catalogue())
                assert all(s.startswith(n) and s.endswith(".") for n, s in found.refused.items())
                assert all(plan.settings.bound > 0 for plan in found.plans)


def test_smooth_problems_get_objective_perturbation():
    found = plan(PROBLEM, n=10_000, p=20, budget=Budget(1.0, 1e-6))
    assert found.best.name == "objective_perturbation"
    kinked = plan(Problem(Hinge(), L2Ball(5.0)), n=10_000, p=20, budget=Budget(1.0, 1e-6))
    assert "objective_perturbation" in names(kinked)  # a contender, with its kink rounded off
    steep = plan(Problem(Squared(), L2Ball(5.0)), n=10_000, p=20, budget=Budget(1.0, 1e-6))
    assert "Squared is not" in steep.refused["objective_perturbation"]


def test_a_plan_needs_no_data_and_no_luck():
    """The same facts give the same plan; there is no argument through which data could come."""
    assert set(inspect.signature(plan).parameters) == {"problem", "n", "p", "budget", "repeats"}
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other = (plan(PROBLEM, n=700, p=30, budget=Budget(0.3, 1e-7)) for _ in range(2))
    assert [p.settings for p in one.plans] == [p.settings for p in other.plans]
    assert str(one) == str(other)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_the_intercept_counts_as_a_parameter():
    problem = Problem(Logistic(), L2Ball(5.0), intercept=0.5)
    assert plan(problem, n=100, p=3, budget=Budget(1.0)).facts.p == 4
    assert plan(PROBLEM, n=100, p=3, budget=Budget(1.0)).facts.p == 3


def test_the_relation_of_the_budget_is_planned_for():
    one, twice = (
        plan(PROBLEM, n=1000, p=3, budget=Budget(1.0, 0.0, relation)).best.settings
        for relation in ("zero_out", "replace_one")
    )
    assert twice.bound == pytest.approx(2 * one.bound, rel=0.15)
    several = plan(PROBLEM, n=1000, p=3, budget=Budget(1.0), repeats=3)
    assert several.facts.repeats == 3
    assert several.best.settings.bound > 2 * one.bound


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0, "p": 3}, "n must be a positive number of records, got 0"),
        ({"n": 10, "p": 0}, "at least one feature or an intercept"),
        ({"n": 10, "p": 3, "repeats": 0}, "repeats must be at least 1, got 0"),
    ],
)
def test_impossible_sizes(arguments, words):
    with pytest.raises(ValueError, match=words):
        plan(PROBLEM, budget=Budget(1.0), **arguments)


def test_a_domain_of_another_dimension():
    problem = Problem(Logistic(), L2Ball(1.0, centre=[0.0, 0.0]))
    with pytest.raises(ValueError, match="lies in dimension 2; it was used in dimension 5"):
        plan(problem, n=10, p=5, budget=Budget(1.0))


# ---------------------------------------------------------------- one solver by name
@pytest.mark.parametrize("name", sorted(catalogue()))
def test_choose_by_name(name):
    budget = Budget(1.0, 1e-6)
    if catalogue()[name].refuse(FACTS, budget) is not None:
        pytest.skip(f"{name} refuses this problem")
    chosen = choose(FACTS, budget, name)
    assert chosen.name == name
    assert chosen.settings in [p.settings for p in rank(FACTS, budget).plans]


def test_choose_passes_settings_on():
    assert choose(FACTS, Budget(1.0, 1e-6), "noisy_gd", n_iter=17).settings.n_iter == 17
    with pytest.raises(ValueError, match='only for a named solver, not for "auto"'):
        choose(FACTS, Budget(1.0, 1e-6), n_iter=17)
    with pytest.raises(ValueError, match="unknown solver 'newton'; choose from auto, "):
        choose(FACTS, Budget(1.0), "newton")
    with pytest.raises(Refused, match="Squared is not"):
        choose(Facts(Problem(Squared()), 10, 2, "zero_out"), Budget(1.0), "objective_perturbation")


# ---------------------------------------------------------------- the text
def test_the_text_says_what_was_asked_and_answered():
    found = plan(PROBLEM, n=1234, p=7, budget=Budget(0.5, 1e-6, "replace_one"), repeats=2)
    text = str(found)
    for word in ("Logistic", "n=1234", "p=7", "epsilon=0.5", "delta=1e-06", "replace_one"):
        assert word in text
    assert "2 models" in text
    assert "predicted excess risk" in text
    for ranked_plan in found.plans:
        assert ranked_plan.name in text
        assert f"<= {ranked_plan.settings.bound:.3g}" in text
        assert ranked_plan.solver.summary in text
    positions = [text.index(f"\n{name} ") for name in names(found)]
    assert positions == sorted(positions)


def test_the_text_marks_references(monkeypatch):
    found = ranked(
        monkeypatch, Pretender("old", 1.0, 1, opinion=REFERENCE), Pretender("new", 1.0, 1)
    )
    old, new = (next(x for x in str(found).splitlines() if x.startswith(n)) for n in ("old", "new"))
    assert "(reference)" in old
    assert "(reference)" not in new


def test_the_text_says_what_delta_would_buy():
    pure = str(plan(PROBLEM, n=5_000, p=200, budget=Budget(1.0)))
    assert "With delta=1e-06 instead of 0 the bound would be" in pure
    relaxed = plan(PROBLEM, n=5_000, p=200, budget=Budget(1.0, 1e-6)).best.settings.bound
    gain = plan(PROBLEM, n=5_000, p=200, budget=Budget(1.0)).best.settings.bound / relaxed
    assert f"{gain:.1f} times smaller" in pure
    assert "A positive delta would not improve the bound here." in str(
        plan(PROBLEM, n=5_000, p=2, budget=Budget(1.0))
    )
    relaxed_text = str(plan(PROBLEM, n=50, p=2, budget=Budget(1.0, 1e-6)))
    assert "delta" not in relaxed_text.split("\n", 1)[1]


def test_the_delta_it_talks_about_is_well_below_one_over_n():
    text = str(plan(PROBLEM, n=10**7, p=200, budget=Budget(0.001)))
    assert "With delta=1e-09 instead of 0" in text


def test_a_plan_is_made_once_for_the_same_facts_of_ones_own(monkeypatch):
    """A caller's own loss may change between two calls: its plan is made anew."""
    asked = []

    class Counts(Pretender):
        def settings(self, facts, budget, **choices):
            asked.append(facts)
            return super().settings(facts, budget, **choices)

    class Mine(Logistic):
        pass

    ranked(monkeypatch, Counts("a", 1.0, 1))
    found = rank(FACTS, Budget(1.0, 1e-6))
    assert len(asked) == 1
    found.refused["a"] = "changed by the caller"
    assert rank(FACTS, Budget(1.0, 1e-6)).refused == {}
    foreign = replace(FACTS, problem=replace(FACTS.problem, loss=Mine()))
    for seen in (2, 3):
        rank(foreign, Budget(1.0, 1e-6))
        assert len(asked) == seen
