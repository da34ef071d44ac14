"""Every public way into the library, as an audit runs it, with parameters drawn over their range.

``ENTRIES`` and ``releases_nothing`` name together everything in ``privopt.__all__``: a test refuses
a new public name that is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn import linear_model

import privopt
from privopt.audit.fits import LABELS, estimators, readable, settled
from privopt.audit.intervals import band, by_parts
from privopt.audit.neighbours import Pair, searched_pairs
from privopt.audit.trainings import (
    federated_rounds,
    refitted_blocks,
    searched_candidates,
    trained_model,
)
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.losses import Absolute, Huber, Logistic, SmoothedHinge, Squared, Welsch
from privopt.noise import Generator, SeededSource
from privopt.privacy import Budget, Neighbouring, Refused
from privopt.problem import Problem
from privopt.solvers import catalogue

Public = Callable[[np.ndarray, np.ndarray, Any], Any]
"""From records and a source (or a seed) to everything that a call makes public."""

N, P = 24, 3
EPSILONS = (0.1, 20.0)
RELATIONS: tuple[Neighbouring, ...] = ("zero_out", "replace_one", "add_remove")


@dataclass(frozen=True)
class Call:
    """One call with its parameters, and the pairs of neighbours it is tried on."""

    run: Public
    pairs: list[Pair]
    said: str
    """The parameters, in words."""


def _pairs(budget: Budget, classification: bool, bound: float) -> list[Pair]:
    return searched_pairs(budget.neighbouring, N, P, classification, bound)


def drawn_budget(generator: Generator, relation: Neighbouring, pure: bool) -> Budget:
    """Epsilon from 0.1 to 20, delta from 1e-9 to 1e-2, evenly in the logarithm."""
    low, high = np.log(EPSILONS)
    epsilon = float(np.exp(generator.uniform(low, high)))
    return Budget(epsilon, 0.0 if pure else float(10 ** generator.uniform(-9, -2)), relation)


def calls(name: str, relation: Neighbouring, seed: int) -> Iterator[Call]:
    """Calls of one public name under a relation, pure and not; what is refused for its public
    parameters is left out."""
    for pure in (True, False):
        named = f"{seed} {relation} {pure} {name}".encode()
        generator = SeededSource(int.from_bytes(named, "little")).noise
        budget = drawn_budget(generator, relation, pure)
        for make in ENTRIES[name]:
            try:
                call = make(budget, generator)
                # The first run shows whether public facts are refused.
                call.run(*harmless_beside(call.pairs[0]), SeededSource(0))
            except (Refused, ValueError):
                continue
            yield call


def harmless_beside(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    n = max(len(pair.first[0]), 2)
    y = pair.first[1]
    classes = bool(np.isin(y[np.isfinite(y)], LABELS).all())
    X = np.eye(n, pair.first[0].shape[1])
    return X, np.where(np.arange(n) % 2, 1.0, -1.0) if classes else np.linspace(-0.5, 0.5, n)


# ---------------------------------------------------------------- the ways in
PROBLEMS = (
    Problem(Logistic(), L2Ball(3.0), intercept=0.5),
    Problem(Huber(0.5), L2Ball(3.0), data_norm=2.0),
    Problem(Absolute(), Box(-1.0, 2.0)),
    Problem(Squared(residual_clip=1.0), L1Ball(2.0), column_bounds=1.0),
    Problem(Logistic(), Simplex(3.0), intercept=0.5, l2=0.1),
    Problem(SmoothedHinge(0.5), WholeSpace(), l2=0.01),
    Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Huber(0.2), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Squared(), L2Ball(1.5), intercept=0.5, l2=0.01),
    Problem(Welsch(0.7), L1Ball(1.0), column_bounds=1.0),
)


def _solve(budget: Budget, generator: Generator) -> Call:
    """Any solver on any problem that it takes."""
    ways = [
        (name, problem)
        for name in sorted(catalogue())
        for problem in PROBLEMS
        if name != "grid_walk"  # for tiny problems: the sweep of all solvers has one
        and catalogue()[name].refuse(
            Facts(problem, N, problem.dimension(P), budget.neighbouring), budget
        )
        is None
    ]
    solver, problem = ways[int(generator.integers(len(ways)))]

    def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        found = privopt.solve(
            problem, X, y, budget=budget, solver=solver, n_public=N, random_state=source
        )
        return found.theta, found.certificate.to_json(), found.plan.settings

    pairs = _pairs(budget, problem.loss.classification, problem.data_norm or 1.0)
    return Call(run, pairs, f"{solver}, {problem.loss!r}, {problem.domain!r}, {budget}")


def _quantile(
    method: Literal["loss", "rank"], low: float, high: float
) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        q = float(generator.uniform(low, high))
        if not budget.pure:
            raise Refused("a quantile is pure.")
        own: dict[str, Any] = {"widening": float(generator.choice([1e-4, 0.1]))}

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            value, certificate = privopt.quantile(
                y,
                q,
                bounds=(-1.0, 1.0),
                epsilon=budget.epsilon,
                neighbouring=budget.neighbouring,
                method=method,
                random_state=source,
                **(own if method == "rank" else {}),
            )
            return value, certificate.to_json()

        pairs = _pairs(budget, False, 1.0)
        return Call(run, pairs, f"quantile {method}, q={q:.3g}, {budget}")

    return make


def _select(budget: Budget, generator: Generator) -> Call:
    low = float(generator.uniform(-1.0, 0.0))
    if not budget.pure:
        raise Refused("a choice is pure.")

    def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        index, certificate = privopt.select(
            X,
            bounds=(low, low + 1.0),
            epsilon=budget.epsilon,
            neighbouring=budget.neighbouring,
            random_state=source,
        )
        return index, certificate.to_json()

    return Call(run, _pairs(budget, False, 1.0), f"select, from {low:.3g}, {budget}")


def _prefix_sums(noise: str) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        steps = int(generator.integers(2, N + 1))
        bound = float(10 ** generator.uniform(-2, 2))

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            items = np.array_split(X, steps)
            sums = privopt.prefix_sums(
                items,
                bound=bound,
                epsilon=budget.epsilon,
                delta=budget.delta,
                n_steps=steps,
                noise=noise,
                neighbouring=budget.neighbouring,
                random_state=source,
            )
            return list(sums), sums.certificate.to_json()

        pairs = _pairs(budget, False, bound)
        return Call(run, pairs, f"prefix_sums {noise}, {steps} steps, bound={bound:.3g}, {budget}")

    return make


def _estimator(
    name: str, options: Callable[[Generator], dict[str, Any]]
) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        estimator, own = estimators()[name], options(generator)
        pairs = [pair for pair in _pairs(budget, True, 1.0) if readable(estimator, pair)]
        if not pairs:
            raise Refused("an estimator that knows no empty records takes none of these pairs.")
        fit, _ = settled(estimator, budget, harmless_beside(pairs[0]), **own)

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            return fit(X, y, int(source.noise.integers(2**31)))

        return Call(run, pairs, f"{name}, {own}, {budget}")

    return make


def _nothing(generator: Generator) -> dict[str, Any]:
    return {}


def _bounds(generator: Generator) -> dict[str, Any]:
    return {"bounds": (-1.0, float(10 ** generator.uniform(-1, 1)))}


def _norm(generator: Generator) -> dict[str, Any]:
    return {"data_norm": float(10 ** generator.uniform(-2, 2))}


def _private_norm(generator: Generator) -> dict[str, Any]:
    return {"data_norm": "private"}


def _weights(generator: Generator) -> dict[str, Any]:
    return {"max_weight": float(10 ** generator.uniform(-1, 1)), **_bounds(generator)}


def _online(
    name: str, options: Callable[[Generator], dict[str, Any]] = _nothing
) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        size = int(generator.integers(3, N))
        steps = -(-N // size)
        known: dict[str, Any] = {"n_steps": steps, "batch_size": size, "nan_policy": "empty"}
        known |= options(generator)
        if name == "OnlineLogisticRegression":
            known["classes"] = list(LABELS)
        estimator = getattr(privopt, name)

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            broken = ~(np.isin(y, LABELS) if "classes" in known else np.isfinite(y))
            X = np.where(broken[:, None], np.nan, X)
            y = np.where(broken, 1.0, y)
            seed = int(source.noise.integers(2**31))
            model = estimator(
                budget.epsilon,
                budget.delta,
                neighbouring=budget.neighbouring,
                random_state=seed,
                **known,
            )
            for start in range(0, len(X), size):
                model.partial_fit(X[start : start + size], y[start : start + size])
            return model.coef_, model.intercept_, model.steps_, model.privacy_.to_json()

        classes = "classes" in known
        pairs = _pairs(budget, classes, 1.0)
        pairs = [pair for pair in pairs if min(len(pair.first[0]), len(pair.second[0])) > 0]
        return Call(run, pairs, f"{name}, batches of {size}, {budget}")

    return make


def _search(budget: Budget, generator: Generator) -> Call:
    """The search's own release; the fits inside are those of its estimator."""
    law = str(generator.choice(["geometric", "logarithmic", "poisson"]))

    def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        return searched_candidates(X, y, source, budget, law)

    pairs = _pairs(budget, True, 1.0)[::6]
    return Call(run, pairs, f"PrivateSearchCV, {law}, {budget}")


def _refits(budget: Budget, generator: Generator) -> Call:
    """A new fit to each block of a stream."""
    size = int(generator.integers(6, N // 2))

    def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        return refitted_blocks(X, y, source, budget, size)

    pairs = _pairs(budget, True, 1.0)[::3]
    return Call(run, pairs, f"RefitStream, blocks of {size}, {budget}")


def _evaluate(classes: int) -> Callable[[Budget, Generator], Call]:
    """A fixed model that is public: a regression without classes."""

    def make(budget: Budget, generator: Generator) -> Call:
        X = generator.normal(size=(60, P))
        model: Any = linear_model.LinearRegression().fit(X, X[:, 0])
        if classes:
            y = np.array([-1.0, 1.0, 2.0])[np.arange(60) % classes]
            model = linear_model.LogisticRegression().fit(X, y)
        own = {"one_vs_rest": classes > 2, "target_bounds": (-2.0, 2.0), "n_public": N}

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            how = {"neighbouring": budget.neighbouring, "random_state": source, **own}
            return privopt.evaluate(model, X, y, budget.epsilon, budget.delta, **how).to_json()

        return Call(run, _pairs(budget, classes > 0, 1.0), f"evaluate, {classes} classes, {budget}")

    return make


def _torch(noise: str) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        clip = float(10 ** generator.uniform(-2, 1))
        size = int(generator.integers(4, N))

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            return trained_model(X, y, source, budget, noise, clip, size, N)

        pairs = _pairs(budget, True, 1.0)[::3]
        pairs = [pair for pair in pairs if min(len(pair.first[0]), len(pair.second[0])) > 4]
        return Call(run, pairs, f"make_private, {noise}, clip_norm={clip:.3g}, {budget}")

    return make


def _rounds(noise: str) -> Callable[[Budget, Generator], Call]:
    def make(budget: Budget, generator: Generator) -> Call:
        clip = float(10 ** generator.uniform(-2, 1))
        goal, apart = (int(generator.integers(1, most)) for most in (N // 2, 4))
        adaptive = None if generator.random() < 0.5 else float(generator.uniform(0.1, 0.9))

        def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
            return federated_rounds(X, source, budget, noise, clip, goal, apart, adaptive)

        said = f"Server {noise}, goal {goal}, clip_norm={clip:.3g}, {adaptive=}, {budget}"
        return Call(run, _pairs(budget, False, clip), said)

    return make


METHODS: tuple[Literal["loss", "rank"], ...] = ("loss", "rank")
Make = Callable[[Budget, Generator], Call]
ENTRIES: dict[str, tuple[Make, ...]] = {
    "solve": (_solve, _solve),
    # Both ends of q are another matter than its middle.
    "quantile": tuple(
        _quantile(method, low, high)
        for method in METHODS
        for low, high in ((0.005, 0.1), (0.1, 0.9), (0.9, 0.995))
    ),
    "select": (_select, _select),
    "prefix_sums": tuple(
        _prefix_sums(noise)
        for noise in ("independent", "tree", "honaker", "sqrt_toeplitz", "banded", "blt")
    ),
    "OnlineLogisticRegression": tuple(
        _online("OnlineLogisticRegression", options) for options in (_norm, _bounds)
    ),
    "OnlineLinearRegression": (_online("OnlineLinearRegression"),),
    "PrivateSearchCV": (_search,),
    "RefitStream": (_refits,),
    "LogisticRegression": tuple(
        _estimator("LogisticRegression", options)
        for options in (_norm, _bounds, _private_norm, _weights)
    ),
    "LinearSVC": tuple(
        _estimator("LinearSVC", options) for options in (_norm, _bounds, _private_norm)
    ),
    "LinearRegression": (_estimator("LinearRegression", _bounds),),
    "HuberRegressor": tuple(_estimator("HuberRegressor", options) for options in (_norm, _bounds)),
    "QuantileRegressor": (
        _estimator("QuantileRegressor", _bounds),
        _estimator(
            "QuantileRegressor",
            lambda g: {"intercept_only": True, "quantile": float(g.uniform(0.02, 0.98))},
        ),
    ),
    "PoissonRegressor": tuple(
        _estimator("PoissonRegressor", options) for options in (_norm, _bounds)
    ),
    "GammaRegressor": tuple(_estimator("GammaRegressor", options) for options in (_norm, _bounds)),
    "Ridge": tuple(_estimator("Ridge", options) for options in (_norm, _bounds, _weights)),
    "Lasso": (_estimator("Lasso", _nothing),),
    "ElasticNet": (_estimator("ElasticNet", _nothing),),
    "SparseLogisticRegression": (_estimator("SparseLogisticRegression", _nothing),),
    "PrivateERM": (_estimator("PrivateERM", _nothing),),
    "evaluate": (_evaluate(0), _evaluate(2), _evaluate(3)),
    "IntervalsByParts": (lambda b, g: Call(*by_parts(b, g, _pairs(b, False, 1.0))),),
    "prediction_intervals": (lambda b, g: Call(*band(b, g, _pairs(b, False, 1.0))),),
    "federated.Server": tuple(_rounds(noise) for noise in ("independent", "tree", "banded", "blt")),
    "torch.make_private": tuple(_torch(noise) for noise in ("independent", "banded", "blt")),
}
"""Public names, and the calls by which they are tried."""
