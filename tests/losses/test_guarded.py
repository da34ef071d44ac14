"""A foreign loss is held to what it states, and stands in the certificate by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from privopt import LogisticRegression, PrivateERM, PrivateSearchCV, Problem, solve
from privopt.geometry import L2Ball
from privopt.losses import Absolute, Guarded, Huber, Logistic, Smoothed, bounded_slope, met
from privopt.oracle import RowBounds
from privopt.oracle.dense import DenseRows
from privopt.oracle.objective import Objective
from privopt.privacy import Budget, Refused

Z, Y = np.linspace(-3, 3, 13), np.ones(13)


@dataclass(frozen=True)
class Steep(Logistic):
    """States a hundredth of its slope."""

    @property
    def lipschitz(self) -> float:
        return 0.01

    def lipschitz_in(self, norm, data_bound):  # type: ignore[no-untyped-def]
        return 1e-9


class Mine(Logistic):
    pass


class Broken(Logistic):
    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return np.where(z > 0, np.nan, np.inf)


class Editing(Logistic):
    def slope(self, z, y):  # type: ignore[no-untyped-def]
        z *= 2
        return z


class Wide(Logistic):
    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return np.ones((len(z), 2))


class Complex(Logistic):
    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return 1j * z


class MyAbsolute(Absolute):
    pass


class MyBall(L2Ball):
    pass


def test_slopes_stay_within_the_stated_constant() -> None:
    loss = met(Steep())
    assert loss.lipschitz_in("l2", 1.0) == 0.01
    assert np.abs(loss.slope(Z, Y)).max() == 0.01
    assert np.abs(bounded_slope(Steep(), Z, Y)).max() == 0.01
    assert np.isin(met(Broken()).slope(Z, Y), (0.0, 1.0)).all()
    assert loss.slope(Z[:, None] * np.ones(4), Y[:, None]).shape == (13, 4)


@pytest.mark.parametrize("loss", [Wide(), Complex()])
def test_one_real_number_for_each_record(loss: Logistic) -> None:
    with pytest.raises(Refused):
        met(loss).slope(Z, Y)


def test_no_loss_edits_what_it_is_given() -> None:
    z = Z.copy()
    with pytest.raises(ValueError, match="read-only"):
        met(Editing()).slope(z, Y)
    assert (z == Z).all()


def test_the_gradient_of_the_whole_loss_is_clipped() -> None:
    rows = DenseRows.build(np.ones((3, 1)), np.ones(3), RowBounds(1.0))
    for loss in (Steep(), met(Steep())):
        objective = Objective(rows, loss)
        assert np.abs(objective.gradient(np.zeros(1))).max() <= 0.03 * (1 + 1e-12)
        assert np.abs(objective.gradients(np.zeros((2, 1)))).max() <= 0.03 * (1 + 1e-12)


def test_only_the_exact_own_type_is_own() -> None:
    assert met(Huber(0.5)) == Huber(0.5)
    assert type(met(Huber(0.5))) is Huber
    for loss in (MyAbsolute(), Smoothed(MyAbsolute(), 0.1)):
        assert type(met(loss)) is Guarded
    patched = Logistic()
    object.__setattr__(patched, "slope", lambda z, y: 100 * z)
    assert type(met(patched)) is Guarded
    Fake = type("Logistic", (Steep,), {"__module__": "privopt.losses.logistic"})
    assert type(met(Fake())) is Guarded


def test_the_certificate_names_what_is_foreign() -> None:
    X, y = np.sin(np.arange(400.0))[:, None], np.where(np.arange(400) % 2, 1.0, -1.0)
    problem = Problem(Mine(), MyBall(1.0))
    certificates = [
        solve(problem, X, y, budget=Budget(1.0, 0.0), random_state=0).certificate,
        PrivateERM(problem, random_state=0, classes=[-1, 1]).fit(X, y).privacy_,
    ]
    for certificate in certificates:
        text = " ".join(certificate.assumptions)
        assert "the loss Mine" in text
        assert "the domain MyBall" in text
    own = solve(Problem(Logistic(), L2Ball(1.0)), X, y, budget=Budget(1.0, 0.0), random_state=0)
    assert not any("not proved" in text for text in own.certificate.assumptions)


def test_a_scorer_gives_one_number_for_each_record() -> None:
    X, y = np.sin(np.arange(400.0))[:, None], np.arange(400) % 2
    search = PrivateSearchCV(
        LogisticRegression(classes=[0, 1]),
        {"data_norm": [1.0, 2.0]},
        epsilon=2.0,
        scoring=lambda y, p: np.ones((len(y), 50)),
        random_state=1,
    )
    with pytest.raises(Refused):
        search.fit(X, y)
