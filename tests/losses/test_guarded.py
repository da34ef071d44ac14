"""A foreign loss is held to what it states, and stands in the certificate by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from privopt import Ledger, LogisticRegression, PrivateERM, PrivateSearchCV, Problem, solve
from privopt.estimators.scoring import each
from privopt.geometry import L2Ball
from privopt.losses import (
    Absolute,
    Guarded,
    Huber,
    Logistic,
    Smoothed,
    Tabulated,
    bounded_slope,
    met,
)
from privopt.oracle import RowBounds
from privopt.oracle.dense import DenseRows
from privopt.oracle.objective import Objective
from privopt.privacy import Budget, Refused

Z, Y = np.linspace(-3, 3, 13), np.ones(13)


class Apart(Logistic):
    """A regression loss that reads margin and label apart: no table holds it."""

    classification = False
    one_signed = False

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return np.tanh(z) * np.cos(y)


@dataclass(frozen=True)
class Steep(Apart):
    """States a hundredth of its slope."""

    @property
    def lipschitz(self) -> float:
        return 0.01

    def lipschitz_in(self, norm, data_bound):  # type: ignore[no-untyped-def]
        return 1e-9


class Mine(Logistic):
    pass


class Broken(Apart):
    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return np.where(z > 0, np.nan, np.inf) + 0 * y + np.where(np.abs(z) < 1, z * np.cos(y), 0)


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


class Coupled(Apart):
    """Every slope reads all records, where there are several."""

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return np.tanh(z) * np.cos(y) + (np.sum(z) - np.mean(z)) * (len(z) > 1)


class MyAbsolute(Absolute):
    pass


class MyBall(L2Ball):
    pass


def test_slopes_stay_within_the_stated_constant() -> None:
    loss = met(Steep())
    assert type(loss) is Guarded
    assert loss.lipschitz_in("l2", 1.0) == 0.01
    assert np.abs(loss.slope(Z, Y)).max() == 0.01
    assert np.abs(bounded_slope(Steep(), Z, Y)).max() == 0.01
    assert np.abs(met(Broken()).slope(Z, Y)).max() <= 1.0
    assert loss.slope(Z[:, None] * np.ones(4), Y[:, None]).shape == (13, 4)


@pytest.mark.parametrize("loss", [Wide(), Complex()])
def test_one_real_number_for_each_record(loss: Logistic) -> None:
    with pytest.raises(Refused):
        met(loss)


class Failing(Apart):
    """Fails on one record, and says another number of things of a second."""

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        if 2.9 < z.max() < 3.1:
            raise ValueError(f"what is {z}?")
        return super().slope(z, y) if z.max() > -2.9 else np.ones((2, 2))


def test_a_record_on_which_a_loss_fails_counts_as_zero() -> None:
    """A refusal would tell that this record is there."""
    loss, honest = met(Failing()), met(Apart())
    assert type(loss) is Guarded
    found, wanted = loss.slope(Z, Y), honest.slope(Z, Y)
    np.testing.assert_array_equal(found[1:-1], wanted[1:-1])
    assert found[0] == found[-1] == 0.0


def test_no_loss_edits_what_it_is_given() -> None:
    with pytest.raises(ValueError, match="read-only"):
        met(Editing())


def test_no_record_sees_another() -> None:
    loss, alone = met(Coupled()), met(Apart())
    assert type(loss) is type(alone) is Guarded
    np.testing.assert_array_equal(loss.slope(Z, Y), alone.slope(Z, Y))
    points = Z[:, None] + np.arange(3.0)
    for j in range(3):
        np.testing.assert_array_equal(
            alone.slope(points, Y[:, None])[:, j], alone.slope(points[:, j], Y)
        )


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
        assert type(met(loss)) is Tabulated
    patched = Logistic()
    object.__setattr__(patched, "slope", lambda z, y: np.where(z > 0, 1.0, -1.0))
    with pytest.warns(UserWarning, match="breaks a constant"):
        assert type(met(patched)) is Tabulated
    Fake = type("Logistic", (Mine,), {"__module__": "privopt.losses.logistic"})
    assert type(met(Fake())) is Tabulated
    Posing = type("Posing", (Tabulated,), {})
    assert type(met(Posing(Mine()))) is Tabulated


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


SCORERS = {
    "fifty": lambda y, p: np.ones((len(y), 50)),
    "a mean": lambda y, p: np.mean(y == p),
    "a mean of each": lambda y, p: np.full(len(y), np.mean(y == p)),
    "a list of two": lambda y, p: [np.ones(len(y)), np.ones(len(y))],
    "complex": lambda y, p: (y == p) * 1j,
    "text": lambda y, p: np.full(len(y), "good"),
    "one more": lambda y, p: np.ones(len(y) + 1),
    "its place": lambda y, p: np.arange(len(y)) / len(y),
    "the others": lambda y, p: (y == p) / len(y),
    "ranks": lambda y, p: np.argsort(np.argsort(p)) / 10.0,
    "an error": lambda y, p: 1 / 0,
}
X = np.sin(np.arange(400.0))[:, None]
CLASSES = np.arange(400) % 2


def searched(scoring, **options):  # type: ignore[no-untyped-def]
    model, grid = LogisticRegression(classes=[0, 1]), {"data_norm": [1.0, 2.0]}
    return PrivateSearchCV(model, grid, epsilon=2.0, scoring=scoring, **options)


@pytest.mark.parametrize("name", SCORERS)
def test_a_scorer_of_several_numbers_is_refused_before_anything_is_paid(tmp_path, name) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db", 5.0)
    with pytest.raises(Refused, match="scoring"):
        searched(SCORERS[name], ledger=ledger).fit(X, CLASSES)
    assert ledger.dataset().left[0] == 5.0
    assert not ledger.dataset().counts.get("burned")


def test_a_scorer_sees_one_record_at_a_time() -> None:
    """Refused scorers are those that show it; one that waits for real records sees one as well."""
    lengths: set[int] = set()

    def waiting(y, p):  # type: ignore[no-untyped-def]
        lengths.add(len(y))
        return np.full(len(y), np.mean(y == p)) if len(y) > 8 else (y == p).astype(float)

    search = searched(waiting, random_state=1).fit(X, CLASSES)
    assert max(lengths) == 8  # made-up records
    named = [text for text in search.privacy_.assumptions if "scorer" in text]
    assert len(named) == 1
    assert "waiting" in named[0]


@pytest.mark.parametrize("value", [np.nan, 1e300, -7.0, "text", None, [1.0, 2.0]])
def test_a_score_is_a_number_in_the_unit_interval(value) -> None:  # type: ignore[no-untyped-def]
    y = np.arange(6)

    def scoring(y, p):  # type: ignore[no-untyped-def]
        if y[0] == 3:
            return np.array([value]) if not isinstance(value, list) else np.array(value)
        if y[0] == 4:
            raise ValueError("HIV-positive")
        return np.ones(1)

    found = each(scoring, y, y)
    assert found[4] == 0.0
    assert found[3] == (1.0 if value == 1e300 else 0.0)
    assert found.sum() == 4.0 + found[3]


def test_a_search_carries_what_its_fits_assume() -> None:
    problem = Problem(Mine(), MyBall(1.0))
    search = PrivateSearchCV(
        PrivateERM(problem, classes=[0, 1]), {"solver": ["auto"]}, epsilon=3.0, random_state=1
    ).fit(X, CLASSES)
    text = " ".join(search.privacy_.assumptions)
    assert "the loss Mine" in text
    assert "the domain MyBall" in text
