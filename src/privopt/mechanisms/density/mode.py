"""The least potential on the body: where a density without noise would sit."""

from __future__ import annotations

import numpy as np

from privopt.mechanisms.density.target import Target

MOST_STEPS = 400


def mode(target: Target, tolerance: float = 1e-12) -> np.ndarray:
    """Near the minimiser, by accelerated projected gradient steps; no certificate is needed."""
    body = target.body
    best = at = ahead = body.centre.copy()
    value = least = float(target.potentials(at[None])[0])
    length, momentum = 1.0, 1.0
    for _ in range(MOST_STEPS):
        slope = target.gradient(ahead)
        here = float(target.potentials(ahead[None])[0])
        for _ in range(60):
            step = body.project(ahead - length * slope)
            move = step - ahead
            there = float(target.potentials(step[None])[0])
            if there <= here + slope @ move + move @ move / (2 * length) + 1e-13 * abs(here):
                break
            length /= 2
        if there < least:
            best, least = step, there
        if float(np.linalg.norm(step - at)) <= tolerance * body.radius:
            break
        # A step uphill forgets the momentum.
        following = 1.0 if there > value else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = step + (momentum - 1) / following * (step - at) if there <= value else step
        at, value, momentum, length = step, there, following, 1.3 * length
    return best
