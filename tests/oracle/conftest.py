"""The slow truth: one record at a time, in plain Python floats, sharing no code with privopt."""

import math
from types import SimpleNamespace

import pytest

from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared


def effective_row(x, data_norm, intercept=0.0):
    """Features clipped to ``data_norm``, then the constant column; no square is ever taken."""
    x = [float(v) for v in x]
    largest = max((abs(v) for v in x), default=0.0)
    if largest > 0:
        # Not v / largest * size: a row inside the bound must come back bit for bit.
        size = largest * math.hypot(*(v / largest for v in x))
        if size > data_norm:
            length = math.hypot(*(v / largest for v in x))
            # A norm is rounded up, so that a clipped row is never longer than the bound.
            x = [v / largest / length * data_norm / (1 + (len(x) + 32) * 2**-52) for v in x]
    return [*x, intercept] if intercept else x


def is_empty(x, y):
    return not (math.isfinite(y) and all(math.isfinite(v) for v in x))


def _clip(value, bound):
    return max(-bound, min(bound, value))


def slope(loss, z, y):
    match loss:
        case Logistic():
            m = y * z
            return -y / (1 + math.exp(m)) if m < 700 else 0.0
        case Squared(residual_clip=None):
            return z - y
        case Squared(residual_clip=w) | Huber(width=w):
            return _clip(z - y, w)
        case Hinge():
            return -y if y * z < 1 else 0.0
        case SmoothedHinge(width=w):
            m = y * z
            return 0.0 if m >= 1 + w else -y if m <= 1 - w else -y * (1 + w - m) / (2 * w)
        case Absolute():
            return float((z > y) - (z < y))
        case Quantile(q=q):
            return (1 - q) * (z > y) - q * (z < y)
    raise NotImplementedError(loss)


def curvature(loss, z, y):
    match loss:
        case Logistic():
            e = math.exp(-abs(z)) if abs(z) < 700 else 0.0
            return e / (1 + e) ** 2
        case Squared(residual_clip=None):
            return 1.0
        case Squared(residual_clip=w) | Huber(width=w):
            return float(abs(z - y) < w)
        case SmoothedHinge(width=w):
            return 1 / (2 * w) * float(abs(1 - y * z) < w)
    return 0.0


def value(loss, z, y):
    match loss:
        case Logistic():
            m = y * z
            return math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
        case Squared(residual_clip=None):
            return (z - y) ** 2 / 2
        case Squared(residual_clip=w) | Huber(width=w):
            r = abs(z - y)
            return r * r / 2 if r <= w else w * r - w * w / 2
        case SmoothedHinge(width=w):
            m = y * z
            return 0.0 if m >= 1 + w else 1 - m if m <= 1 - w else (1 + w - m) ** 2 / (4 * w)
    raise NotImplementedError(loss)


def _sign(loss, y):
    return (1.0 if y > 0 else -1.0) if loss.classification else float(y)


def records(X, y, data_norm, intercept, loss):
    """(effective row, label) of every record that is not empty."""
    return [
        (effective_row(x, data_norm, intercept), _sign(loss, label))
        for x, label in zip(X, y, strict=True)
        if not is_empty([float(v) for v in x], float(label))
    ]


def clipped_gradient(loss, X, y, theta, clip_norm, data_norm, intercept=0.0):
    parts = [[] for _ in theta]
    for row, label in records(X, y, data_norm, intercept, loss):
        s = slope(loss, math.fsum(a * b for a, b in zip(row, theta, strict=True)), label)
        gradient = [s * v for v in row]
        size = math.hypot(*gradient)
        factor = clip_norm / size if size > clip_norm else 1.0
        for part, g in zip(parts, gradient, strict=True):
            part.append(factor * g)
    return [math.fsum(part) for part in parts]


def gradient(loss, X, y, theta, data_norm, intercept=0.0):
    return clipped_gradient(loss, X, y, theta, math.inf, data_norm, intercept)


def total_value(loss, X, y, theta, data_norm, intercept=0.0):
    return math.fsum(
        value(loss, math.fsum(a * b for a, b in zip(row, theta, strict=True)), label)
        for row, label in records(X, y, data_norm, intercept, loss)
    )


def hessian(loss, X, y, theta, data_norm, intercept=0.0):
    parts = [[[] for _ in theta] for _ in theta]
    for row, label in records(X, y, data_norm, intercept, loss):
        h = curvature(loss, math.fsum(a * b for a, b in zip(row, theta, strict=True)), label)
        for i, a in enumerate(row):
            for j, b in enumerate(row):
                parts[i][j].append(h * a * b)
    return [[math.fsum(part) for part in line] for line in parts]


@pytest.fixture(scope="session")
def naive():
    return SimpleNamespace(
        effective_row=effective_row,
        clipped_gradient=clipped_gradient,
        gradient=gradient,
        value=total_value,
        hessian=hessian,
    )
