"""Open-ended noise against its dense matrix: loss, error, buffers."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.privacy import Refused
from privopt.privacy.factorizations import Honaker
from privopt.privacy.factorizations.open_ended import OpenEnded, _scale
from privopt.privacy.participation import Participation

STEPS = 75
SINGLE = Participation.single_pass()


@pytest.fixture(scope="module")
def dense():
    """C and B = A C^-1 as matrices."""
    C = OpenEnded().encode(np.eye(STEPS))
    return C, np.tril(np.ones((STEPS, STEPS))) @ np.linalg.inv(C)


@pytest.mark.parametrize("released", [1, 2, 3, 7, 40, 75])
def test_a_record_that_comes_once_loses_the_same_for_ever(dense, released):
    C = dense[0][:released, :released]
    assert np.abs(np.triu(C, 1)).max(initial=0.0) == 0.0
    assert (C**2).sum(axis=0).max() == pytest.approx(1.0, abs=1e-12)
    assert OpenEnded().sensitivity_squared(SINGLE, released) == 1.0


def test_losses_of_patterns(dense):
    patterns = [(0,), (5,), (1, 2), (1, 5, 30), (7, 70), ()]
    gram = dense[0].T @ dense[0]
    exact = [np.abs(gram[np.ix_(p, p)]).sum() if p else 0.0 for p in patterns]
    np.testing.assert_allclose(OpenEnded().losses_squared(patterns, STEPS), exact, atol=1e-12)
    assert gram.min() >= -1e-12  # equal contributions are the worst
    twice = Participation.separated(2, 1)
    assert OpenEnded().sensitivity_squared(twice, STEPS) >= max(
        gram[np.ix_(p, p)].sum() for p in [(i, i + 1) for i in range(STEPS - 1)]
    )


def test_error_and_noise(dense):
    """Row norms, and a stream fed with unit vectors, equal those of the matrix."""
    noise = OpenEnded()
    norms = [noise.row_norm(t) for t in range(1, STEPS + 1)]
    np.testing.assert_allclose(norms, np.linalg.norm(dense[1], axis=1), rtol=1e-12)
    draws = iter(np.eye(STEPS))
    stream = noise.stream()
    rows = []
    for step in range(STEPS):
        rows.append(stream.next(lambda: next(draws).copy()))
        if step in (0, 6, 12, 30):  # go on from what was kept, at and between restarts
            kept = stream.state_dict()
            stream = noise.stream()
            stream.load_state_dict(kept)
    np.testing.assert_allclose(np.array(rows), np.linalg.inv(dense[0]), atol=1e-12)


def test_scales_are_the_sensitivities_of_their_trees():
    for tree in range(11):
        exact = Honaker(2**tree).sensitivity_squared(SINGLE)
        assert _scale(tree) ** 2 == pytest.approx(exact, rel=1e-12)


def test_a_tenth_more_noise_than_a_known_horizon():
    known = Honaker(1023)
    worst = known.errors(known.sensitivity_squared(SINGLE))[0]
    mine = max(OpenEnded().row_norm(t) for t in range(1, 1024))
    assert 1.05 < mine / worst < 1.3


def test_there_is_no_last_row():
    with pytest.raises(Refused, match="no last step"):
        OpenEnded().row_norms()
