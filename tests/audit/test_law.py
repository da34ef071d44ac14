"""The law test sees noise that is too quiet or too loud, for choices as for sums."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.audit import noise_p_value
from privopt.audit.replay import Release, Tape
from privopt.mechanisms import ExponentialMechanism, PermuteAndFlip
from privopt.noise import SeededSource
from privopt.oracle import Sensitivity
from privopt.privacy.events import Event

SCORES = np.array([0.0, 1.0, 3.0, 4.0, -2.0])


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (0.5, True), (2.0, True)])
def test_a_choice_with_the_wrong_scale_is_found(kind, factor, found):
    """400 choices, seeded. False alarm: 1e-4."""
    sensitivity, declared, source = Sensitivity("range", 2.0, 2.0), kind(1.0), SeededSource(1)
    event = Event("choice", declared.kinds(sensitivity))
    releases = [
        Release(declared, SCORES, sensitivity, event, kind(factor).run(SCORES, sensitivity, source))
        for _ in range(400)
    ]
    p = noise_p_value([Tape(releases)])
    assert (p < 1e-6) if found else (p > 1e-4)
