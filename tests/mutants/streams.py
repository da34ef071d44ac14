"""Planted bugs in correlated noise, and the checks that must notice them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.losses import Logistic
from privopt.mechanisms import (
    CorrelatedGaussian,
    DiscreteCorrelatedGaussian,
    Gate,
    correlated,
    grid_of,
    on_grid,
)
from privopt.noise import SeededSource, SilentSource, discrete, gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds, RowSum
from privopt.oracle import sampling as coins
from privopt.oracle.sensitivity import Sensitivity
from privopt.planner import prefix_sums
from privopt.privacy import Budget, Participation, Refused, amplified
from privopt.privacy.factorizations import (
    BLT,
    Banded,
    Factorization,
    Honaker,
    Independent,
    Restarts,
    SquareRoot,
    Tree,
    toeplitz,
    tree,
)
from privopt.privacy.factorizations import blt as blt_module
from privopt.privacy.factorizations.factorization import NoiseStream

from .mutant import Check, Mutant

# The package exports a function under the name of this module.
spend_module = import_module("privopt.privacy.spend")

STEPS = 12


def kinds() -> dict[str, Factorization]:
    return {
        "independent": Independent(STEPS),
        "tree": Tree(STEPS),
        "honaker": Honaker(STEPS),
        "sqrt_toeplitz": SquareRoot(STEPS),
        "banded": Banded(STEPS, (0.8, 0.5, 0.3)),
        "blt": BLT(STEPS, (0.9, 0.4), (0.3, 0.2)),
        "restarts": Restarts(STEPS, 5, completion=True),
    }


def covariance(name: str) -> np.ndarray:
    """Of the running sums, from the definition of each noise and none of the code it checks."""
    t = np.arange(1, STEPS + 1)
    if name == "independent":
        return np.minimum.outer(t, t).astype(float)
    if name in ("tree", "honaker", "restarts"):
        return _tree_covariance(name)
    column = {
        "sqrt_toeplitz": [math.comb(2 * j, j) / 4**j for j in range(STEPS)],
        "banded": [0.8, 0.5, 0.3] + [0.0] * (STEPS - 3),
        "blt": [1.0] + [0.3 * 0.9**j + 0.2 * 0.4**j for j in range(STEPS - 1)],
    }[name]
    encoder = np.array([[column[i - j] if i >= j else 0.0 for j in range(STEPS)] for i in t - 1])
    decoder = np.tril(np.ones((STEPS, STEPS))) @ np.linalg.inv(encoder)
    return decoder @ decoder.T


def _tree_covariance(name: str) -> np.ndarray:
    """Nodes as independent coordinates, by the textbook recursion with two draws a step."""
    at, rows, base, stack = iter(np.eye(200)), [], np.zeros(200), []

    def push() -> None:
        stack.append((0, next(at)))
        while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
            (h, right), (_, left) = stack.pop(), stack.pop()
            below = (left + right) / 2 if name != "tree" else 0.0
            stack.append((h + 1, next(at) + below))

    def total() -> np.ndarray:
        return sum(node / (2 - 2.0**-h if name != "tree" else 1.0) for h, node in stack)  # type: ignore[return-value]

    for step in range(STEPS):
        if name == "restarts" and step and step % 5 == 0:
            while len(stack) > 1:
                push()
            base = base + total()
            stack.clear()
        push()
        rows.append(base + total())
    return np.array(rows) @ np.array(rows).T


@cache
def drawn(name: str) -> Check:
    """The empirical covariance of 1e5 runs, and the state that goes on; false alarm 1e-6."""

    def check() -> str | None:
        noise, runs = kinds()[name], 100_000
        source, stream = SeededSource(1), noise.stream()
        steps = []
        for step in range(STEPS):
            if step == 7:
                state, stream = stream.state_dict(), noise.stream()
                stream.load_state_dict(state)
            steps.append(stream.next(lambda: gaussian(source, 1.0, runs)))
        sums, declared = np.cumsum(steps, axis=0), covariance(name)
        scale = np.sqrt(np.outer(np.diag(declared), np.diag(declared)) + declared**2)
        off = np.max(np.abs(sums @ sums.T / runs - declared) / scale) * math.sqrt(runs)
        if off > 6.5:
            return f"covariance of {name} is off by {off:.1f} standard errors"
        if not np.allclose(noise.row_norms() ** 2, np.diag(declared), rtol=1e-9):
            return f"stated variances of {name} are not those of its law"
        return None

    return check


@cache
def drawn_whole(name: str) -> Check:
    """The same of integers, and of a state that is written down and read; false alarm 1e-6."""

    def check() -> str | None:
        noise, runs = kinds()[name], 100_000
        mechanism = DiscreteCorrelatedGaussian(noise, 1.0)
        grid = grid_of(mechanism, 1.0, runs)
        sensitivity = Sensitivity("l2", 1.0, 1.0, grid=grid)
        source, stream, steps = SeededSource(1), noise.stream(), []
        zeros = np.zeros(runs, dtype=np.int64)
        for step in range(STEPS):
            if step == 7:
                state, stream = stream.state_dict(), noise.stream()
                stream.load_state_dict(state)
            steps.append(mechanism.noisy(stream, zeros, sensitivity, source))
        sums, declared = np.cumsum(steps, axis=0) / mechanism.noise_multiplier, covariance(name)
        scale = np.sqrt(np.outer(np.diag(declared), np.diag(declared)) + declared**2)
        off = np.max(np.abs(sums @ sums.T / runs - declared) / scale) * math.sqrt(runs)
        return f"covariance of {name} is off by {off:.1f} standard errors" if off > 6.5 else None

    return check


def encoded() -> str | None:
    """The encoder finds the fresh integers in what was made of them, to half a step; and what is
    taken off does not depend on them."""
    for name, noise in kinds().items():
        if name == "restarts":
            continue
        encoder = noise.encode(np.eye(STEPS))
        unit, source, fresh, made = encoder / np.diag(encoder)[:, None], SeededSource(2), [], []
        stream, other = noise.stream(), noise.stream()
        for step in range(STEPS):
            here = np.rint(1e9 * source.noise.standard_normal(400)).astype(np.int64)
            far = 3**21 if step == STEPS - 1 else 0
            fresh.append(here)
            made.append(stream.next_whole(lambda scale, here=here: here))
            beside = other.next_whole(lambda scale, here=here + far: here)
            if not np.array_equal(beside - far, made[-1]):
                return f"{name}: what is taken off depends on what is drawn"
        off = np.max(np.abs(unit @ np.array(made) - np.array(fresh)))
        if off > 0.5 + noise.rounding(1e10).error + 1e-4:
            return f"{name}: integers are {off:.2f} beside what the encoder says"
    return None


def rounded() -> str | None:
    """A record's centres and all that rounding may add to them stay within the charge."""
    for name, noise in kinds().items():
        if name == "restarts":
            continue
        for multiplier, coordinates in ((1.0, 10), (30.0, 1000)):
            mechanism = DiscreteCorrelatedGaussian(noise, multiplier)
            found = noise.rounding(2.0**36.75)
            unit = discrete.GAUSSIAN_STD / found.most
            extra = math.sqrt(coordinates * STEPS) * (1 + 2 * found.error) / found.least
            loss = math.sqrt(float(noise.losses_squared([(STEPS - 1,)])[0]))
            if loss * mechanism.resolution + extra > unit * loss / multiplier:
                return f"{name}: rounding is not paid for"
    crowded = DiscreteCorrelatedGaussian(SquareRoot(20_000), 50.0)
    return "rounding is paid by nobody" if crowded.fits(10**6) else None


def alike() -> str | None:
    """The noise is the same beside any sum, also one that wraps around."""
    mechanism, found = DiscreteCorrelatedGaussian(Honaker(4), 2.0), []
    sensitivity = Sensitivity("l2", 1.0, 1.0, grid=grid_of(mechanism, 1.0, 50))
    for value in (0, 1, 2**62 + 1, 2**63 - 1):
        stream, source = Honaker(4).stream(), SeededSource(5)
        payload = np.full(50, value, dtype=np.int64)
        with np.errstate(over="ignore"):
            noise = [
                _in_steps(mechanism, stream, payload, sensitivity, source) - payload
                for _ in range(4)
            ]
        found.append(np.array(noise))
    same = all(np.array_equal(found[0], other) for other in found[1:])
    return None if same else "noise depends on the sum it is added to"


def _in_steps(mechanism: Any, stream: Any, payload: Any, sensitivity: Any, source: Any) -> Any:
    """The noisy integer itself: a grid whose step is one."""

    class Unit:
        dtype, step = np.int64, 1

    with_grid = dataclasses.replace(sensitivity)
    kept = on_grid.OnGrid._grid
    try:
        on_grid.OnGrid._grid = lambda self, s: Unit  # type: ignore[method-assign, assignment]
        return mechanism.noisy(stream, payload, with_grid, source)
    finally:
        on_grid.OnGrid._grid = kept  # type: ignore[method-assign]


def charged() -> str | None:
    """Losses against the inverse covariance of what is released, cell by cell through the gate."""
    patterns = [(0,), (2,), (11,), (0, 4, 8), (3, 7, 11), (1, 6)]
    for name, noise in kinds().items():
        differences = np.eye(STEPS) - np.eye(STEPS, k=-1)
        for released in (STEPS, 7):
            whole = differences @ covariance(name) @ differences.T
            precision = np.linalg.inv(whole[:released, :released])
            found = noise.losses_squared(patterns, released)
            for pattern, loss in zip(patterns, found, strict=True):
                mean = np.array([float(t in pattern) for t in range(released)])
                if loss < mean @ precision @ mean * (1 - 1e-9):
                    return f"{name} charges {loss:.4g} for {pattern}, less than is released"
        for rule in (Participation(), Participation.epochs(3, 4), Participation.separated(3, 4)):
            allowed = [p for p in patterns if rule.allows(p)]
            if noise.sensitivity_squared(rule) < noise.losses_squared(allowed).max() * (1 - 1e-9):
                return f"{name}: the sensitivity does not cover an allowed pattern"
    if Tree(1024).sensitivity_squared(Participation()) != 11:
        return "a tree of 1024 steps has 11 nodes over a step"
    if Tree(2000, "nodes").sensitivity_squared(Participation.separated(6, 314)) != 79:
        return "nodes of separated participations"
    completed = Restarts(10_000, 2000, True, accounting="nodes")
    if completed.sensitivity_squared(Participation.epochs(100, 100)) != 4129:
        return "nodes of completed trees"
    return _billed()


def _billed() -> str | None:
    """What the gate's log says of a fixed order, of a rule, and of sampled groups."""
    query, noise = ClippedGradient(Logistic(), 1.0), Honaker(STEPS)
    oracle = Oracle.empty(2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource())
    gate, ruled = Gate(SilentSource()), Gate(SilentSource())
    rule, parts = Participation.epochs(3, 4), oracle.blocks(4)
    mechanism, by_rule = CorrelatedGaussian(noise, 2.0), CorrelatedGaussian(noise, 2.0, rule)
    for step in range(STEPS):
        gate.release(mechanism, parts[step % 4].everything().ask(query))
        ruled.release(by_rule, oracle.everything().ask(query))
    payment = {
        cell: _mu_squared(charge) for cell, charge in spend_module.spend(gate.log).cells.items()
    }
    for cell in range(4):
        exact = noise.losses_squared([(cell, cell + 4, cell + 8)])[0] / 4
        if not math.isclose(payment.get((cell,), 0.0), exact, rel_tol=1e-9):
            return "a cell is not charged for the steps it was in"
    (charge,) = spend_module.spend(ruled.log).cells.values()
    if not math.isclose(_mu_squared(charge), noise.sensitivity_squared(rule) / 4, rel_tol=1e-9):
        return "a rule is not charged by its worst pattern"
    banded, gate = CorrelatedGaussian(Banded.optimised(8, 3), 1.0), Gate(SilentSource())
    groups = Oracle.empty(
        2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource()
    ).cyclic(3)
    for step in range(8):
        gate.release(banded, groups[step % 3].poisson(0.5).ask(query))
    counts = [charge.total() for charge in spend_module.spend(gate.log).cells.values()]
    if counts != [3, 3, 2]:
        return "sampled groups are not charged for each of their turns"
    multiplier = amplified.cyclic_multiplier(Budget(2.0, 1e-5), 10, 4, 0.5)
    if multiplier < 0.999 * amplified.batch_multiplier(
        Budget(2.0, 1e-5), amplified.Sampling(0.5), 3
    ):
        return "the last, shorter round of groups is not paid for"
    return None


def _mu_squared(charge: Any) -> float:
    return sum(count * step.kinds[0].mu ** 2 for step, count in charge.items())


def refused() -> str | None:
    """What a stream must not do, it does not do."""
    query = ClippedGradient(Logistic(), 1.0)
    oracle = Oracle.empty(2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource())

    def horizon() -> None:
        gate, mechanism = Gate(SilentSource()), CorrelatedGaussian(Tree(2), 1.0)
        for _ in range(3):
            gate.release(mechanism, oracle.everything().ask(query))

    def clip() -> None:
        gate, mechanism = Gate(SilentSource()), CorrelatedGaussian(Tree(3), 1.0)
        for norm in (1.0, 2.0):
            view = oracle.everything()
            gate.release(mechanism, view.ask(ClippedGradient(Logistic(), norm)))

    def sampled() -> None:
        gate, mechanism = Gate(SilentSource()), CorrelatedGaussian(Tree(3), 1.0)
        gate.release(mechanism, oracle.poisson(0.5).ask(query))

    def bands() -> None:
        gate, mechanism = Gate(SilentSource()), CorrelatedGaussian(Banded.optimised(8, 4), 1.0)
        for _ in range(2):
            gate.release(mechanism, oracle.poisson(0.5).ask(query))

    def nested() -> None:
        gate, mechanism = Gate(SilentSource()), CorrelatedGaussian(Tree(3), 1.0)
        for view in (oracle.everything(), oracle.blocks(2)[0].everything()):
            gate.release(mechanism, view.ask(query))
        spend_module.spend(gate.log)

    for attempt in (horizon, clip, sampled, bands, nested):
        try:
            attempt()
        except Refused:
            continue
        return f"{attempt.__name__}: not refused"
    return None


def followed() -> str | None:
    """The law of the noise of running sums, as their events declare it."""
    tapes = []
    for seed in range(40):

        def run(X: Any, y: Any, seed: int = seed) -> Any:
            return list(
                prefix_sums(X, bound=2.0, epsilon=1.0, delta=1e-6, n_steps=9, random_state=seed)
            )

        tapes.append(record(run, (np.ones((9, 4)), np.zeros(9)))[1])
    p = noise_p_value(tapes)
    return f"p-value {p:.1e}" if p < 1e-6 else None


def moved() -> str | None:
    """Replay of running sums on hostile neighbours."""

    def run(X: Any, y: Any) -> Any:
        found = prefix_sums(
            list(X), bound=1.0, epsilon=1.0, delta=1e-6, n_steps=len(X), random_state=0
        )
        return list(found), found.certificate.to_json()

    for pair in hostile_pairs("zero_out"):
        findings = replay(run, pair)
        if findings:
            return findings[0]
    return None


def dealt() -> str | None:
    """Groups keep their members when a record is added, and are not dealt by position."""
    sampler = coins.GeometricSkips(SeededSource(0))
    sizes = {int(np.sum(sampler.groups(1000 + extra, 4) == 0)) for extra in range(6)}
    if len(sizes) < 3 or np.array_equal(sampler.groups(8, 4), np.arange(8) % 4):
        return "groups are dealt evenly"
    return None


# ---------------------------------------------------------------- the bugs
def streams() -> Iterator[Mutant]:
    honest_draw = correlated.narrow_gaussian
    yield Mutant(
        "stream: half the noise",
        ((correlated, "narrow_gaussian", lambda s, shape, top: honest_draw(s, shape, top // 2)),),
        followed,
        "law",
    )
    yield Mutant(
        "stream: the same draw in every step",
        (
            (
                correlated,
                "narrow_gaussian",
                lambda s, shape, top: honest_draw(SeededSource(7), shape, top),
            ),
        ),
        followed,
        "law",
    )
    yield Mutant(
        "stream: noise not in units of the clip norm",
        ((DiscreteCorrelatedGaussian, "noisy", _without_radius),),
        followed,
        "law",
    )
    yield Mutant(
        "stream: declares half its loss",
        ((CorrelatedGaussian, "kinds", _halved_kinds(CorrelatedGaussian.kinds)),),
        followed,
        "law",
    )
    yield Mutant(
        "running sums: half the sensitivity",
        ((RowSum, "radius", lambda self: self.bound / 2),),
        moved,
        "replay",
    )
    yield from _drawn_wrong()
    yield from _whole_wrong()
    yield from _charged_wrong()
    yield from _allowed()


def _without_radius(
    self: Any, noise: Any, payload: Any, sensitivity: Any, source: Any
) -> np.ndarray:
    drawn = noise.next_whole(
        lambda scale: correlated.narrow_gaussian(
            source, payload.shape, discrete.top_for(scale / self.rounding.most)
        )
    )
    return payload * sensitivity.grid.step + drawn / self.resolution


def _halved_kinds(honest: Callable[..., Any]) -> Callable[..., Any]:
    def kinds_of(self: Any, sensitivity: Any) -> Any:
        (kind,) = honest(self, sensitivity)
        return (dataclasses.replace(kind, mu=kind.mu / 2, single=kind.single / 2),)

    return kinds_of


def _drawn_wrong() -> Iterator[Mutant]:
    def planted(what: str, noise: str, owner: Any, name: str, new: Any) -> Mutant:
        return Mutant(f"{noise}: {what}", ((owner, name, new),), drawn(noise), "covariance")

    for noise, kind in (("tree", Tree), ("honaker", Honaker)):
        honest = kind.scale
        yield planted(
            "a level without noise",
            noise,
            kind,
            "scale",
            lambda self, h, honest=honest: honest(self, h) * (h != 2),
        )
        yield planted("nodes kept when they are swallowed", noise, tree.Stack, "next", _not_popped)
    yield planted(
        "children not counted in", "honaker", Honaker, "carried", lambda self, h, before: 0.0
    )
    yield planted(
        "completed without fresh noise", "restarts", Honaker, "completing_scale", lambda self: 1e-9
    )
    yield planted(
        "earlier noise added, not subtracted",
        "banded",
        toeplitz,
        "subtract_product",
        lambda here, weights, kept: here.__iadd__(weights @ kept),
    )
    yield planted(
        "earlier noise added, not subtracted",
        "blt",
        blt_module,
        "subtract_product",
        lambda here, weights, kept: here.__iadd__(weights @ kept),
    )
    yield planted(
        "kept state forgotten", "blt", NoiseStream, "load_state_dict", lambda self, s: None
    )


def _whole_wrong() -> Iterator[Mutant]:
    def planted(what: str, check: Check, by: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"integers of a stream: {what}", patches, check, by)

    users = (toeplitz, blt_module, tree)

    def together(fresh: Any, past: Any) -> np.ndarray:
        return np.rint((fresh - past) / 2).astype(np.int64) * 2  # coarser than a step

    def cut(fresh: Any, past: Any) -> np.ndarray:
        return fresh - np.trunc(past).astype(np.int64)

    yield planted(
        "fresh ones are rounded together with the past",
        encoded,
        "exact",
        *((user, "less_past", together) for user in users),
    )
    yield planted(
        "pasts are cut off, not rounded",
        encoded,
        "exact",
        *((user, "less_past", cut) for user in users),
    )
    coarse = toeplitz.subtract_product

    def in_single(here: Any, weights: Any, kept: Any) -> None:
        coarse(here, np.asarray(weights, dtype=np.float32).astype(float), kept)

    yield planted(
        "weights in single precision",
        encoded,
        "exact",
        *((user, "subtract_product", in_single) for user in (toeplitz, blt_module)),
    )
    yield planted(
        "rounding is not paid for",
        rounded,
        "rounding",
        (correlated, "ROUNDING_SHARE", 0.0),
        (DiscreteCorrelatedGaussian, "fits", lambda self, coordinates: True),
    )
    yield planted(
        "rounding is not asked about",
        rounded,
        "rounding",
        (DiscreteCorrelatedGaussian, "fits", lambda self, coordinates: True),
    )
    yield planted(
        "sums in doubles",
        alike,
        "exact",
        (
            on_grid.OnGrid,
            "_noisy",
            lambda self, payload, noise, s: (payload.astype(float) + noise) * 1.0,
        ),
    )
    yield planted(
        "a narrow step is as wide as the widest",
        drawn_whole("honaker"),
        "covariance",
        (correlated, "top_for", lambda share: discrete.TOP),
    )
    yield planted(
        "kept sums of nodes forget their last step",
        drawn_whole("tree"),
        "covariance",
        (tree.Stack, "next_whole", _last_forgotten),
    )
    for name in ("blt", "banded"):
        yield planted(
            f"earlier noise added, not subtracted, {name}",
            drawn_whole(name),
            "covariance",
            (
                blt_module if name == "blt" else toeplitz,
                "subtract_product",
                lambda here, weights, kept: here.__isub__(weights @ kept * -1.0),
            ),
        )


def _last_forgotten(self: Any, draw: Any) -> np.ndarray:
    height = tree._height(self.step + 1)
    fresh = draw(self._tree.fresh(height))
    swallowed = [self._nodes.pop(h) for h in range(height)]
    past = sum(swallowed, np.zeros(fresh.shape))
    self._nodes[height] = past if height else fresh.astype(float)
    self.step += 1
    return fresh - np.rint(past).astype(np.int64)


def _not_popped(self: Any, draw: Any) -> np.ndarray:
    """b_t - b_(t-1) without taking the swallowed nodes away."""
    height = tree._height(self.step + 1)
    node = draw() * self._tree.scale(height)
    for h in range(height):
        node += self._tree.carried(height, h) * self._nodes.pop(h)
    self._nodes[height] = node
    self.step += 1
    return self._tree.weight(height) * node


def _charged_wrong() -> Iterator[Mutant]:
    def planted(what: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"charge of a stream: {what}", patches, charged, "closed form")

    honest = Tree._entries
    yield planted(
        "one level of a tree not counted",
        (
            Tree,
            "_entries",
            lambda self, leaf, owner, released: honest(self, leaf, owner, released // 2),
        ),
    )
    yield planted(
        "steps of one record as if they were different records'",
        (
            toeplitz,
            "sum_of_shifts_squared",
            lambda column, steps: sum(float(np.sum(column[: len(column) - s] ** 2)) for s in steps),
        ),
    )
    yield planted(
        "Honaker charged as if its nodes had twice the noise",
        (Honaker, "entering", lambda self, h: (2 - 2.0**-h) / 2),
    )
    yield planted(
        "completed root for free", (Tree, "completed_losses_squared", Tree.losses_squared)
    )
    yield planted(
        "a rule charged for one step",
        (Participation, "fitted", lambda self, steps: Participation()),
    )
    charges = spend_module._stream_charges
    yield planted(
        "the first cell pays, the others do not",
        (spend_module, "_stream_charges", lambda path, events: list(charges(path, events))[:1]),
    )
    yield planted(
        "the last round of groups forgotten",
        (
            amplified,
            "cyclic_multiplier",
            lambda budget, steps, groups, rate: amplified.batch_multiplier(
                budget, amplified.Sampling(rate), steps // groups
            ),
        ),
    )


def _allowed() -> Iterator[Mutant]:
    position = correlated.Stream.position

    def endless(self: Any, sensitivity: Any) -> Any:
        longer = dataclasses.replace(self._path.factorization, steps=10**6)
        self._path.factorization = longer
        return position(self, sensitivity)

    def any_clip(self: Any, sensitivity: Any) -> Any:
        self._radius = None
        return position(self, sensitivity)

    for what, patches in (
        ("steps beyond the horizon", ((correlated.Stream, "position", endless),)),
        ("a clip norm that changes", ((correlated.Stream, "position", any_clip),)),
        (
            "sampled batches with any noise",
            (
                (correlated, "check_sampled", lambda *args: None),
                (spend_module, "check_sampled", lambda *args: None),
            ),
        ),
        ("a part that comes back too early", ((Banded, "bands", lambda self: 1),)),
    ):
        yield Mutant(f"stream: {what}", patches, refused, "refusal")
    yield Mutant(
        "groups dealt by position",
        ((coins.GeometricSkips, "groups", lambda self, count, groups: np.arange(count) % groups),),
        dealt,
        "groups",
    )
