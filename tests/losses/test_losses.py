"""Properties that every loss must have."""

import dataclasses
import math
import pickle

import numpy as np
import pytest

from privopt.losses import (
    Absolute,
    CappedExponential,
    CappedLogistic,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Quantile,
    Smoothed,
    SmoothedHinge,
    SmoothedQuantile,
    Squared,
)

LOSSES = [
    Logistic(),
    CappedExponential(),
    CappedLogistic(),
    CappedLogistic(cap=0.25),
    CappedLogistic(cap=0.8),
    CappedLogistic(cap=1.0),
    Squared(),
    Squared(residual_clip=0.7),
    Huber(),
    Huber(width=2.5),
    Hinge(),
    SmoothedHinge(),
    SmoothedHinge(width=0.05),
    Absolute(),
    Quantile(0.5),
    Quantile(0.9),
    Quantile(0.1),
    SmoothedQuantile(0.5),
    SmoothedQuantile(0.9, width=0.7),
    SmoothedQuantile(0.1, width=0.05),
    Smoothed(Absolute(), 0.3),
    Smoothed(Quantile(0.2), 0.1),
    Smoothed(Hinge(), 0.4),
]
GRID = np.linspace(-6.0, 6.0, 24_001)
every = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def labels_of(loss: Loss) -> tuple[float, ...]:
    return (-1.0, 1.0) if loss.classification else (-1.3, 0.0, 0.4, 2.0)


def kinks_of(loss: Loss, y: float) -> list[float]:
    """Where the slope or the curvature jumps."""
    match loss:
        case Logistic() | Squared(residual_clip=None):
            return []
        case CappedLogistic(cap=1.0):
            return []
        case CappedExponential():
            return [0.0]
        case CappedLogistic(cap=cap):
            return [y * math.log(1 / cap - 1)]
        case Squared(residual_clip=w) | Huber(width=w) | SmoothedQuantile(width=w):
            return [y - w, y + w]
        case Smoothed(loss=Absolute() | Quantile(), width=w):
            return [y - w, y + w]
        case SmoothedHinge(width=w) | Smoothed(loss=Hinge(), width=w):
            return [y * (1.0 - w), y * (1.0 + w)]
    return [y]


def away_from_kinks(loss: Loss, y: float) -> np.ndarray:
    far = [np.abs(GRID - kink) > 1e-3 for kink in kinks_of(loss, y)]
    return GRID[np.all(far, axis=0)] if far else GRID


@every
def test_slope_is_the_derivative_of_the_value(loss):
    h = 1e-6
    for y in labels_of(loss):
        z = away_from_kinks(loss, y)
        differences = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.slope(z, y), differences, atol=1e-8)


@every
def test_curvature_is_the_derivative_of_the_slope(loss):
    h = 1e-6
    for y in labels_of(loss):
        z = away_from_kinks(loss, y)
        differences = (loss.slope(z + h, y) - loss.slope(z - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.curvature(z, y), differences, atol=1e-8)


@every
def test_slope_is_a_subgradient_everywhere_kinks_included(loss):
    for y in labels_of(loss):
        for z in [*kinks_of(loss, y), 0.0, y, -4.0]:
            at = np.array([z])
            line = loss.value(at, y) + loss.slope(at, y) * (GRID - z)
            assert (loss.value(GRID, y) - line).min() >= -1e-12


@every
def test_lipschitz_is_attained_and_never_exceeded(loss):
    steepest = max(np.abs(loss.slope(GRID * 10, y)).max() for y in labels_of(loss))
    if math.isinf(loss.lipschitz):
        assert steepest > 50.0
    else:
        assert loss.lipschitz * (1 - 1e-3) <= steepest <= loss.lipschitz


@every
def test_smoothness_is_attained_and_never_exceeded(loss):
    for y in labels_of(loss):
        slope, curvature = loss.slope(GRID, y), loss.curvature(GRID, y)
        quotients = np.abs(np.diff(slope) / np.diff(GRID))
        if loss.smooth:
            assert quotients.max() == pytest.approx(loss.smoothness, rel=1e-3)
            assert quotients.max() <= loss.smoothness * (1 + 1e-9)
            assert curvature.max() == pytest.approx(loss.smoothness, rel=1e-3)
            assert curvature.max() <= loss.smoothness
        else:
            # A jump of the slope: the quotient grows like the inverse of the step.
            assert loss.smoothness == math.inf
            assert quotients.max() > 100.0


@every
def test_convexity_and_strong_convexity(loss):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-6, 6, size=(2, 20_000))
    assert loss.convex
    for y in labels_of(loss):
        middle = loss.value(0.5 * (a + b), y)
        chord = 0.5 * (loss.value(a, y) + loss.value(b, y))
        assert (chord - middle - loss.strong_convexity * (a - b) ** 2 / 8).min() >= -1e-12
        smallest = loss.curvature(away_from_kinks(loss, y) * 3, y).min()
        assert smallest == pytest.approx(loss.strong_convexity, abs=1e-6)


@every
def test_one_signed_says_whether_the_slope_changes_its_sign(loss):
    slopes = [loss.slope(GRID, y) for y in labels_of(loss)]
    changes = any((s > 0).any() and (s < 0).any() for s in slopes)
    assert loss.one_signed is not changes
    classifiers = Logistic | CappedExponential | CappedLogistic | Hinge | SmoothedHinge
    inner = loss.loss if isinstance(loss, Smoothed) else loss
    assert loss.classification is isinstance(inner, classifiers)


@every
@pytest.mark.parametrize("size", [40.0, 1e3, 1e10, 1e154, 1e300])
def test_extreme_margins_stay_finite(loss, size):
    z = np.array([-size, size])
    for y in labels_of(loss):
        slope, curvature = loss.slope(z, y), loss.curvature(z, y)
        assert np.isfinite(slope).all()
        assert np.isfinite(curvature).all()
        assert np.abs(slope).max() <= loss.lipschitz
        value = loss.value(z, y)
        assert not np.isnan(value).any()
        if math.isfinite(loss.lipschitz):
            assert np.isfinite(value).all()
            # A Lipschitz function is at most that far from its value at zero.
            rise = np.abs(value - loss.value(np.zeros(2), y)).max()
            assert rise <= loss.lipschitz * size * (1 + 1e-12)


@every
@pytest.mark.parametrize("margin", [0.3, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("label", [0.0, 0.5, 1.0, 4.0])
def test_range_is_the_largest_over_the_labels(loss, margin, label):
    z = np.linspace(-margin, margin, 4001)
    labels = (-1.0, 1.0) if loss.classification else np.linspace(-label, label, 41)
    ranges = [np.ptp(loss.value(z, y)) for y in labels]
    claimed = loss.range_on(margin, label)
    assert max(ranges) <= claimed * (1 + 1e-12)
    assert max(ranges) == pytest.approx(claimed, rel=1e-5)


@every
def test_range_without_bounds(loss):
    assert loss.range_on(0.0, 3.0) == 0.0
    assert loss.range_on(0.0, math.inf) == 0.0
    assert loss.range_on(math.inf, 1.0) == math.inf
    if loss.classification:
        assert loss.range_on(2.0, math.inf) == loss.range_on(2.0, 1.0)
    else:
        assert loss.range_on(2.0, math.inf) == 4.0 * loss.lipschitz
        assert loss.range_on(2.0, 1e250) == pytest.approx(min(4e250, 4.0 * loss.lipschitz))


@every
def test_constants_of_the_record_loss(loss):
    # |l(a) - l(b)| <= L ||a - b||_1 when every row's linf norm is at most 2.
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, size=(2000, 3))
    a, b = rng.normal(size=(2, 3)) * 4
    for y in labels_of(loss):
        move = np.abs(loss.value(x @ a, y) - loss.value(x @ b, y)).max()
        assert move <= loss.lipschitz_in("l1", 2.0) * np.abs(a - b).sum()
    assert loss.lipschitz_in("l2", 2.0) == 2.0 * loss.lipschitz
    assert loss.smoothness_in("linf", 3.0) == 9.0 * loss.smoothness
    assert loss.lipschitz_in("l2", 0.0) == loss.smoothness_in("l2", 0.0) == 0.0
    with pytest.raises(ValueError, match="data_bound"):
        loss.lipschitz_in("l2", math.nan)
    with pytest.raises(ValueError, match="'l1', 'l2', 'linf'"):
        loss.smoothness_in("l3", 1.0)
    with pytest.raises(ValueError, match="margin_bound"):
        loss.range_on(-1.0, 1.0)


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_are_untouched_and_the_type_is_kept(loss, dtype):
    z = np.linspace(-3, 3, 7, dtype=dtype)
    y = np.where(z > 0, dtype(1), dtype(-1))
    z.setflags(write=False)
    y.setflags(write=False)
    for method in (loss.value, loss.slope, loss.curvature):
        result = method(z, y)
        assert result.dtype == dtype
        assert result.shape == z.shape
        assert not np.shares_memory(result, z)


@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_agrees_with_numpy(loss, dtype):
    torch = pytest.importorskip("torch")
    z = np.array([-1e30, -700.0, -1.0, -0.5, 0.0, 0.3, 1.0, 1.05, 2.0, 800.0, 1e30], dtype=dtype)
    z = np.concatenate([z, np.linspace(-4, 4, 101, dtype=dtype)])
    for y in (np.ones_like(z), -np.ones_like(z), np.where(z > 0.2, 1, -1).astype(np.int8)):
        for name in ("value", "slope", "curvature"):
            result = getattr(loss, name)(torch.from_numpy(z), torch.from_numpy(y))
            assert isinstance(result, torch.Tensor)
            expected = getattr(loss, name)(z, y)
            rtol = 1e-5 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=rtol)


@every
def test_equal_by_value_hashable_picklable_and_frozen(loss):
    copy = pickle.loads(pickle.dumps(loss))
    assert copy == loss
    assert hash(copy) == hash(loss)
    assert len({*LOSSES, copy}) == len(LOSSES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.width = 3.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Squared(residual_clip=0.0), "positive finite residual_clip"),
        (lambda: Squared(residual_clip=math.inf), "positive finite residual_clip"),
        (lambda: Huber(width=-1.0), "positive finite width"),
        (lambda: Huber(width=math.nan), "positive finite width"),
        (lambda: SmoothedHinge(width=0.0), "positive finite width"),
        (lambda: SmoothedQuantile(0.5, width=0.0), "positive finite width"),
        (lambda: SmoothedQuantile(1.0), "strictly between 0 and 1"),
        (lambda: CappedLogistic(cap=0.0), r"cap must lie in \(0, 1\]"),
        (lambda: CappedLogistic(cap=-0.5), r"cap must lie in \(0, 1\]"),
        (lambda: CappedLogistic(cap=1.001), r"cap must lie in \(0, 1\]"),
        (lambda: CappedLogistic(cap=math.nan), r"cap must lie in \(0, 1\]"),
        (lambda: Quantile(0.0), "strictly between 0 and 1"),
        (lambda: Quantile(math.nan), "strictly between 0 and 1"),
    ],
)
def test_invalid_losses_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
