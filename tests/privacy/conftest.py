"""Independent answers: closed forms at 50 digits, plain quadrature, exact sums. No privopt here."""

import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfcx, ndtr

DIGITS = 50


def gaussian_delta_50(epsilon, mu):
    """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu); 40 guard digits for the cancellation."""
    with mp.workdps(DIGITS + 40):
        epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
        phi = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731
        return phi(mu / 2 - epsilon / mu) - mp.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def gaussian_delta_mills(epsilon, mu):
    """The same profile by Mills ratios: both terms share the density phi(mu/2 - eps/mu)."""
    epsilon = np.asarray(epsilon, dtype=float)
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    shared = np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    mills = lambda x: math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))  # noqa: E731
    tail = shared * (mills(-np.minimum(a, 0.0)) - mills(-np.minimum(b, 0.0)))
    body = ndtr(a) - np.exp(np.minimum(epsilon, 700.0)) * ndtr(b)
    return np.where(a < 0, tail, body)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(30)


def rule(edges):
    """Gauss-Legendre nodes and weights on consecutive panels."""
    edges = np.unique(np.asarray(edges, dtype=float))
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * _NODES).ravel(), (half * _WEIGHTS).ravel()


def density(z):
    return np.exp(-(np.asarray(z) ** 2) / 2) / math.sqrt(2 * math.pi)


def mean_over_normal(value, *breaks, sensitivity=14.0, fine=0.25):
    """E value(Z) by panels that end at every given break (and crowd around it)."""
    edges = [np.arange(-sensitivity, sensitivity + fine, fine)]
    for point in breaks:
        edges.append([point])
    edges = np.clip(np.concatenate([np.ravel(e) for e in edges]), -sensitivity, sensitivity)
    z, w = rule(edges)
    return float(np.sum(w * density(z) * value(z)))


def hockey(loss, t, *breaks):
    """E (1 - e^(t - loss(Z)))_+ straight from the definition."""
    return mean_over_normal(lambda z: -np.expm1(np.minimum(t - loss(z), 0.0)), *breaks)


def folded_then_gaussian(epsilon, mu_g, shift, slope):
    """Profile of shift + slope |Z| composed with mu_g-GDP, conditioning on the folded loss."""
    at = (epsilon - shift) / slope
    edges = np.concatenate(
        [np.linspace(0, 14, 57), np.clip(at + mu_g / slope * np.linspace(-14, 14, 57), 0, 14)]
    )
    z, w = rule(edges)
    inner = _after(epsilon - shift - slope * z, mu_g)
    return float(2 * np.sum(w * density(z) * inner))


def truncated_then_gaussian(epsilon, mu_g, c, mu):
    """Profile of c + (mu^2/2 + mu Z)_+ composed with mu_g-GDP, conditioning on the loss."""
    kink = -mu / 2
    at = (epsilon - c - mu**2 / 2) / mu
    edges = np.concatenate(
        [
            np.linspace(kink, kink + 14 + mu, 57),
            np.clip(at + mu_g / mu * np.linspace(-14, 14, 57), kink, kink + 14 + mu),
        ]
    )
    z, w = rule(edges)
    inner = _after(epsilon - c - mu**2 / 2 - mu * z, mu_g)
    atom = float(ndtr(kink)) * float(_after(np.array([epsilon - c]), mu_g)[0])
    return atom + float(np.sum(w * density(z) * inner))


def _after(t, mu_g):
    return -np.expm1(np.minimum(t, 0.0)) if mu_g == 0 else gaussian_delta_mills(t, mu_g)


def response_delta(epsilon_each, count, epsilon):
    """Exact profile of ``count`` randomised responses: a binomial sum at 50 digits."""
    with mp.workdps(DIGITS):
        each, epsilon = mp.mpf(epsilon_each), mp.mpf(epsilon)
        likely = 1 / (1 + mp.exp(-each))
        total = mp.mpf(0)
        for truths in range(count, -1, -1):
            loss = (2 * truths - count) * each
            if loss <= epsilon:
                break
            mass = mp.binomial(count, truths) * likely**truths * (1 - likely) ** (count - truths)
            total += mass * (1 - mp.exp(epsilon - loss))
        return total


def renyi_conversion(curve, delta, points=40001):
    """Brute force over 40001 orders of the conversion of Canonne, Kamath and Steinke."""
    excess = np.exp(np.linspace(-7.3, 14.3, points))
    alpha = 1 + excess
    return float(np.min(curve(alpha) + np.log(excess / alpha) - np.log(delta * alpha) / excess))


@pytest.fixture(scope="session")
def exact():
    return SimpleNamespace(
        gaussian_delta=gaussian_delta_50,
        gaussian_delta_mills=gaussian_delta_mills,
        rule=rule,
        density=density,
        mean_over_normal=mean_over_normal,
        hockey=hockey,
        folded_then_gaussian=folded_then_gaussian,
        truncated_then_gaussian=truncated_then_gaussian,
        response_delta=response_delta,
        renyi_conversion=renyi_conversion,
    )
