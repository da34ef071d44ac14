r"""Privacy-loss distributions of Gaussian noise on a sampled batch, in closed form on a grid.

Each is given by a pair (P, Q) of mixtures of unit Gaussians on the line whose loss log(dP/dQ) is
monotone. Between two grid points the masses of P and Q are moved to the two ends so that both are
kept: this is the connect-the-dots distribution (Doroshenko et al., 2022), pessimistic, exact at
the grid points, with an error of second order in the step. mu is in standard deviations of the
noise.

Poisson batches of rate q, mu one record's own sensitivity (Zhu, Dong and Wang, 2022; Lebeda et
al., 2024 for replace_one):

* record present against absent: (1-q) N(0,1) + q N(mu,1) against N(0,1), and the reverse;
* replaced: (1-q) N(0,1) + q N(mu,1) against (1-q) N(0,1) + q N(-mu,1).

Batches of fixed size m out of n without replacement, one record replaced, rate q = m/n, mu the
movement of a batch total when one of its records is replaced. Let R, P', Q' be the outputs given
that the record is outside the batch, inside and old, inside and new. Replacing a random member of a
batch by the record turns a uniform batch without it into a uniform batch with it, so by joint
convexity each two of R, P', Q' are dominated by (N(mu,1), N(0,1)). For a >= 1 advanced joint
convexity gives, with a' = 1 + (a-1)/q and b = a/a',

  H_a((1-q)R + qP' || (1-q)R + qQ') = q H_a'(P' || (1-b)R + bQ') <= q H_a'(N(mu,1) || N(0,1)),

which is H_a of the present-against-absent pair; for a < 1 exchanging the roles gives the absent-
against-present pair. Equality for a >= 1: n - 1 records equal to the new one. The two halves meet
at a = 1 in a convex profile, so they are one distribution with an atom at loss 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

LOST = 1e-20
"""Mass at either end of one batch's loss that is counted as lost."""
REACH = -float(ndtri(LOST))


def poisson_distribution(rate: float, mu: float, step: float, replaced: bool) -> Any:
    """One Poisson batch; ``replaced``: under replace_one, otherwise a record is there or not."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if replaced:
        return pld.PrivacyLossDistribution(_replaced(rate, mu, step))
    present = joined(step, _present(rate, mu, step))
    return pld.PrivacyLossDistribution(present, joined(step, _absent(rate, mu, step)))


def fixed_size_distribution(rate: float, mu: float, step: float) -> Any:
    """One batch of fixed size under replace_one: both directions have the same profile."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    gains, losses = _absent(rate, mu, step), _present(rate, mu, step)
    below, above = gains[0] < 0, losses[0] >= 0
    lower = gains[0][below], gains[1][below], gains[2][below]
    upper = losses[0][above], losses[1][above], losses[2][above]
    return pld.PrivacyLossDistribution(joined(step, lower, upper))


Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Intervals of the loss by the index of their lower grid point, with their masses under P, Q."""


def _present(rate: float, mu: float, step: float) -> Cells:
    top = _log_mix(rate, mu * (mu + REACH) - mu**2 / 2)
    place, edges = grid(_log_mix(rate, -mu * REACH - mu**2 / 2), top, step)
    x = _inverse(rate, mu, edges)
    q = between(x)
    return place, (1 - rate) * q + rate * between(x - mu), q


def _absent(rate: float, mu: float, step: float) -> Cells:
    top = -math.log1p(-rate)
    place, edges = grid(-_log_mix(rate, mu * REACH - mu**2 / 2), top, step)
    x = _inverse(rate, mu, -edges)[::-1]
    p = between(x)
    return place, p[::-1], ((1 - rate) * p + rate * between(x - mu))[::-1]


def _replaced(rate: float, mu: float, step: float) -> Any:
    far = mu + REACH
    top = _log_mix(rate, mu * far - mu**2 / 2) - _log_mix(rate, -mu * far - mu**2 / 2)
    place, edges = grid(-top, top, step)
    # log u = e/2 + asinh(b) solves q c u^2 + (1-q)(1-e^e) u - e^e q c = 0 with u = e^(mu x).
    with np.errstate(divide="ignore", over="ignore"):
        half = np.abs(edges) / 2
        log_b = math.log1p(-rate) - math.log(rate) + mu**2 / 2
        log_b = log_b + half + np.log(-np.expm1(-2 * half)) - math.log(2)
        u = half + np.where(log_b > 300, math.log(2) + log_b, np.arcsinh(np.exp(log_b)))
    x = np.sign(edges) * u / mu
    middle = (1 - rate) * between(x)
    return joined(step, (place, middle + rate * between(x - mu), middle + rate * between(x + mu)))


def joined(step: float, *parts: Cells) -> Any:
    """Move each interval's mass to its ends, keeping its mass under P and under Q."""
    from dp_accounting.pld import pld_pmf

    first = min(int(place[0]) for place, _, _ in parts)
    last = max(int(place[-1]) for place, _, _ in parts) + 1
    mass = np.zeros(last - first + 1)
    for place, p, q in parts:
        with np.errstate(over="ignore", invalid="ignore"):
            upper = (p - np.exp(place * step) * q) / -math.expm1(-step)
        upper = np.clip(np.where(np.isfinite(upper), upper, p), 0.0, p)
        mass[place - first] += p - upper
        mass[place - first + 1] += upper
    # What lies below the grid rounds up to its first point; an atom at 0 joins two halves.
    rest = max(1.0 - float(mass.sum()) - LOST, 0.0)
    mass[-first if len(parts) > 1 else 0] += rest
    # Masses far below LOST overflow in dp-accounting's tail bounds; they count as lost, too.
    tiny = mass < 1e-40
    lost = LOST + float(mass[tiny].sum())
    mass[tiny] = 0.0
    return pld_pmf.DensePLDPmf(step, first, mass, lost, pessimistic_estimate=True)


def grid(low: float, high: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the intervals that cover [low, high], and their ends."""
    edges = np.arange(math.floor(low / step), max(math.ceil(high / step), 1) + 1)
    return edges[:-1], edges * step


def _inverse(rate: float, mu: float, loss: np.ndarray) -> np.ndarray:
    """Where log(1 - q + q e^(mu x - mu^2/2)) takes the value ``loss``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # log(1 + (e^loss - 1)/q), for large losses without overflow
        odds = np.where(
            loss > 30,
            loss - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(loss, 0.0))),
            np.log1p(np.expm1(np.minimum(loss, 30.0)) / rate),
        )
    odds = np.where(np.isnan(odds), -np.inf, odds)
    return odds / mu + mu / 2


def _log_mix(rate: float, t: float) -> float:
    """log(1 - q + q e^t)."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + t))


def between(x: np.ndarray) -> np.ndarray:
    """Standard normal mass between successive points, from the nearer tail."""
    low, high = x[:-1], x[1:]
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    return np.maximum(ndtr(b) - ndtr(a), 0.0)
