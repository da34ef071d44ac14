"""Foreign constraint sets are tried on made-up points; those of the library all pass."""

from __future__ import annotations

import numpy as np
import pytest

from privopt import Budget, Problem, plan
from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Polytope, Simplex, WholeSpace
from privopt.geometry.probed import check_domain
from privopt.losses import Logistic

CUBE = np.array([[i, j, k] for i in (-1.0, 1.0) for j in (-1.0, 1.0) for k in (-1.0, 1.0)])


@pytest.mark.parametrize(
    "domain",
    [
        L2Ball(1e-3),
        L2Ball(7.0),
        L1Ball(2.0),
        LpBall(1.5, 2.0),
        LpBall(4.0, 0.5),
        Box(-1.0, 3.0),
        Simplex(4.0),
        Polytope(CUBE),
        WholeSpace(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("p", [1, 3, 40])
def test_the_library_s_own_sets_pass(domain, p):
    if domain.dimension in (None, p):
        check_domain(domain, p)


class Stretching(L2Ball):
    """Reflects what lies outside: twice as far."""

    def project(self, x):
        inside = super().project(x)
        return 2 * inside - np.asarray(x) if np.linalg.norm(x) < 1.5 else inside


class Wide(L2Ball):
    def project(self, x):
        return L2Ball(100 * self.bound).project(x)

    @property
    def bound(self):
        return L2Ball.radius(self, "l2", 3)


class Narrow(L2Ball):
    """States a hundredth of its radius."""

    def radius(self, norm, p):
        return super().radius(norm, p) / 100


class Small(L2Ball):
    def diameter(self, norm, p):
        return super().diameter(norm, p) / 100


class Shell(L2Ball):
    """The sphere, which is not convex."""

    def project(self, x):
        x = np.asarray(x, dtype=float)
        return x / np.linalg.norm(x) * super().radius("l2", len(x))


class Halfway(L2Ball):
    """Not idempotent."""

    def project(self, x):
        return (np.asarray(x) + super().project(x)) / 2


class Drifting(L2Ball):
    calls = 0

    def project(self, x):
        Drifting.calls += 1
        return super().project(x) * (1 - 1e-3 * (Drifting.calls % 2))


class Editing(L2Ball):
    def project(self, x):
        x *= 0.5
        return super().project(x)


class Shapeless(L2Ball):
    def project(self, x):
        return super().project(x)[None, :]


class Lost(L2Ball):
    def project(self, x):
        return super().project(x) * np.nan


class Outside(L2Ball):
    def linear_minimiser(self, g):
        return 3 * super().linear_minimiser(g)


class Wrong(L2Ball):
    def linear_minimiser(self, g):
        return -super().linear_minimiser(g)


class Rounded(Box):
    """Cuts to whole numbers: a lattice is not convex."""

    def project(self, x):
        return np.rint(super().project(x))


LIARS = [
    kind(1.0)
    for kind in (
        *(Stretching, Wide, Narrow, Small, Shell, Halfway),
        *(Drifting, Editing, Shapeless, Lost, Outside, Wrong),
    )
] + [Rounded(-3.0, 3.0)]


@pytest.mark.parametrize("domain", LIARS, ids=lambda one: type(one).__name__)
def test_a_set_that_is_not_what_it_states_is_refused_before_anything(domain):
    with pytest.raises(ValueError, match=type(domain).__name__):
        plan(Problem(Logistic(), domain), n=1000, p=3, budget=Budget(1.0, 1e-6))


class MyBall(L2Ball):
    pass


def test_an_honest_foreign_set_is_taken():
    plan(Problem(Logistic(), MyBall(2.0)), n=1000, p=3, budget=Budget(1.0, 1e-6))
