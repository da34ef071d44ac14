"""Simulated errors: from public facts alone, close to measured ones, kept and never trusted."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from privopt import Budget, Problem, cache, plan, solve
from privopt.facts import Facts
from privopt.geometry import Box, L2Ball
from privopt.losses import Absolute, Hinge, Logistic, Quantile
from privopt.planner.simulate import Simulation, made_data, shape
from privopt.solvers import catalogue

BALL = Problem(Absolute(), L2Ball(5.0))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "cache"))
    cache.forget()
    yield tmp_path / "cache"
    cache.forget()


def test_the_shape_keeps_the_ratio_of_signal_and_noise():
    facts, budget = Facts(BALL, 100_000, 20, "zero_out"), Budget(0.5)
    small, rich = shape(facts, budget)
    assert small.n < 2000
    assert small.p == 23
    assert small.n * rich.epsilon == pytest.approx(2.0**16)  # 50,000, rounded
    tiny = Facts(BALL, 50, 3, "zero_out")
    assert shape(tiny, Budget(1.0, 1e-6))[0] == tiny


@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Logistic()])
def test_made_rows_keep_the_declared_bounds(loss):
    facts = Facts(Problem(loss, L2Ball(1.0), data_norm=3.0, intercept=1.0), 500, 6, "zero_out")
    X, y = made_data(facts)
    assert X.shape == (500, 5)
    assert np.linalg.norm(X, axis=1).max() <= 3.0 * (1 + 1e-12)
    assert set(np.unique(y)) == {-1.0, 1.0} if loss.classification else np.abs(y).max() <= 1


def test_a_kinked_loss_is_not_given_to_the_smallest_bound():
    """exponential_sampling has the smallest bound, and measures a hundred times worse."""
    budget = Budget(1.0, 1e-6)
    found = plan(BALL, n=1000, p=3, budget=budget)
    assert min(found.plans, key=lambda p: p.settings.bound).name == "exponential_sampling"
    assert found.best.name in ("noisy_sgd", "noisy_gd")
    assert found.best.predicted is not None
    facts = replace(found.facts, n=1000)
    X, y = made_data(facts)
    errors = {
        name: np.mean(
            [
                np.abs(X @ solve(BALL, X, y, budget=budget, solver=name, random_state=s).theta - y)
                for s in range(2)
            ]
        )
        for name in (found.best.name, "exponential_sampling")
    }
    assert errors[found.best.name] < errors["exponential_sampling"]


def test_the_same_facts_give_the_same_errors(own_cache):
    """With and without a cache: nothing but public facts goes in."""
    problem, budget = Problem(Quantile(0.5), Box(-1.0, 1.0)), Budget(1.0)
    solver = catalogue()["exponential_sampling"]
    facts = Facts(problem, 300, 1, "zero_out")
    first = Simulation(facts, budget).looseness(solver)
    assert list(own_cache.glob("looseness-*.json"))
    cache.forget()
    assert Simulation(facts, budget).looseness(solver) == first
    for path in own_cache.iterdir():
        path.unlink()
    cache.forget()
    assert Simulation(facts, budget).looseness(solver) == first


def test_large_or_unproved_problems_are_not_simulated():
    facts = Facts(Problem(Logistic(), L2Ball(1.0)), 500, 1000, "zero_out")
    solver = catalogue()["noisy_gd"]
    assert Simulation(facts, Budget(1.0, 1e-6)).looseness(solver) is None
    assert plan(BALL, n=500, p=1000, budget=Budget(1.0, 1e-6)).best.predicted is None


# ---------------------------------------------------------------- the cache
def positive(value):
    return value > 0


def remembered(key, value, valid=positive):
    made = []

    def make():
        made.append(1)
        return value

    return cache.remembered("test", key, make, valid), len(made)


def test_memory_and_disk(own_cache):
    assert remembered("a", 1.5) == (1.5, 1)
    assert remembered("a", 2.5) == (1.5, 0)
    cache.forget()
    assert remembered("a", 2.5) == (1.5, 0)
    assert remembered("b", 2.5) == (2.5, 1)
    assert not list(own_cache.glob(".*"))


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", '{"key": "x", "value": 1}', "\x00\xff", "[" * 100_000]
)
def test_a_broken_file_is_made_anew(own_cache, text):
    remembered("a", 1.5)
    (path,) = own_cache.iterdir()
    path.write_text(text, encoding="latin-1")
    cache.forget()
    assert remembered("a", 2.5) == (2.5, 1)
    cache.forget()
    assert remembered("a", 3.5) == (2.5, 0)


@pytest.mark.parametrize("value", [-1.0, "text", None, math.nan, [1]])
def test_an_implausible_value_is_made_anew(own_cache, value):
    remembered("a", 1.5)
    (path,) = own_cache.iterdir()
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "value": value}))
    cache.forget()
    assert remembered("a", 2.5) == (2.5, 1)


def test_no_place_to_write(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("PRIVOPT_CACHE", str(blocked / "cache"))
    assert remembered("c", 1.5) == (1.5, 1)
    assert remembered("c", 2.5) == (1.5, 0)
    monkeypatch.setenv("PRIVOPT_CACHE", "off")
    assert cache.folder() is None
    cache.forget()
    assert remembered("c", 2.5) == (2.5, 1)


def test_where_files_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("PRIVOPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "privopt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "privopt"


def test_writers_that_meet_leave_one_whole_file(own_cache, monkeypatch):
    """A second process finishes between the writing and the renaming of the first."""
    real = os.replace

    def meets(aside, path):
        real(aside, path)
        monkeypatch.setattr(os, "replace", real)
        cache.forget()
        path.unlink()
        assert remembered("a", 2.5) == (2.5, 1)

    monkeypatch.setattr(os, "replace", meets)
    assert remembered("a", 1.5)[0] == 1.5
    cache.forget()
    assert remembered("a", 9.0) == (2.5, 0)
