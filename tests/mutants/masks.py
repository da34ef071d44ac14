"""Planted bugs of masks over computed numbers, and the checks that kill them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
from scipy import stats

from privopt import Problem
from privopt.audit import low_bits
from privopt.facts import Facts
from privopt.geometry import L2Ball, WholeSpace
from privopt.losses import Logistic, Squared
from privopt.mechanisms import mask, objective_perturbation, stable_sgd
from privopt.mechanisms.mask import Mask
from privopt.noise import SeededSource, discrete_gaussian, discrete_laplace, rounded
from privopt.noise.discrete import fine_gaussian
from privopt.oracle import LabelMoments, Oracle, RowBounds, enclosure, moments
from privopt.oracle.objective import Objective
from privopt.oracle.oracle import make_rows
from privopt.oracle.sealed import KEY
from privopt.oracle.sensitivity import FunctionFacts, Sensitivity
from privopt.privacy import kinds
from privopt.privacy.convolve import composed
from privopt.solvers.families import objective as solver_module

from .integers import coarse
from .mutant import Mutant

STD = 512 * math.sqrt(sum(256 ** (2 * i) for i in range(4)))
FINE = 512 * math.sqrt(sum(256 ** (2 * i) for i in range(5)))


# ---------------------------------------------------------------- checks
def covered() -> str | None:
    """Integers of two vectors at the declared distance: no further apart than the noise allows,
    small vectors and ones close to the limit, in l2 and in l1."""
    rng = np.random.default_rng(0)
    for noise, order, scale in (("gaussian", 2, STD), ("pure", 1, 2.0**33)):
        for p in (1, 60):
            cover = Mask(noise, 20.0, 0.3, p)  # type: ignore[arg-type]
            for size in (1e-3, 1.0, 2.0**61 * cover.step):
                for _ in range(20):
                    one = size * rng.choice([-1.0, 1.0], p) * rng.uniform(0.5, 1.0, p)
                    way = rng.choice([-1.0, 1.0], p)
                    other = one + 0.3 * (1 - 1e-15) * way / np.linalg.norm(way)
                    moved = (cover.count(one) - cover.count(other)).astype(float)
                    loss = 20.0 * float(np.linalg.norm(moved, order)) / scale
                    if loss > 1:
                        return f"{noise}: {loss:.7g} of the noise at p={p}, size {size:.1g}"
    return None


def masked_law() -> str | None:
    """Noise of the declared scale; false alarm 1e-7."""
    for noise, law in (("gaussian", stats.norm), ("pure", stats.laplace)):
        cover = Mask(noise, 2.0, 0.5, 1)  # type: ignore[arg-type]
        found = cover.cover(np.zeros(20_000, dtype=np.int64), SeededSource(1))
        value = stats.kstest(found, law.cdf).pvalue
        if value < 1e-7:
            return f"{noise} mask beside its law, p={value:.0e}"
    return None


def masked_bits() -> str | None:
    """Low-order bits of a covered number."""
    cover = Mask("gaussian", 2.0, 0.5, 1)
    one, other = (
        cover.cover(cover.count(np.full(20_000, value)), SeededSource(seed))
        for seed, value in enumerate((0.3, 0.8))
    )
    found = low_bits(one, other, cover.step)
    return f"low bits prove epsilon {found:.2f}" if found > 0.2 else None


def hidden_law() -> str | None:
    """Noise inside an objective: lengths of norm-Gamma noise, and coordinates of Gaussian noise."""
    source = SeededSource(2)
    lengths = [np.linalg.norm(rounded.norm_gamma(source, 1.0, 2)) for _ in range(3000)]
    value = stats.kstest(lengths, stats.gamma(2).cdf).pvalue
    if value > 1e-7:
        value = stats.kstest(rounded.gaussian(source, 1.0, 20_000), stats.norm.cdf).pvalue
    return f"noise beside its law, p={value:.0e}" if value < 1e-7 else None


def tolerance_covers() -> str | None:
    """A quarter of the least tolerance is at least the distance of b from an exact draw, where
    nothing else asks for more."""
    problem = Problem(Logistic(), L2Ball(2.0))
    for p, noise in ((4, "gaussian"), (400, "gaussian"), (30, "pure")):
        facts = Facts(problem, 1000, p, "zero_out")
        found = solver_module.discrete_tolerance(facts, noise, 1e-12, 3.0, 1e12)  # type: ignore[arg-type]
        length = p + 1 + 13 * math.sqrt(p + 1) if noise == "pure" else math.sqrt(p) / 2
        if found < 4 * 3.0 * length / FINE:
            return f"a tolerance of {found:.1g} does not cover the noise's rounding"
    return None


def refused_when_uncovered() -> str | None:
    facts = FunctionFacts(1.0, 0.25, 1, 1, True, True, 9)
    sensitivity = Sensitivity("function", 1.0, 1.0, facts=facts)
    mechanism = objective_perturbation.ObjectivePerturbation(
        "gaussian", 100.0, 1.0, 1e-12, 8.0, discrete_noise=True
    )
    try:
        mechanism.numerics(sensitivity)
    except Exception:
        return None
    return "a tolerance below the rounding of the noise is taken"


def shares_add_up() -> str | None:
    """Loss of the noise and of its mask, for a sensitivity of 3 at epsilon 1/5; movement."""
    cover, scale = mask.pure_mask(5.0, 3.0, 4), mask.pure_scale(5.0, 3.0)
    total = 3.0 / scale + 1 / cover.multiplier
    if total > 0.2 * (1 + 1e-12):
        return f"spends {total:.4g} of 0.2"
    needed = 2 * scale * (4 + 1 + 13 * math.sqrt(5)) / FINE
    return None if cover.movement >= needed else "the mask does not cover the draw's error"


def labels_within() -> str | None:
    """Replaced labels on coarse grids, in integers."""
    y = np.array([1.0, -1.0, 0.999, -0.999, 1 - 1e-9, -0.98, 0.013])
    for steps in (50.3, 77.7, 1000.1):
        counts = []
        for label in y:
            oracle = Oracle.over(
                np.zeros((1, 1)),
                np.array([label]),
                neighbouring="replace_one",
                bounds=RowBounds(math.inf, 1.0),
                source=SeededSource(0),
                classification=False,
            )
            counts.append(oracle.everything().ask(LabelMoments(), resolution=steps).open(KEY))
        for one in counts:
            for other in counts:
                if sum(int(d) ** 2 for d in one - other) > steps**2:
                    return f"labels move by more than {steps} steps"
    return None


def numerics_counted() -> str | None:
    """Eleven Gaussian variables inside, for pure noise in five coordinates."""
    facts = FunctionFacts(1.0, 0.25, 1, 1, True, True, 5)
    sensitivity = Sensitivity("function", 1.0, 1.0, facts=facts)
    mechanism = objective_perturbation.ObjectivePerturbation(
        "pure", 4.0, 1.0, 1e-3, 8.0, discrete_noise=True
    )
    found = mechanism.numerics(sensitivity)
    assert found is not None
    enough = found.log_ratio >= 11 * 169 / 24 / FINE**2
    return None if enough else "variables are missing from the slack"


# ---------------------------------------------------------------- bugs
def masks() -> Iterator[Mutant]:
    honest_step: Any = Mask.step.fget  # type: ignore[attr-defined]
    honest_scale = mask.pure_scale

    def step(change: Callable[[Mask, float], float]) -> property:
        return property(lambda self: change(self, honest_step(self)))

    def in_floating_point(self: Any, counts: Any, source: Any) -> Any:
        return (
            counts * (self.step * 1.1) / 1.1 + discrete_gaussian(source, counts.shape) * self.step
        )

    def mutant(name: str, check: Any, by: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"masks: {name}", patches, check, by)

    yield mutant(
        "half the step, so half the noise",
        covered,
        "exact",
        (Mask, "step", step(lambda m, g: g / 2)),
    )
    yield mutant(
        "an l2 movement for Laplace noise",
        covered,
        "exact",
        (Mask, "step", step(lambda m, g: g / math.sqrt(m.dimension if m.noise == "pure" else 1))),
    )
    yield mutant(
        "rounding of counts left out",
        covered,
        "exact",
        (Mask, "_room", property(lambda self: mask.integer_scale(self.noise))),
    )
    yield mutant(
        "half the Gaussian noise", masked_law, "law", (mask, "discrete_gaussian", coarse(0.5))
    )
    yield mutant(
        "half the Laplace noise",
        masked_law,
        "law",
        (mask, "discrete_laplace", lambda source, shape: discrete_laplace(source, shape) // 2),
    )
    yield mutant(
        "value and noise added in floating point",
        masked_bits,
        "low bits",
        (Mask, "cover", in_floating_point),
    )
    yield mutant(
        "noise inside of half its size",
        hidden_law,
        "law",
        (rounded, "fine_gaussian", coarse(0.5, fine_gaussian)),
    )
    yield mutant(
        "length of p instead of p + 1 Gaussians in norm-Gamma noise",
        hidden_law,
        "law",
        (rounded, "norm_gamma", _short_length),
    )
    yield mutant(
        "tolerance planned for an exact draw",
        tolerance_covers,
        "closed form",
        (solver_module, "noise_error", lambda noise, p: 0.0),
    )
    yield mutant(
        "any tolerance taken",
        refused_when_uncovered,
        "closed form",
        (objective_perturbation, "noise_error", lambda noise, p: 0.0),
    )
    yield mutant(
        "the mask's share spent twice",
        shares_add_up,
        "closed form",
        (mask, "pure_scale", lambda m, s: honest_scale(m, s) * (1 - mask.PURE_SHARE)),
    )
    yield mutant(
        "a mask that does not cover the draw's error",
        shares_add_up,
        "closed form",
        (mask, "norm_gamma_error", lambda p: 0.0),
        (mask, "PURE_WIDTH", 0.0),
    )
    yield mutant(
        "labels cut off at full length",
        labels_within,
        "exact",
        (LabelMoments, "count", _long_labels),
    )
    yield mutant(
        "slack of the noise inside left out",
        numerics_counted,
        "closed form",
        (rounded, "gaussian_numerics", lambda p: (0.0, 0.0)),
    )

    yield mutant(
        "the error of a minimiser's gradient left out",
        gradient_enclosed,
        "exact",
        (enclosure, "UNIT", 0.0),
    )

    yield mutant(
        "rounding of stable steps left out",
        steps_enclosed,
        "rounding",
        (stable_sgd, "UNIT", 0.0),
    )
    yield mutant(
        "a pure loss read at the grid point below it",
        pure_on_grid,
        "closed form",
        (kinds, "pure_distribution", _below),
    )


_PURE = kinds.pure_distribution


def _below(epsilon: float, step: float) -> Any:
    return _PURE(math.floor(epsilon / step) * step, step)


def steps_enclosed() -> str | None:
    """Steps of stable SGD on one record, against exact arithmetic."""
    algorithm = stable_sgd.StableSGD(30, 1, 1, 0.3, False, False, 0.1, WholeSpace(), (0.0,))
    rows = make_rows(np.array([[0.7]]), np.array([0.9]), RowBounds(1.0), False)
    loss, theta = Squared(residual_clip=1.0), Fraction(0)
    for _ in range(30):
        slope = Fraction(0.7) * theta - Fraction(0.9)
        theta -= Fraction(0.3) * (slope * Fraction(0.7) + Fraction(0.1) * theta)
    computed = algorithm.value(Objective(rows, loss))
    off = abs(float(Fraction(float(computed[0])) - theta))
    stated = algorithm.error(FunctionFacts(1.0, 1.0, 1, 1, True, False, 1, True))
    return None if off <= stated else f"off by {off:.1e}, {stated:.1e} stated"


def pure_on_grid() -> str | None:
    """Three different pure losses on a coarse grid, against all of their outcomes."""
    epsilons, step = (0.31, 0.52, 0.77), 0.25
    found = composed([(kinds.pure_distribution(e, step), 1) for e in epsilons])
    for at in (0.0, 0.4, 1.1):
        exact = 0.0
        for signs in product((-1, 1), repeat=3):
            loss = sum(s * e for s, e in zip(signs, epsilons, strict=True))
            mass = math.prod(
                1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True)
            )
            exact += mass * max(-math.expm1(at - loss), 0.0)
        if found.get_delta_for_epsilon(at) < exact * (1 - 1e-9):
            return f"delta at {at} is below the exact one"
    return None


def gradient_enclosed() -> str | None:
    """The enclosure of a sum of equal slopes holds their sum in exact arithmetic."""
    X, theta, n = np.array([[0.7, 0.1]]), np.array([1.3, -0.4]), 5000
    rows = make_rows(np.repeat(X, n, axis=0), np.ones(n), RowBounds(1.0), True)
    found = Objective(rows, Logistic()).enclosed(theta, np.zeros(2))
    with mpmath.workdps(40):
        entries = zip(X[0], theta, strict=True)
        z = sum(mpmath.mpf(float(a)) * mpmath.mpf(float(t)) for a, t in entries)
        slope = -n / (1 + mpmath.exp(z))
        pairs = zip(X[0], found.value, strict=True)
        off = [float(slope * mpmath.mpf(float(a)) - mpmath.mpf(float(v))) for a, v in pairs]
    return None if np.linalg.norm(off) <= found.error else "a gradient outside its enclosure"


def _short_length(source: Any, scale: float, p: int) -> Any:
    drawn = fine_gaussian(source, 2 * p) / FINE
    return drawn[:p] * (scale * float(np.linalg.norm(drawn[p:])))


def _long_labels(self: Any, rows: Any, at: Any, step: float) -> Any:
    labels = moments.as_numpy(rows.weights(np.zeros(rows.dimension), lambda z, y, s: y.clip(-1, 1)))
    return np.rint(np.stack([labels, labels**2]) / step).astype(np.int64).sum(axis=1)
