"""Several processes are one training run: same batches, same sums, noise once, one account."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import privopt
from privopt.privacy import Refused
from privopt.torch import processes

from . import ranks
from .runs import in_processes


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return in_processes("ranks", tmp_path_factory)


@pytest.mark.parametrize(("scenario", "count"), [("same", 2), ("uneven", 3), ("crowded", 4)])
def test_several_processes_are_one_run(seen, scenario, count):
    """Equal to the run of one process that draws each share of the noise from its owner's source:
    goes red if a coordinate is given noise twice, or none, or that of another process, if a part
    of a batch is lost or counted twice, or if processes start from different models."""
    results = seen(f"{scenario}{count}")
    assert len(results) == count
    for name in results[0]:
        choices = ranks.RUNS[name] | ({"tiny": True} if scenario == "crowded" else {})
        with ranks.drawing_as(count):
            weights, spent = ranks.outcome(0, **choices)
        assert 1.9 < spent <= 2.0
        for found in results:
            torch.testing.assert_close(found[name][0], weights, rtol=0, atol=1e-12)
            assert found[name][1] == spent


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
    for share in updates.double().tensor_split(count, dim=1):  # 7 standard deviations
        assert abs(float(share.square().mean()) / std**2 - 1) < 7 * (2 / share.numel()) ** 0.5
    for border in range(0, 40_001, 40_000 // count):
        assert not (updates[:, max(border - 1, 0) : border + 1] == 0).any()


@pytest.mark.statistical
@pytest.mark.parametrize("count", [2, 4])
def test_processes_do_not_share_noise(seen, count):
    """Shares of one step, and of all pairs of steps, are uncorrelated: false alarms below 1e-7."""
    updates, std, _ = seen(f"variance{count}")[0]
    shares = updates.double().view(4, count, -1) / std
    flat = shares.reshape(4 * count, -1)
    products = flat @ flat.T / flat.shape[1]
    products -= products.diag().diag()
    assert float(products.abs().max()) < 6.5 / flat.shape[1] ** 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["banded", "blt"])
def test_correlated_noise_of_shares(seen, noise):
    """Over steps, in the share of each process: sigma^2 C^-1 C^-T, and nothing between shares.
    An entry is off by 6.5 of its standard deviations with probability below 1e-10."""
    steps, encoder, std = seen("covariance2")[0][noise]
    inverse = np.linalg.inv(encoder)
    expected = std**2 * inverse @ inverse.T
    scale = np.sqrt(np.diag(expected)[:, None] * np.diag(expected))
    assert np.abs(expected / scale - np.eye(len(scale))).max() > 0.05  # it is correlated
    shares = [steps[:, :10_000].double().numpy(), steps[:, 10_000:].double().numpy()]
    for share in shares:
        found = share @ share.T / share.shape[1]
        assert np.abs((found - expected) / scale).max() < 6.5 * np.sqrt(2 / share.shape[1])
    crossed = shares[0] @ shares[1][:, :10_000].T / 10_000
    assert np.abs(crossed / scale).max() < 6.5 / np.sqrt(10_000)


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


def test_a_step_that_breaks_off_is_charged(seen):
    """The survivor has drawn noise: its model is as it was, and the step is in its log."""
    ((said, unmoved, events, spent),) = seen("halfway2")
    assert said.startswith(("RuntimeError", "DistBackendError"))
    assert unmoved
    assert events == 1
    assert 0 < spent < 2


def test_a_problem_of_one_is_a_problem_of_all(seen):
    one, other = seen("refused2")
    for found in (one, other):
        assert "layer '' (DistributedDataParallel)" in found["wrapped"]
        assert found["unharmed"] == (True, 0.0)
        assert found["steps"] == 7
    assert "another process refused" in one["clip"]
    assert "different settings" in other["clip"]
    assert "different settings" in other["seed"]
    assert "another process refused" in one["loss"]
    assert "one number for each" in other["loss"]
    assert "TensorGaussian failed" in one["noise"]
    assert "another process refused" in other["noise"]


# ------------------------------------------------------------ checkpoints
def test_a_process_keeps_the_noise_of_its_share(seen):
    for sizes, own in zip(seen("saved2"), (21, 22), strict=True):
        assert sizes == {"independent": set(), "banded": {own}, "blt": {own}, "honaker": {own}}


@pytest.mark.parametrize("noise", ranks.KEPT)
def test_states_go_on_in_any_number_of_processes(seen, noise):
    """As in one process that goes on from all states, and draws what the others would."""
    for count in (2, 3):
        with ranks.drawing_as(count, seed=2):
            private = ranks.run(ranks.went_on(seen.folder / "here", None, noise), 1)
        expected, spent = ranks.weights(private), private.epsilon_spent()
        for found in seen(f"resumed{count}"):
            for (name, _), (weights, epsilon, steps) in found.items():
                if name == noise:
                    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)
                    assert (epsilon, steps) == (spent, 14)


def test_states_that_do_not_belong_together_are_refused(seen):
    one, other = seen("mixed2")
    assert "noise of parameters 21 to 43, and this process adds that of 0 to 21" in one["other"]
    assert "noise of parameters 0 to 21, and this process adds that of 21 to 43" in other["first"]
    assert one["first"] == other["last"] == "nothing"
    assert "process 0 draws the batches" in one["last"]
    assert "another process refused" in one["legs"]
    assert "different settings, data or states" in other["legs"]
    assert one["unmoved"] == other["unmoved"] == (8, 8)
    assert "process 1 is at step 0, process 0 at 7" in other["behind"]


def test_noise_after_a_state_is_fresh_in_every_share(seen):
    """Two runs that go on from one state, without a seed."""
    for found in seen("mixed2"):
        difference, std = found["fresh"]
        assert float(difference.abs().min()) > 0
        for share in (difference[:21], difference[21:]):
            assert float(share.std()) > 0.5 * std


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
