"""Several processes are one training run: same batches, same sums, noise once, one account."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from scipy import stats

import privopt
from privopt.privacy import Refused
from privopt.torch import processes

from . import ranks


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the processes of a scenario have written, in the order of their ranks."""
    if sys.platform != "linux":
        pytest.skip("the processes are forked and meet on Linux's loopback device")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_TESTRUNUID" in os.environ:  # run once for all workers of the tests
        folder = folder.parent
    with FileLock(folder / "ranks.lock"):
        if not (folder / "ranks").exists():
            done = subprocess.run(
                [sys.executable, ranks.__file__, str(folder / "ranks")],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    def read(scenario):
        files = sorted((folder / "ranks" / scenario).glob("*.pt"))
        return [torch.load(file, weights_only=False) for file in files if file.stem.isdigit()]

    read.folder = folder / "ranks"
    return read


@pytest.fixture(scope="module")
def alone():
    return ranks.same(0, Path())


@pytest.mark.parametrize(("scenario", "count"), [("same2", 2), ("uneven3", 3)])
def test_several_processes_are_one_run(seen, alone, scenario, count):
    """Equal to the run of one process, noise included: goes red if noise is drawn twice, if a
    share is lost or counted twice, or if processes start from different models."""
    results = seen(scenario)
    assert len(results) == count
    for found in results:
        for name, (weights, spent) in found.items():
            torch.testing.assert_close(weights, alone[name][0], rtol=0, atol=1e-12)
            assert spent == alone[name][1]
            assert 1.9 < spent <= 2.0


@pytest.mark.parametrize("bug", ranks.BUGS)
def test_planted_bugs_show(seen, alone, bug):
    """The comparison above finds each of them."""
    expected = alone["independent"][0]
    moved = [float((found[bug][0] - expected).abs().max()) for found in seen("planted2")]
    assert max(moved) > 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize("count", [2, 4])
def test_the_variance_of_an_update(seen, count):
    """Within 2 % of theory, with secure noise; 160,000 draws: false alarms below 2e-8."""
    results = seen(f"variance{count}")
    assert len(results) == count
    updates, std, steps = results[0]
    assert updates.numel() == 160_000
    assert steps == 4
    assert abs(float(updates.double().square().mean()) / std**2 - 1) < 0.02
    for other, _, done in results:
        assert torch.equal(other, updates)  # the same models everywhere
        assert done == 4


@pytest.mark.statistical
def test_every_record_is_drawn_at_the_accountants_rate(seen):
    """Chi-square over records of both processes' shares: false alarms below 1e-6."""
    (one, rate), (other, _) = seen("shares2")
    assert rate == 6 / 40
    hits = np.zeros(40)
    for first, second in zip(one, other, strict=True):
        members = torch.cat([first, second])
        assert len(members.unique()) == len(members)
        assert 0 <= len(first) - len(second) <= 1
        hits[members.numpy()] += 1
    draws = len(one)
    assert draws == 420
    score = np.sum((hits - draws * rate) ** 2) / (draws * rate * (1 - rate))
    assert 5e-7 < stats.chi2.sf(score, 40) < 1 - 5e-7


@pytest.mark.parametrize("victim", [0, 1])
def test_without_one_of_them_there_is_no_step(seen, victim):
    ((said, unmoved, steps),) = seen(f"without_{victim}2")
    assert said.startswith(("RuntimeError", "DistBackendError"))
    assert unmoved
    assert steps == 1


def test_a_problem_of_one_is_a_problem_of_all(seen):
    one, other = seen("refused2")
    for found in (one, other):
        assert "layer '' (DistributedDataParallel)" in found["wrapped"]
        assert found["unharmed"] == (True, 0.0)
        assert found["steps"] == 7
        assert found["resumed"]
        assert found["after"][:2] == (14, pytest.approx(2.0))
    assert "another process refused" in one["clip"]
    assert "different settings" in other["clip"]
    assert "different settings" in other["seed"]
    assert "another process refused" in one["loss"]
    assert "one number for each" in other["loss"]
    assert torch.equal(one["after"][2], other["after"][2])


def test_states_are_process_0s(seen):
    one, other = seen("refused2")
    assert one["state"] == "nothing"
    assert "save its state, load it everywhere" in other["state"]
    assert "process 1 is at step 0, process 0 at 7" in other["behind"]


def test_a_ledger_pays_once_for_all(seen):
    one, other = seen("refused2")
    assert (one["paid"], other["paid"]) == (True, False)
    assert "budget of 'd' is short" in one["short"]
    assert "another process refused" in other["short"]
    account = privopt.Ledger.open(seen.folder / "refused2" / "ledger.db").dataset("d")
    assert account.spent[0] <= 2.0 * (1 + 1e-9)
    assert account.counts["committed"] == 1


# ------------------------------------------------------------ processes that do not know each other
def test_processes_without_a_group_are_refused(monkeypatch):
    """Each of them would train, and release, a model of its own."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Refused, match="init_process_group before make_private"):
        ranks.training()
    monkeypatch.setenv("WORLD_SIZE", "1")
    ranks.training()


def test_a_group_that_comes_later_is_refused(monkeypatch):
    private = ranks.training()
    x, y = next(iter(private.loader))
    monkeypatch.setattr(processes, "_place", lambda: (1, 2))
    with pytest.raises(Refused, match="joined or left since make_private"):
        private.step(ranks.loss, x, targets=y)
    assert private.steps_done == 0
