"""The law test sees how noise is spread, not its energy alone. False alarms: 1e-5 each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.audit import noise_p_value
from privopt.audit.replay import Release, Tape
from privopt.mechanisms import Gaussian, GeneralizedGaussian, KNorm, Laplace, NormGamma
from privopt.noise import SeededSource
from privopt.oracle import Sensitivity
from privopt.privacy.events import Event

MECHANISMS = [
    Gaussian(2.0),
    Laplace(2.0),
    NormGamma(2.0),
    GeneralizedGaussian(2.0, 3.0),
    KNorm(2.0, 1.5),
]


def tapes(mechanism, spread, runs=40, releases=6):
    """Recorded runs whose noise, a three by three matrix, was tampered with by ``spread``."""
    sensitivity, source = Sensitivity(mechanism.accepts, 0.5, 0.5), SeededSource(3)
    event, found = Event("sum", mechanism.kinds(sensitivity)), []
    for _ in range(runs):
        noise = [mechanism.run(np.zeros((3, 3)), sensitivity, source) for _ in range(releases)]
        found.append(
            Tape(
                [
                    Release(mechanism, np.ones((3, 3)), sensitivity, event, 1 + z)
                    for z in spread(noise)
                ]
            )
        )
    return found


def shared(noise):
    """One number in every entry, with the right energy."""
    return [np.full((3, 3), np.sign(z[0, 0]) * np.linalg.norm(z) / 3) for z in noise]


def diagonal(noise):
    return [np.eye(3) * np.linalg.norm(z) / math.sqrt(3) for z in noise]


def reused(noise):
    """Every second release repeats the noise before it."""
    return [z for z in noise[::2] for _ in (0, 1)]


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_honest_noise_passes(mechanism):
    assert noise_p_value(tapes(mechanism, lambda noise: noise)) > 1e-5


@pytest.mark.statistical
@pytest.mark.parametrize("spread", [shared, diagonal, reused])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_noise_of_the_wrong_shape_is_found(mechanism, spread):
    assert noise_p_value(tapes(mechanism, spread)) < 1e-9


@pytest.mark.statistical
def test_noise_reused_between_runs_is_found():
    honest = tapes(Gaussian(2.0), lambda noise: noise, runs=20, releases=1)
    assert noise_p_value([tape for tape in honest for _ in (0, 1)]) < 1e-4
