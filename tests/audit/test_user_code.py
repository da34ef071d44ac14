"""Audits of what a user brings, and the replay of everything the library has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from privopt import Budget
from privopt.audit.entries import ENTRIES
from privopt.audit.fits import estimators, fitting, readable, takes
from privopt.audit.neighbours import hostile_pairs
from privopt.audit.sweep import places, replay_place
from privopt.audit.user_code import attack_user_code, loaded, replay_user_code, trial_of
from privopt.cli import app
from privopt.oracle import queries
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import catalogue

MODULE = '''
import numpy as np
from privopt.losses import Logistic
from privopt.mechanisms import HOOK, Gate, Gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds


def count(X, y, source):
    return np.sum(np.isfinite(X[:, 0])) + source.noise.laplace(scale=1.0)


def loud(X, y):
    return np.sum(np.isfinite(X[:, 0]))


def step(X, y, source):
    """One noisy gradient through a gate."""
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)
    gate = Gate(source, hook=HOOK.get())
    asked = oracle.everything().ask(ClippedGradient(Logistic(), 1.0))
    return gate.release(Gaussian(5.0), asked)


def careless(X, y, source):
    return step(X, y, source), float(np.nansum(y))


number = 7
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_to_audit.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "mine_to_audit:"


@pytest.mark.statistical
def test_a_function_is_attacked_on_every_pair(mine):
    """False alarm 1e-6; noise for epsilon 1 claimed as 0.3 is refuted."""
    found = attack_user_code(mine + "count", Budget(1.0), runs=2000, confidence=1 - 1e-6)
    assert len(found) == 3
    assert not any(one.refuted for one in found.values())
    assert max(one.lower_bound for one in found.values()) > 0.5
    found = attack_user_code(mine + "count", Budget(0.3), runs=2000, confidence=1 - 1e-6)
    assert all(one.refuted for one in found.values())


@pytest.mark.statistical
def test_an_estimator_brings_its_certificate(mine):
    found = attack_user_code("privopt:Ridge", Budget(4.0), runs=40, confidence=1 - 1e-6)
    for one in found.values():
        assert one.certified == pytest.approx(4.0)
        assert not one.refuted


def test_replay_of_a_function(mine):
    budget = Budget(1.0, 1e-5)
    assert replay_user_code(mine + "count", budget) is None
    assert replay_user_code(mine + "step", budget) == []
    found = replay_user_code(mine + "careless", budget)
    assert found
    assert any("output depends" in text for text in found)


def test_what_cannot_be_audited_is_refused(mine):
    for name in ("mine_to_audit:nothing", "no_such_module:f"):
        with pytest.raises(ValueError, match="there is no"):
            loaded(name)
    with pytest.raises(ValueError, match="must be a function"):
        trial_of(loaded(mine + "number"), Budget(1.0), 20)
    with pytest.raises(ValueError, match="has no fit"):
        trial_of(Budget, Budget(1.0), 20)


@pytest.mark.slow
def test_the_command(mine):
    def shown(*arguments):
        return CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "120"})

    found = shown(mine + "count", "--epsilon", "1", "--runs", "500")
    assert found.exit_code == 0, found.output
    assert "nothing to replay" in found.output
    assert found.output.count("stands") + found.output.count("no power") == 3
    found = shown(mine + "loud", "--epsilon", "1", "--runs", "500")
    assert found.exit_code == 1
    assert "REFUTED" in found.output
    found = shown(mine + "careless", "--epsilon", "1", "--delta", "1e-5", "--replay")
    assert found.exit_code == 1
    assert "output depends" in found.output
    found = shown("--replay", "noisy_gd", "--workers", "1")
    assert found.exit_code == 0, found.output
    assert "0 findings" in found.output
    assert shown("--replay", "magic").exit_code == 2


# ---------------------------------------------------------------- everything
@pytest.mark.slow
def test_everything_is_replayed():
    """Every solver and estimator, under every relation that it takes."""
    listed = places()
    assert {place.name for place in listed} == {*catalogue(), *estimators(), *ENTRIES}
    assert {place.neighbouring for place in listed} == set(NEIGHBOURING)
    for place in places("noisy_sgd"):
        assert replay_place(place) == (len(hostile_pairs(place.neighbouring)), [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ridge", "OnlineLogisticRegression", "grid_walk"])
def test_an_estimator_and_a_solver_for_tiny_problems(name):
    pairs, findings = replay_place(places(name)[0])
    assert findings == []
    assert pairs >= (1 if name == "grid_walk" else 20)


def test_the_replay_of_everything_is_not_blind(monkeypatch):
    def unclipped(self, margins, labels, sizes):
        return 3 * self.loss.slope(margins, labels)

    monkeypatch.setattr(queries.ClippedGradient, "_weigh", unclipped)
    solver = catalogue()["noisy_gd"]
    rough = replace(solver.specimen, short={"n_iter": 4, "discrete_noise": False})
    monkeypatch.setattr(type(solver), "specimen", rough)
    place = places("noisy_gd")[1]
    assert any("moved" in text for text in replay_place(place)[1])


@pytest.mark.slow
def test_estimators_declare_what_is_public():
    budget, found = Budget(1.0, 1e-5, "replace_one"), estimators()
    pairs = hostile_pairs("replace_one")
    assert {"LogisticRegression", "Ridge", "Lasso"} <= set(found)
    assert takes(found["Lasso"], budget, pairs)
    assert not takes(found["Lasso"], Budget(1.0), hostile_pairs("zero_out"))  # no empty records
    assert not takes(found["OnlineLogisticRegression"], Budget(1.0), hostile_pairs("zero_out"))
    assert not all(readable(found["Lasso"], pair) for pair in pairs)
    X, y = np.eye(30, 2), np.where(np.arange(30) % 2, 1.0, np.nan)
    model = fitting(found["LogisticRegression"], budget, 30)(X, y, 0)
    assert list(model.classes_) == [-1, 1]
