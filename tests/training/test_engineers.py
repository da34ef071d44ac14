"""What engineers ask of a training: fixed noise, no end in sight, several optimizers, a curve."""

from __future__ import annotations

import math
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from privopt.audit import record
from privopt.noise import SilentSource
from privopt.privacy import Refused
from privopt.torch.curve import RATIO, LossCurve
from privopt.torch.fixed_noise import epsilon_of

from .models import cross_entropy
from .runs import NOISES, RELATIONS, data, net, run, training, weights


# ------------------------------------------------------------ fixed noise, and no end
@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize(
    ("noise", "batches"), [("auto", "auto"), ("independent", "fixed"), ("blt", "auto")]
)
def test_epsilon_follows_from_the_noise(noise, batches, neighbouring):
    """And a run with that epsilon has that noise."""
    if neighbouring == "add_remove" and (noise, batches) != ("auto", "auto"):
        noise, batches = "auto", "poisson"  # the only ones it has
    public = {"n_public": 60} if neighbouring == "add_remove" else {}
    choices = {"noise": noise, "batches": batches, "neighbouring": neighbouring, **public}
    private = training(epsilon=None, noise_multiplier=1.3, **choices)
    assert private.plan.noise_multiplier == 1.3
    run(private, 3)
    spent = private.certificate().epsilon
    assert spent == pytest.approx(private.budget.epsilon, rel=1e-6)
    assert spent <= private.budget.epsilon
    choices["noise"] = private.plan.noise
    other = training(epsilon=private.budget.epsilon, **choices)
    assert other.plan.noise_multiplier == pytest.approx(1.3, rel=1e-3)


@pytest.mark.parametrize("batches", ["poisson", "fixed"])
def test_a_run_without_an_end_stops_when_its_budget_is_spent(batches):
    private = training(epochs=None, epsilon=3.0, noise_multiplier=4.0, batches=batches)
    plan, budget = private.plan, private.budget
    assert private.finished is False
    assert epsilon_of(plan, 1e-5, "zero_out", 1 / 6, private.steps // 6 or 1) <= 3.0 * (1 + 1e-6)
    more = private.steps // 64 + 7
    longer = training(
        epochs=1 + (private.steps + more) // 6, epsilon=None, noise_multiplier=4.0, batches=batches
    )
    assert longer.budget.epsilon > budget.epsilon  # not one hundredth more would be paid for
    while not private.finished:
        run(private)
    assert 0.97 * 3.0 < private.certificate().epsilon <= 3.0 or batches == "fixed"
    with pytest.raises(Refused, match=f"all {private.steps} steps of the budget are used"):
        run(private)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"noise_multiplier": 1.0}, "give two, the third follows"),
        ({"epsilon": None}, "and epsilon follows"),
        ({"epsilon": None, "epochs": None, "noise_multiplier": 1.0}, "and epsilon follows"),
        ({"epsilon": None, "noise_multiplier": 0.0}, "must be a positive number"),
        ({"epsilon": None, "noise_multiplier": math.nan}, "must be a positive number"),
        (
            {"epsilon": None, "noise_multiplier": 1.0, "noise": "banded"},
            "are chosen for an epsilon",
        ),
        ({"epochs": None, "noise": "blt"}, "epochs=None needs independent noise"),
        ({"epochs": None, "epsilon": 0.001}, "does not pay for one step"),
        ({"loss_curve": 0.0}, "largest loss of an example"),
        ({"loss_curve": 1.0, "compile": True}, "keeps no losses"),
    ],
)
def test_choices_that_do_not_go_together(choices, words):
    with pytest.raises(ValueError, match=words):
        training(**choices)


# ------------------------------------------------------------ several optimizers
def test_several_optimizers_share_one_step():
    ends = []
    for several in (False, True):
        model = net()
        if several:
            optimizer = [torch.optim.SGD(model[i].parameters(), 0.5) for i in (0, 2)]
        else:
            optimizer = torch.optim.SGD(model.parameters(), 0.5)
        private = training(model, optimizer=optimizer, noise="independent")
        run(private, 3)
        ends += [weights(model), weights(private.averaged())]
    torch.testing.assert_close(ends[0], ends[2])
    torch.testing.assert_close(ends[1], ends[3])
    next(iter(training(model, optimizer=optimizer).loader))
    for one in optimizer:
        with pytest.raises(Refused, match=r"waits for private\.step"):
            one.step()


def test_optimizers_that_do_not_share_well():
    model = net()
    whole, part = (torch.optim.SGD(m.parameters(), 0.5) for m in (model, model[0]))
    with pytest.raises(ValueError, match="two optimizers hold the same parameter"):
        training(model, optimizer=[whole, part])
    with pytest.raises(ValueError, match="freeze them"):
        training(model, optimizer=[part])
    with pytest.raises(ValueError, match="must be a torch Optimizer"):
        training(model, optimizer=[part, "sgd"])


# ------------------------------------------------------------ a curve
@pytest.mark.parametrize("microbatch", [None, 4])
def test_without_noise_the_curve_is_the_mean_of_cut_losses(microbatch):
    """Of the losses in the steps of an epoch, with batches that are fixed."""
    silent = {"noise": "independent", "batches": "fixed", "random_state": SilentSource()}
    private = training(loss_curve=1.2, microbatch=microbatch, **silent)
    expected = []
    for _ in range(3):
        found = []
        for x, y in private.loader:
            found.append(cross_entropy(private.model(x), y).detach().clamp(0, 1.2))
            private.step(cross_entropy, x, targets=y)
        expected.append(float(torch.cat(found).mean()))
    assert private.loss_curve == pytest.approx(expected)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_the_gradient_and_the_loss_are_one_release_of_the_sensitivity_it_states(neighbouring):
    """A record's whole contribution, at its worst: the clip norm in its gradient, and a loss at or
    beyond its bound. The released vector is moved by the reach, which the noise is measured in."""

    def released(x, y):
        model = nn.Linear(4, 2, bias=False).double()
        nn.init.zeros_(model.weight)
        records = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        private = training(
            *(model, records),
            **{"batch_size": 6, "epochs": 1, "noise": "independent", "batches": "fixed"},
            **{"loss_curve": 0.5, "neighbouring": neighbouring, "random_state": 3},
        )
        run(private)
        return private

    x = np.random.default_rng(0).normal(size=(6, 4)) * 100
    y = np.array([0, 1, 0, 1, 0, 1])
    other = x.copy()
    other[2] = np.nan if neighbouring == "zero_out" else -x[2]
    tapes = []
    for rows in (x, other):
        private, tape = record(released, (rows, y))
        tapes.append(tape)
    (first,), (second,) = (tape.releases for tape in tapes)
    moved = float((torch.as_tensor(first.payload) - torch.as_tensor(second.payload)).norm())
    stated = first.sensitivity.radius
    reach = math.sqrt(1 + RATIO**2)
    assert stated == pytest.approx(reach * (2 if neighbouring == "replace_one" else 1))
    assert 0.98 * reach <= moved <= stated * (1 + 1e-9)
    assert private.noise_std == pytest.approx(private.plan.noise_multiplier * stated)


def test_a_loss_that_is_missing_or_huge_stays_within_its_bound():
    curve = LossCurve(2.0, 0.5, 4.0, 1)
    gradient = torch.zeros(3)
    for value in (math.nan, math.inf, -math.inf, 1e30, -1e30):
        found = curve.joined(gradient, torch.tensor([value]))
        assert 0 <= float(found[-1]) <= RATIO * 0.5 * (1 + 1e-6)
    with pytest.raises(Refused, match="losses of this step are not known"):
        curve.joined(gradient, None)


@pytest.mark.parametrize("noise", NOISES)
def test_a_curve_costs_nothing_of_the_budget_and_goes_on(noise):
    choices = {"noise": noise, "loss_curve": 2.0, "random_state": None}
    private = training(**choices)
    assert private.plan.noise_multiplier == training(noise=noise).plan.noise_multiplier
    for x, y in private.loader:
        private.step(cross_entropy, x, targets=y)
        if private.steps_done == 4:
            break
    resumed = training(**choices)
    resumed.load_state_dict(private.state_dict())
    run(resumed, 3)
    assert len(resumed.loss_curve) == 3
    assert resumed.certificate().epsilon <= 2.0 * (1 + 1e-9)
    assert resumed.certificate().settings["loss_curve"] == 2.0
    assert private.loss_curve == training(noise=noise).loss_curve == []


def test_the_curve_has_the_noise_it_promises():
    """Its mean and variance over 400 runs of one step; false alarms in one of 10^5."""
    values = []
    for seed in range(400):
        curve = LossCurve(3.0, 2.0, 50.0, 1)
        made = torch.Generator().manual_seed(seed)
        noise = 1.5 * curve.joint(2.0) * torch.randn((), generator=made)
        curve.note(0, curve.joined(torch.zeros(1), torch.ones(50))[-1] + noise)
        values += curve.means
    promised = 1.5 * 3.0 * math.sqrt(1 + RATIO**2) / (RATIO * 50)
    assert abs(np.mean(values) - 1.0) < 4.5 * promised / 20
    assert 0.84 < np.std(values) / promised < 1.17


# ------------------------------------------------------------ what is shown
def test_a_repr_says_what_is_public(capsys):
    private = training(noise="blt", progress=True)
    assert repr(private) == (
        "PrivateTraining(Sequential of 43 trained numbers, blt noise on fixed batches, 0 of 18 "
        "steps, epsilon 0 of 2 at delta 1e-05)"
    )
    run(private, 3)
    assert "18 of 18 steps, epsilon 2 of 2" in repr(private)
    shown = capsys.readouterr().err
    assert "18 of 18 steps" in shown
    assert not any(word in shown for word in ("loss", "example", "batch"))


# ------------------------------------------------------------ secret files
def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_a_saved_run_is_readable_by_its_owner_alone(tmp_path):
    private = training(noise="blt", random_state=None)
    run(private)
    file = tmp_path / "private.pt"
    file.write_bytes(b"")
    file.chmod(0o644)
    private.save(file)
    assert modes(tmp_path) == {"private.pt": 0o600}
    resumed = training(noise="blt", random_state=None)
    resumed.load(file)
    assert resumed.steps_done == 6


# ------------------------------------------------------------ refusals
def test_without_torch_it_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\nimport privopt.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'privopt[torch]'" in done.stderr


class DTensor(torch.Tensor):
    """As torch's own, by its name: a tensor that is spread over devices."""


def _spread():
    model = net()
    model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(DTensor))
    return model


MODELS = {
    "scripted": (lambda: torch.jit.script(net()), {}, "is scripted or traced"),
    "traced": (
        lambda: torch.jit.trace(net(), torch.zeros(1, 4).double()),
        {},
        "is scripted or traced",
    ),
    "tensor-parallel": (_spread, {}, "spread over devices"),
    "sparse": (
        lambda: nn.Sequential(nn.Embedding(5, 3, sparse=True)),
        {},
        "noise is everywhere: drop sparse",
    ),
    "recurrent and compiled": (
        lambda: nn.Sequential(nn.LSTM(4, 3, batch_first=True)),
        {"compile": "eager"},
        "runs example by example, and that is not compiled",
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_refused_in_words_before_data_is_used(name):
    build, choices, words = MODELS[name]
    model = build()
    before = weights(model)
    with pytest.raises(Refused, match=words):
        training(model, data(), **choices)
    assert torch.equal(before, weights(model))


class Counts(nn.Module):
    """Adds up what it sees, from its third run on real batches on."""

    def __init__(self):
        super().__init__()
        self.one, self.mean, self.from_now_on = nn.Linear(4, 3).double(), torch.zeros(4), False

    def forward(self, x):
        if self.from_now_on:
            self.mean.add_(x.detach().mean(0))
        return self.one(x)


def _remembers(private, x, y):
    private.model.from_now_on = True
    private.step(cross_entropy, x, targets=y)


def _steps_alone(private, x, y):
    private.optimizer.step()


def _loads_late(private, x, y):
    private.load_state_dict(private.state_dict())


def _loads_others(private, x, y):
    fresh = training(Counts(), data(seed=1), noise="independent", random_state=None)
    fresh.load_state_dict(private.state_dict())


def _wrong_rows(private, x, y):
    private.step(cross_entropy, torch.cat([x, x]), targets=y)


def _mean(private, x, y):
    private.step(lambda out, t: cross_entropy(out, t).mean(), x, targets=y)


REFUSALS = {
    "a model that begins to remember": (_remembers, "'mean' changes when the model runs"),
    "a step of the optimizer alone": (_steps_alone, "waits for private"),
    "a state for a run that has begun": (_loads_late, "has begun"),
    "a state of other records": (_loads_others, "other records than the one"),
    "rows of another batch": (_wrong_rows, "another number of rows"),
    "a mean": (_mean, "one number for each example"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_sentence_and_leaves_everything_as_it_was(name):
    action, words = REFUSALS[name]
    model = Counts()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    private = training(model, optimizer=optimizer, noise="independent", random_state=None)
    run(private)
    x, y = next(iter(private.loader))

    def everything():
        adam = [v.clone() for s in optimizer.state.values() for v in s.values()]
        spent = torch.tensor([private.epsilon_spent(), private.steps_done, len(private.loss_curve)])
        return [weights(model).clone(), model.mean.clone(), *adam, spent]

    before = everything()
    with pytest.raises(Refused, match=words) as refusal:
        action(private, x, y)
    assert str(refusal.value).count(". ") <= 1
    for one, other in zip(before, everything(), strict=True):
        assert torch.equal(one, other)
    model.from_now_on = False
    private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 7
