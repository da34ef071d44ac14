"""kill -9 at every point of a step: nothing is lost, repeated or left out of the account."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from privopt.privacy.factorizations import Honaker
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu

from . import crashes

PROGRAM = Path(crashes.__file__)
BEFORE = 2


def crashed(home, before, kind):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(home), str(before), kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def home():
    """In memory where that is possible: a disk takes its time to flush."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def numbered(home):
    return crashed(home, BEFORE, "numbered")


@pytest.fixture(scope="module")
def secure(home):
    return crashed(home, BEFORE, "secure")


@pytest.mark.slow
def test_there_are_many_places_to_die(numbered):
    killed = [one for one in numbered if one["killed"]]
    assert len(killed) >= 15
    assert {one["done"] for one in killed} == {BEFORE, BEFORE + 1}


@pytest.mark.slow
def test_a_resumed_run_is_the_run_that_never_crashed(numbered, tmp_path):
    """With the same draws in the same steps the last model is the same, bit for bit: buffers and
    sums were those of the last committed step."""
    model = crashes.feed(crashes.estimator(tmp_path / "calm", crashes.Numbered()), 0, crashes.STEPS)
    for one in numbered:
        np.testing.assert_array_equal(one["coef"], model.coef_)
        assert one["steps"] == crashes.STEPS
        assert one["files"] == ["lock", "model", f"noise-{crashes.STEPS}", "records"]


@pytest.mark.slow
def test_a_step_is_committed_whole_or_not_at_all(secure):
    """Epsilon after the restart is that of the committed steps, and of all steps at the end."""
    noise, rule = Honaker(crashes.STEPS), Participation()
    whole = noise.sensitivity_squared(rule)
    for one in secure:
        assert one["done"] in (BEFORE, BEFORE + 1)
        share = noise.sensitivity_squared(rule, one["done"]) / whole
        mu = gaussian_mu(2.0, 1e-5) * share**0.5
        assert one["spent"] == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)
        assert one["epsilon"] == pytest.approx(2.0, rel=1e-9)


@pytest.mark.slow
def test_no_noise_is_used_twice(secure):
    """A step that was not committed is drawn anew; one that was is not repeated."""
    for one in secure:
        first, second = one["tapes"]
        assert len(second) == crashes.STEPS - one["done"]
        assert not set(first) & set(second)
        if one["done"] > BEFORE:
            assert len(first) == one["done"]


@pytest.mark.slow
def test_the_first_step_too(home):
    """Before anything is committed a crash leaves nothing, or an empty run."""
    found = crashed(home, 0, "numbered")
    assert {one["done"] for one in found} == {0, 1}
    assert len({json.dumps(one["coef"]) for one in found}) == 1
