"""Going on elsewhere: epsilon, batches and buffers continue, and no noise comes twice."""

from __future__ import annotations

import io
import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privopt
from privopt.noise import SilentSource
from privopt.privacy import Refused

from .models import cross_entropy
from .runs import NOISES, net, run, training, weights


@pytest.mark.parametrize("noise", [*NOISES, "auto"])
def test_a_state_goes_on_with_epsilon_and_fresh_noise(noise):
    private = training(noise=noise, random_state=None, epochs=3)
    run(private, 1)
    file = io.BytesIO()
    torch.save(private.state_dict(), file)
    parameters = {k: v.clone() for k, v in private.model.state_dict().items()}
    spent = private.epsilon_spent()
    run(private, 2)
    ends, streams = [], []
    for _ in range(2):
        file.seek(0)
        model = net()
        model.load_state_dict(parameters)
        resumed = training(model, noise=noise, random_state=None, epochs=3)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        assert resumed.steps_done == 6
        assert resumed.epsilon_spent() == pytest.approx(spent)
        streams.append(next(iter(resumed.loader))[0])
        run(resumed, 2)
        assert resumed.steps_done == 18
        assert resumed.epsilon_spent() == pytest.approx(private.epsilon_spent())
        assert resumed.certificate().private
        ends.append(weights(model))
    assert not torch.equal(*ends)  # the noise is new, whatever the file holds
    if private.plan.batches == "fixed":
        assert torch.equal(*streams)  # a record keeps its place


class Still(nn.Module):
    """Its gradient is zero: what arrives as one is noise."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(1000, 1, bias=False)

    def forward(self, x):
        return self.weight(x)[:, 0] * 0


KINDS = [(noise, "auto") for noise in NOISES] + [("independent", "fixed"), ("banded", "fixed")]


@pytest.mark.parametrize(("noise", "batches"), KINDS)
def test_no_noise_comes_twice(noise, batches):
    """The run itself and two others that go on from its file, in the middle of an epoch: what is
    new in their next noise differs in every coordinate, by as much as fresh noise does."""
    records = TensorDataset(torch.zeros(12, 1000), torch.zeros(12))
    choices = {"batch_size": 2, "noise": noise, "batches": batches, "random_state": None}

    def noise_of(private, steps):
        for x, _ in itertools.islice(private.loader, steps):
            private.step(lambda out: out, x)
        return private.model.weight.weight.grad.clone() * private.expected_batch_size

    private = training(Still(), records, **choices)
    noise_of(private, 4)
    state = private.state_dict()
    found = [noise_of(private, 1)]
    for _ in range(2):
        resumed = training(Still(), records, **choices)
        resumed.load_state_dict(state)
        found.append(noise_of(resumed, 1))
        assert resumed.steps_done == 5
    for one, other in itertools.combinations(found, 2):
        assert not (one == other).any()
        assert (one - other).std() > 0.5 * private.noise_std


@pytest.mark.parametrize("done", [1, 6, 9])
def test_optimizer_and_scheduler_go_on(done):
    """Without noise and with fixed batches, a run in two parts is the run in one."""

    def begun():
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
        silent = {"noise": "independent", "batches": "fixed", "random_state": SilentSource()}
        return training(model, optimizer=optimizer, **silent), scheduler

    def go(private, scheduler, steps):
        while steps:
            for x, y in private.loader:
                private.step(cross_entropy, x, targets=y)
                scheduler.step()
                steps -= 1
                if not steps:
                    break

    whole, first, second = begun(), begun(), begun()
    go(*whole, 18)
    go(*first, done)
    for one, other in zip(
        (first[0], first[0].model, first[0].optimizer, first[1]),
        (second[0], second[0].model, second[0].optimizer, second[1]),
        strict=True,
    ):
        other.load_state_dict(one.state_dict())
    go(*second, 18 - done)
    torch.testing.assert_close(weights(second[0].model), weights(whole[0].model))
    ends = [weights(private.averaged()) for private in (second[0], whole[0])]
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("noise", ["independent", "blt"])
def test_a_state_holds_no_generator(noise):
    """Resumed with a seed, the first noise is not the one that would have come next."""
    private = training(noise=noise)
    run(private, 1)
    text = repr(private.state_dict()).lower()
    assert not any(word in text for word in ("generator", "philox", "aes", "key", "rng"))
    resumed = training(net(), noise=noise, random_state=7)
    resumed.load_state_dict(private.state_dict())
    private.model.load_state_dict(resumed.model.state_dict())
    run(private, 1)
    run(resumed, 1)
    assert not torch.equal(weights(private.model), weights(resumed.model))


def test_states_that_do_not_fit_are_refused():
    private = training(noise="blt")
    run(private)
    state = private.state_dict()
    with pytest.raises(Refused, match="has begun"):
        private.load_state_dict(state)
    for choices in ({"clip_norm": 2.0}, {"epochs": 4}, {"epsilon": 3.0}, {"noise": "tree"}):
        with pytest.raises(Refused, match="other settings or another budget"):
            training(**({"noise": "blt"} | choices)).load_state_dict(state)
    with pytest.raises(Refused, match="not the state of such a run"):
        training(noise="blt").load_state_dict(state | {"steps_done": 3})


def test_a_seeded_past_is_not_forgotten():
    private = training()
    run(private)
    resumed = training(random_state=None)
    resumed.load_state_dict(private.state_dict())
    assert not resumed.certificate().private


# ------------------------------------------------------------ ledger
@pytest.mark.parametrize("noise", ["independent", "banded", "blt"])
def test_a_ledger_pays_before_the_first_step(noise, tmp_path):
    ledger = privopt.Ledger.create(
        tmp_path / "ledger.db", epsilon=3.0, delta=3e-5, dataset="d", composition="basic"
    )
    choices = {"noise": noise, "random_state": None, "ledger": ledger, "dataset": "d"}
    private = training(**choices)
    assert ledger.dataset("d").spent[0] == 0.0
    run(private, 1)
    spent = ledger.dataset("d").spent[0]
    assert spent == pytest.approx(2.0, rel=0.05)  # all epochs at once
    assert spent <= 2.0 * (1 + 1e-9)
    assert private.certificate().ledger["dataset"] == "d"
    assert ledger.dataset("d").counts["open"] == 1
    private.state_dict()
    run(private, 2)  # a state that is saved costs nothing
    assert ledger.dataset("d").spent[0] == spent
    certificate = private.certificate()
    assert ledger.dataset("d").counts["committed"] == 1
    assert ledger.verify(certificate)
    assert private.certificate() == certificate
    other = training(**choices)
    with pytest.raises(Refused, match="budget of 'd' is short"):
        run(other)
    assert other.steps_done == 0
    with pytest.raises(Refused, match="a seeded run is not private"):
        run(training(**(choices | {"random_state": 0})))


def charged(tmp_path, epsilon=40.0):
    return privopt.Ledger.create(
        tmp_path / "ledger.db", epsilon=epsilon, delta=1e-2, dataset="d", composition="basic"
    )


@pytest.mark.parametrize("noise", ["independent", "banded", "blt"])
def test_a_state_is_free_for_the_first_who_goes_on(noise, tmp_path):
    """Twenty complete runs from one saved state at one charge: the second and all after it pay."""
    ledger = charged(tmp_path)
    choices = {"noise": noise, "random_state": None, "ledger": ledger, "dataset": "d"}
    private = training(**choices)
    run(private, 1)
    state, spent = private.state_dict(), [ledger.dataset("d").spent[0]]
    for _ in range(3):
        resumed = training(**choices)
        resumed.load_state_dict(state)
        run(resumed, 2)
        assert ledger.verify(resumed.certificate())
        spent.append(ledger.dataset("d").spent[0])
    run(private, 2)  # the process itself is one of those who go on
    spent.append(ledger.dataset("d").spent[0])
    assert spent[0] == spent[1]
    extra = [later - before for before, later in itertools.pairwise(spent[1:])]
    assert min(extra) > 0.5
    assert max(extra) == pytest.approx(min(extra))
    if noise == "blt":
        assert extra[0] == pytest.approx(2.0, rel=0.05)  # a whole run, once for the leg
    assert ledger.dataset("d").counts["open"] == 1


def test_steps_between_a_checkpoint_and_a_crash_are_charged_again(tmp_path):
    ledger = charged(tmp_path)
    choices = {"noise": "independent", "random_state": None, "ledger": ledger, "dataset": "d"}
    private = training(**choices)
    run(private, 1)
    state = private.state_dict()
    for x, y in itertools.islice(private.loader, 2):
        private.step(cross_entropy, x, targets=y)
    spent = ledger.dataset("d").spent[0]
    resumed = training(**choices)
    resumed.load_state_dict(state)
    run(resumed, 1)
    again = ledger.dataset("d").spent[0]
    assert again > spent + 0.5  # the epoch in which it crashed
    run(resumed, 1)
    assert ledger.dataset("d").spent[0] == again  # nobody was in the last one


class Mixing(torch.nn.Module):
    """Mixes batches from some size on."""

    def __init__(self, least):
        super().__init__()
        self.inner, self.least = net(), least

    def forward(self, x):
        return self.inner(x - x.mean(0) if len(x) >= self.least else x)


@pytest.mark.parametrize("least", [3, 10])
def test_a_first_step_that_public_facts_refuse_costs_nothing(least, tmp_path):
    """What the records themselves show is paid for, once: the same run goes on without the fault.
    Made-up batches hold up to sixteen rows, and those of the loader ten."""
    ledger = charged(tmp_path)
    choices = {"noise": "independent", "batches": "fixed", "random_state": None}
    model = Mixing(least if least < 10 else 10**6)
    private = training(model, ledger=ledger, dataset="d", **choices)
    x, y = next(iter(private.loader))
    loss = cross_entropy if least < 10 else (lambda out, y: cross_entropy(out - out.mean(0), y))
    with pytest.raises(Refused):
        private.step(loss, x, targets=y)
    spent = ledger.dataset("d").spent[0]
    assert (spent == 0.0) is (least < 10)
    assert private.epsilon_spent() == 0.0
    model.least = 10**6
    private.step(cross_entropy, x, targets=y)
    once = ledger.dataset("d").spent[0]
    assert once == spent or spent == 0.0
    assert once > 0.0


def test_a_short_budget_refuses_the_second_leg_before_anything_is_released(tmp_path):
    ledger = charged(tmp_path, epsilon=2.1)
    choices = {"noise": "independent", "random_state": None, "ledger": ledger, "dataset": "d"}
    private = training(**choices)
    run(private, 1)
    state = private.state_dict()
    run(private, 1)
    resumed = training(**choices)
    resumed.load_state_dict(state)
    before = weights(resumed.model)
    with pytest.raises(Refused, match="budget of 'd' is short"):
        run(resumed)
    assert torch.equal(before, weights(resumed.model))
    assert resumed.steps_done == 6
    run(private, 1)


def test_a_run_that_was_charged_goes_on_with_its_ledger(tmp_path):
    ledger = charged(tmp_path)
    choices = {"noise": "independent", "random_state": None}
    private = training(ledger=ledger, dataset="d", **choices)
    run(private, 1)
    state = private.state_dict()
    with pytest.raises(Refused, match="give the same ledger"):
        training(**choices).load_state_dict(state)
    (tmp_path / "other").mkdir()
    other = training(ledger=charged(tmp_path / "other"), dataset="d", **choices)
    other.load_state_dict(state)
    with pytest.raises(Refused, match="give the same ledger"):
        run(other)
    seeded = training(ledger=ledger, dataset="d", **(choices | {"random_state": 0}))
    seeded.load_state_dict(state)
    with pytest.raises(Refused, match="a seeded run is not private"):
        run(seeded)


def test_without_a_ledger_the_certificate_says_what_it_assumes(tmp_path):
    private = training(random_state=None)
    run(private)
    assert "gone on from" not in repr(private.certificate().assumptions)
    file = tmp_path / "private.pt"
    private.save(file)
    said = []
    for _ in range(2):
        resumed = training(random_state=None)
        resumed.load(file)
        said.append(repr(resumed.certificate().assumptions))
        assert "was gone on from once" in said[-1]
    assert "loaded before" not in said[0]
    assert "loaded before" in said[1]


def test_a_state_that_is_not_whole_is_refused():
    private = training(noise="independent")
    run(private)
    state = private.state_dict()
    for broken in (
        {name: value for name, value in state.items() if name != "schedule"},
        state | {"average": torch.zeros(3)},
    ):
        with pytest.raises(Refused, match="not the state of such a run"):
            training(noise="independent").load_state_dict(broken)
