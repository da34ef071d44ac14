"""Planted bugs in the privacy of users, and the checks that notice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, cast

import numpy as np
from scipy.stats import binom, norm

import privopt.privacy.certificate as certificate_module
from privopt import LogisticRegression, OnlineLinearRegression
from privopt.audit import record, replay, user_pairs
from privopt.estimators import linear_model, online_run
from privopt.estimators.users import Owned
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.planner import groups as planner_groups
from privopt.privacy import Accountant, Sampling, groups
from privopt.privacy.events import ROOT
from privopt.privacy.kinds import (
    Concentrated,
    GaussianKind,
    Kind,
    ObjectiveGaussian,
)
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.sampled_groups import Mixture, SampledGroupGaussian
from privopt.privacy.spend import Spend, Step

from .mutant import Mutant

CAP, DELTA = 3, 1e-5
run_module = import_module("privopt.mechanisms.run")


def fit(X: np.ndarray, y: np.ndarray, **how: Any) -> LogisticRegression:
    """A fit for users; the last column says who owns a row."""
    return LogisticRegression(
        1.0, DELTA, classes=[-1, 1], rows_per_user=CAP, random_state=0, **how
    ).fit(X[:, :-1], np.sign(y), user_ids=X[:, -1].astype(int))


def replayed_users() -> str | None:
    """Values move by at most the cap's worth when one user changes."""

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        model = fit(X, y, neighbouring="replace_one", solver="objective_perturbation")
        return model.coef_, model.privacy_.to_json()

    for pair in user_pairs("replace_one")[:4]:
        found = replay(run, pair, group=CAP)
        if found:
            return found[0]
    return None


def noise_for_users() -> str | None:
    """What the events of one record add up to is a third of what the budget buys."""
    pair = user_pairs("zero_out")[0]
    _, tape = record(lambda X, y: fit(X, y, solver="noisy_gd"), pair.first)
    mu = np.sqrt(sum(kind.mu**2 for one in tape.releases for kind in one.event.kinds))
    allowed = gaussian_mu(1.0, DELTA)
    return None if CAP * mu <= allowed * (1 + 1e-9) else f"a user loses mu={CAP * mu:.3g}"


def stream_of_users() -> str | None:
    """The noise of a stream for users, from the events of its records."""
    stream = OnlineLinearRegression(
        1.0, DELTA, n_steps=2, rows_per_user=CAP, random_state=0, noise="independent"
    )
    X, y = np.eye(6, 3), np.zeros(6)
    _, tape = record(lambda X, y: stream.partial_fit(X, y, user_ids=[0, 0, 0, 0, 1, 1]), (X, y))
    (release,) = tape.releases
    moved = float(np.abs(release.payload).max())  # rows of the first user are cut to three
    mu = CAP * release.event.kinds[0].mu
    if mu > gaussian_mu(1.0, DELTA) * (1 + 1e-9):
        return f"a user loses mu={mu:.3g} in a step"
    return None if moved > 0 else "nothing is summed"


def kinds_of_users() -> str | None:
    """k equal rows are one record with k times the loss."""
    found = groups.of_group(ObjectiveGaussian(0.1, 0.02, True), CAP)
    assert isinstance(found, ObjectiveGaussian)
    if found.mu < CAP * 0.1 or found.log_determinant < CAP * 0.02 or found.dimension < CAP:
        return "objective perturbation: less than the loss of equal or orthogonal rows"
    rho = groups.of_group(Concentrated(0.02), CAP)
    assert isinstance(rho, Concentrated)
    return None if rho.rho >= CAP**2 * 0.02 else "zCDP: less than that of a shifted Gaussian"


def batches_of_users() -> str | None:
    """Against the density of k equal rows, each in a batch by its own coin."""
    rate, mu, epsilon = 0.2, 0.5, 0.3
    sampled = Counter({Step(Sampling(rate), (GaussianKind(mu, mu),)): 1})
    log = groups.grouped(Spend({ROOT: sampled}), CAP)
    found = Accountant().delta(log, epsilon)
    x, counts = np.linspace(-12, 15, 20_001), np.arange(CAP + 1)
    mixed = norm.pdf(x[:, None], mu * counts) @ binom.pmf(counts, CAP, rate)
    lost = np.maximum(mixed - np.exp(epsilon) * norm.pdf(x), 0.0).sum() * (x[1] - x[0])
    return None if found >= lost * (1 - 1e-3) else f"delta {found:.3g} where {lost:.3g} is lost"


def users_in_one_part() -> str | None:
    """However rows are cut, nobody is in two parts."""
    owners = np.repeat(np.arange(12.0), CAP)
    cuts: tuple[Callable[[Oracle], list[Oracle]], ...] = (
        lambda oracle: oracle.parts([5, 5, 11, 15]),
        lambda oracle: oracle.shuffled().parts([5, 5, 11, 15]),
        lambda oracle: oracle.blocks(5),
        lambda oracle: oracle.cyclic(4),
    )
    for cut in cuts:
        oracle = Oracle.over(
            owners[:, None], owners, neighbouring="zero_out", bounds=RowBounds(20.0),
            source=SeededSource(0), classification=False, owned=np.full(12, CAP),
        )  # fmt: skip
        seen = [
            user for part in cut(oracle) for user in set(cast(Any, part._rows)._X[:, 0].tolist())
        ]
        if len(seen) > len(set(seen)):
            return "a user is in two parts"
    return None


def _everyone(ids: Any, rows: int, cap: int | None) -> Owned:
    return Owned(np.arange(rows), np.array([rows]))


def _one_more(ids: Any, rows: int, cap: int) -> Owned | None:
    return _COUNTING(ids, rows, cap + 1)


def _linear_rho(kind: Kind, size: int) -> Kind:
    return Concentrated(size * kind.rho) if isinstance(kind, Concentrated) else _OF(kind, size)


def _one_line(kind: Kind, size: int) -> Kind:
    found = _OF(kind, size)
    if isinstance(found, ObjectiveGaussian):
        return ObjectiveGaussian(found.mu, found.log_determinant, True, 1)
    return found


def _by_root(kind: Kind, size: int) -> Kind:
    if isinstance(kind, GaussianKind):
        return GaussianKind(size**0.5 * kind.mu, size**0.5 * kind.single)
    return _OF(kind, size)


def _ungrouped(spend: Any, size: int, **how: Any) -> Any:
    return spend


def _without_the_largest(self: Mixture, x: np.ndarray) -> Any:
    self.log_weights[-1] = -np.inf
    return _MASS(self, x)


def _for_one_row(self: Any, *arguments: Any) -> float:
    return _MULTIPLIER(self, *arguments) / self.rows


_MULTIPLIER = online_run.Recipe.multiplier
_OF, _COUNTING, _MASS = groups.of_group, linear_model.rows_that_count, Mixture.mass


def users() -> Iterator[Mutant]:
    for name, counting in {"all rows count": _everyone, "one row more counts": _one_more}.items():
        yield Mutant(
            f"users: {name}",
            ((linear_model, "rows_that_count", counting),),
            replayed_users,
            "replay",
        )
    yield Mutant(
        "users: a stream's noise is for one row",
        (
            (online_run.Recipe, "multiplier", _for_one_row),
            (run_module, "grouped", _ungrouped),
            (certificate_module, "grouped", _ungrouped),
        ),
        stream_of_users,
        "charge",
    )
    everywhere = (planner_groups, run_module, certificate_module)
    yield Mutant(
        "users: charged as one record",
        tuple((module, "grouped", _ungrouped) for module in everywhere),
        noise_for_users,
        "charge",
    )
    yield Mutant(
        "users: Gaussian losses of a group add as squares",
        ((groups, "of_group", _by_root),),
        noise_for_users,
        "charge",
    )
    single = partial(SampledGroupGaussian, size=1)
    for name, wrong in {
        "one row of a user in a batch": lambda rate, mu, size: single(rate, mu / size),
        "all rows of a user move as one": lambda rate, mu, size: SampledGroupGaussian(
            rate, mu / size, size
        ),
    }.items():
        yield Mutant(
            f"users: {name}",
            ((groups, "SampledGroupGaussian", wrong),),
            batches_of_users,
            "accountant",
        )
    yield Mutant(
        "users: coins of rows count as one coin of the largest",
        ((Mixture, "mass", _without_the_largest),),
        batches_of_users,
        "accountant",
    )
    unknown = property(lambda self: None, lambda self, borders: None)
    yield Mutant(
        "users: parts are cut through users",
        ((Oracle, "_borders", unknown),),
        users_in_one_part,
        "log",
    )
    for name, wrong in {
        "zCDP of a group grows linearly": _linear_rho,
        "rows of a user lie on one line": _one_line,
    }.items():
        yield Mutant(f"users: {name}", ((groups, "of_group", wrong),), kinds_of_users, "accountant")
