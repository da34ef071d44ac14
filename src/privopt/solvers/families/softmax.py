"""Noisy gradients of all classes at once: settings, start and descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.losses import CappedLogistic, Logistic, SmoothedHinge, Softmax
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise
from privopt.oracle import ClassCounts, ClassGradient, Oracle
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers.solver import Settings, Tick, no_tick

COUNTS = 0.01
"""Share of mu^2 for the class counts."""
FEWEST, MOST = 30, 100
MOMENTUM = 0.8


@dataclass(frozen=True)
class JointSettings(Settings):
    """Steps, noise and the public numbers that rates are computed from.

    ``strength`` is c sqrt(T) over the noise of one step: what T gradients together say, in units of
    one record.
    """

    n: int
    classes: int
    margin: float
    n_iter: int
    clip_norm: float
    count_multiplier: float
    noise_multiplier: float
    strength: float
    discrete_noise: bool


def refuse_joint(name: str, facts: Facts, budget: Budget) -> str | None:
    """Why a joint release does not apply; None if it does."""
    problem = facts.problem
    if facts.repeats < 3:
        return f"{name} is for three classes or more."
    if not isinstance(problem.loss, Logistic | CappedLogistic | SmoothedHinge):
        return f"{name} is for the logistic loss and the smoothed hinge, not {facts.loss_name}."
    if budget.pure:
        return f"{name} adds Gaussian noise in every step: it needs delta > 0."
    if not isinstance(problem.domain, WholeSpace) or problem.l2:
        return f"{name} solves on the whole space without a ridge of the caller's."
    return None


def joint_settings(
    name: str, facts: Facts, budget: Budget, counts: float, gradients: float, choices: Any
) -> JointSettings:
    """Settings from public numbers, with these shares of mu^2."""
    loss = joint_loss(facts)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    felt = mu / facts.relation_factor
    n_iter: int = choices.pop("n_iter", None) or step_count(facts, felt)
    discrete_noise: bool | None = choices.pop("discrete_noise", None)
    if choices:
        raise ValueError(f"{name} has no setting named {sorted(choices)[0]!r}.")
    if n_iter < 1:
        raise ValueError(f"n_iter must be positive, got {n_iter}.")
    counting = 1 / (mu * math.sqrt(counts)) * (1 + 1e-12)
    multiplier = math.sqrt(n_iter / gradients) / mu * (1 + 1e-12)
    fits = [choose_discrete(discrete_noise, True, m, facts.n) for m in (counting, multiplier)]
    return JointSettings(
        bound=math.inf,
        passes=float(n_iter + 1),
        n=facts.n,
        classes=facts.repeats,
        margin=loss.margin,
        n_iter=n_iter,
        clip_norm=loss.cap,
        count_multiplier=counting,
        noise_multiplier=multiplier,
        strength=math.sqrt(n_iter) / multiplier / facts.relation_factor,
        discrete_noise=all(fits),
    )


def joint_loss(facts: Facts) -> Softmax:
    """The softmax of the problem's loss; a smoothed hinge is one with a margin, in units of its
    width."""
    loss = facts.problem.loss
    margin = 1 / loss.width if isinstance(loss, SmoothedHinge) else 0.0
    return Softmax(facts.repeats, margin)


def scale_of(settings: JointSettings) -> float:
    """A smoothed hinge's scores are in units of its width: its margin is then one."""
    return 1 / settings.margin if settings.margin else 1.0


def step_count(facts: Facts, mu: float) -> int:
    """More steps only where there is signal for them: noise grows with their root."""
    return min(MOST, max(FEWEST, math.ceil(facts.n * mu / (5 * facts.repeats))))


def log_prior(
    oracle: Oracle, gate: Gate, settings: JointSettings, weighted: bool = False
) -> np.ndarray:
    """Scores of the model that knows class counts alone, by noisy counts, centred.

    Counts are shrunk towards equal ones as far as they could be noise: unshrunk, noise alone would
    say that some classes hardly occur.
    """
    K, n = settings.classes, settings.n
    mechanism = gaussian_noise(settings.count_multiplier, settings.discrete_noise)
    sealed = oracle.everything().ask(ClassCounts(K), resolution=mechanism.resolution)
    noise = settings.count_multiplier * float(sealed.sensitivity.radius)
    counts = gate.release(mechanism, sealed)
    if weighted:  # what there is in all is as private as its parts
        n = float(np.clip(counts.sum(), 0.01 * n, n))
    apart = counts - n / K
    shrunk = max(0.0, 1 - K * noise**2 / max(float(apart @ apart), 1e-300))
    prior = np.log(np.clip(1 / K + shrunk * apart / n, 0.1 / K, 1.0))
    return prior - prior.mean()


def descend(
    oracle: Oracle,
    gate: Gate,
    settings: JointSettings,
    start: np.ndarray,
    size: float,
    effective: float,
    tick: Tick = no_tick,
) -> np.ndarray:
    """T noisy gradients from ``start``, for rows in units of ``size``; the mean of the last ones.

    The rate is halved where two gradients in a row point in opposite directions by more than their
    noise, and grows where they agree; it never passes what lets the noise alone move a score by
    about ``allowed``. What the gradients say of one direction, n strength / (K ``effective``),
    decides how far: below 1 the path ends before it arrives, and the last iterate is nearest.
    """
    K, T, n = settings.classes, settings.n_iter, settings.n
    query = ClassGradient(Softmax(K, settings.margin), settings.clip_norm * size)
    mechanism = gaussian_noise(settings.noise_multiplier, settings.discrete_noise)
    view = oracle.everything()
    strength = settings.strength
    said = min(1.0, n * strength / (K * effective))
    allowed = (0.8 + 0.7 * said) * min(1.0, n * strength / (4 * K))
    most = (1 - MOMENTUM) * allowed * strength / T
    rate = min(most, 10 * K / n)
    noise = settings.clip_norm * math.sqrt(T) / strength
    doubt = 3 * noise**2 * math.sqrt(start.size)
    W, step, before = start, np.zeros_like(start), None
    total, kept = np.zeros_like(start), max(1, round(said * T / 2))
    for t in range(T):
        sealed = view.ask_all(query, W / size, resolution=mechanism.resolution)
        gradient = gate.release(mechanism, sealed).reshape(W.shape) / size
        gradient = gradient - gradient.mean(axis=0)  # the true one sums to zero over classes
        if before is not None:
            agreement = float(np.vdot(gradient, before))
            if agreement < -doubt:
                rate /= 2
            elif agreement > doubt:
                rate = min(1.1 * rate, most)
        before = gradient
        step = MOMENTUM * step + rate * gradient
        W = W - step
        if t >= T - kept:
            total = total + W
        tick(t + 1, T)
    return total / kept
