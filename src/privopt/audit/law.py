"""Whether the noise that was drawn follows the law that the log declares.

Replay does not see the noise. Here each recorded release is compared with its own event: a release
that declares mu must show noise of standard deviation radius/mu, whoever wrote the mechanism.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from privopt.audit.replay import Release, Tape, in_units
from privopt.audit.shape import scale_p_values, shape_p_values
from privopt.mechanisms import CorrelatedGaussian
from privopt.mechanisms.mechanism import Choosing, Described
from privopt.mechanisms.standard import Coins
from privopt.noise import SeededSource
from privopt.privacy.kinds import GaussianKind


def noise_p_value(tapes: list[Tape], seed: int = 0) -> float:
    """Two-sided p-value of the declared law of the noise, over all releases of all tapes together.

    Each mechanism says of its releases what their noise was, in numbers that are independent and
    standard normal if it follows its event (``mechanisms.standard``). Their scale and their
    distribution are tested for each mechanism and declared loss apart: in one sum, many releases
    with the right noise would hide one with none. Their independence, over coordinates, between
    releases and between runs, is tested over all releases of one size, whatever they declare. A
    stream's correlated noise is first turned back into the independent Gaussians its factorization
    declares. The smallest p-value is taken, times the number of tests.

    ``seed`` draws the directions and the coins of the draws. A mechanism that does not describe its
    noise is refused.
    """
    coins, generator = Coins(seed), SeededSource(seed + 2).noise
    groups: dict[Any, list[np.ndarray]] = {}
    runs: dict[int, list[list[np.ndarray]]] = {}
    for tape in tapes:
        sizes: dict[int, list[np.ndarray]] = {}
        for release, z in _described(tape.releases, coins):
            groups.setdefault(_key(release), []).append(z)
            if z.size:
                sizes.setdefault(z.size, []).append(z)
        for size, noise in sizes.items():
            runs.setdefault(size, []).append(noise)
    found = [p for noise in groups.values() for p in scale_p_values(noise, generator)]
    found += [p for noise in runs.values() for p in shape_p_values(noise, generator)]
    choices: dict[Any, list[Release]] = {}
    for tape in tapes:
        for release in tape.releases:
            if isinstance(release.mechanism, Choosing):
                choices.setdefault(_key(release), []).append(release)
    found += [_choice_p_value(releases) for releases in choices.values()]
    return min(1.0, len(found) * min(found)) if found else 1.0


def _choice_p_value(releases: list[Release]) -> float:
    """What a likelihood ratio test of the scale looks at: the chosen scores in units of the noise,
    less their means. Their sum is close to normal with the summed variance."""
    excess = variance = 0.0
    for release in releases:
        mechanism = release.mechanism
        assert isinstance(mechanism, Choosing)
        kind = release.event.kinds[0]
        scaled, chances = mechanism.chances(release.payload, release.sensitivity, kind)
        mean = float(chances @ scaled)
        excess += float(scaled[release.result]) - mean
        variance += float(chances @ (scaled - mean) ** 2)
    return 1.0 if variance == 0 else 2 * float(ndtr(-abs(excess) / math.sqrt(variance)))


def _key(release: Release) -> Any:
    return type(release.mechanism).__name__, release.event.kinds


def _described(releases: list[Release], coins: Coins) -> list[tuple[Release, np.ndarray]]:
    """The noise of one run's releases, each as independent standard normal numbers."""
    found: list[tuple[Release, np.ndarray]] = []
    streams: dict[tuple[int, Any], list[Release]] = {}
    for release in releases:
        mechanism = release.mechanism
        if isinstance(mechanism, CorrelatedGaussian):
            assert release.event.position is not None
            key = id(release.event.position.path), _key(release)
            streams.setdefault(key, []).append(release)
        elif isinstance(mechanism, Described):
            kind = release.event.kinds[0]
            given = release.payload, release.result, release.sensitivity, kind, coins
            found.append((release, mechanism.standard_noise(*given)))
        else:
            raise NotImplementedError(
                f"{type(mechanism).__name__} does not describe its noise: give it a method "
                "standard_noise, with which its law can be tested."
            )
    for steps in streams.values():
        found += zip(steps, _fresh(steps), strict=True)
    return found


def _fresh(releases: list[Release]) -> np.ndarray:
    """The independent Gaussians behind a stream, one row a step."""
    first = releases[0]
    kind, row, sensitivity = first.event.kinds[0], first.event.position, first.sensitivity
    assert isinstance(kind, GaussianKind)
    assert row is not None
    noise = [np.ravel(one.result - in_units(one.payload, one.sensitivity)) for one in releases]
    return row.path.factorization.encode(np.array(noise) * (kind.mu / sensitivity.radius))
