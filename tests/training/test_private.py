"""Private training as a whole: sensitivity, noise, divisor, steps, epsilon, checkpoints."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import privopt
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.noise import SilentSource
from privopt.noise.tensors import gaussian_like
from privopt.privacy import Accountant, Budget, Certificate, Refused, Sampling, certificate_schema
from privopt.privacy.factorizations import Restarts, named
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_epsilon
from privopt.privacy.spend import Step
from privopt.torch import make_private
from privopt.torch.noise import TensorNoise
from privopt.torch.plan import choose_plan

from .models import clipped, cross_entropy, loop
from .runs import NOISES, RELATIONS, data, net, run, training, weights


# ------------------------------------------------------------ exact small cases
@pytest.mark.parametrize("microbatch", [None, 1, 3, 4, 100])
@pytest.mark.parametrize("batches", ["poisson", "fixed"])
def test_a_silent_step_is_the_clipped_sum_over_the_public_divisor(microbatch, batches):
    """Goes red if the clip is dropped, or if the divisor is the drawn batch size."""
    private = training(
        random_state=SilentSource(),
        microbatch=microbatch,
        batches=batches,
        noise="independent",
        clip_norm=0.3,
        lr=1.0,
    )
    assert private.expected_batch_size == 10
    sizes = set()
    for x, y in private.loader:
        before = weights(private.model)
        rows = loop(private.model, cross_entropy, (x,), y)
        private.step(cross_entropy, x, targets=y)
        expected = before - clipped(rows, 0.3 / (1 + 1e-9)) / 10
        torch.testing.assert_close(weights(private.model), expected, rtol=0, atol=1e-12)
        sizes.add(len(y))
    assert batches == "fixed" or len(sizes) > 1  # drawn sizes vary, the divisor does not


class Constant(nn.Module):
    """A model whose gradient is zero: what moves it is noise."""

    def __init__(self, size=4000):
        super().__init__()
        self.layer = nn.Linear(size, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)


def empty(size=4000, n=12):
    return TensorDataset(torch.zeros(n, size), torch.zeros(n))


@pytest.mark.statistical
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("microbatch", [None, 1])
def test_noise_has_the_declared_size_and_is_added_once(relation, microbatch):
    """Goes red if noise is halved, doubled, or added for every microbatch (5 sigma: 6e-7)."""
    private = training(
        Constant(),
        empty(),
        batch_size=4,
        lr=1.0,
        noise="independent",
        neighbouring=relation,
        n_public=12 if relation == "add_remove" else None,
        clip_norm=0.7,
        microbatch=microbatch,
    )
    std = private.plan.noise_multiplier * 0.7 * (2 if relation == "replace_one" else 1)
    assert private.noise_std == pytest.approx(std)
    total, count = 0.0, 0
    for x, y in private.loader:
        before = weights(private.model)
        private.step(lambda out, _: out[:, 0] * 0, x, targets=y)
        noise = (weights(private.model) - before) * 4 / std
        total, count = total + float(noise.square().sum()), count + len(noise)
    assert abs(total / count - 1) < 5 * math.sqrt(2 / count)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_follows_its_law(noise):
    """The recorded noise against the events, correlated noise turned back into Gaussians first."""

    def fit(X, y):
        private = training(net(), noise=noise)
        run(private, 3)
        return private.steps_done

    done, tape = record(fit, (None, None))
    assert done == len(tape.releases) == 18
    assert noise_p_value([tape]) > 1e-6
    for release in tape.releases:  # ... and it notices noise of half the size
        release.result = (release.result + release.payload) / 2
    assert noise_p_value([tape]) < 1e-6


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("steps", [1, 2, 23])
def test_streams_on_tensors_equal_those_on_arrays(name, steps):
    rule = Participation.epochs(2, max(steps // 2, 1))
    factorization = named(name, steps, rule)
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2 * steps, 3))
    ours = TensorNoise(factorization, torch.zeros(3, dtype=torch.float64))
    theirs, here, there = factorization.stream(), iter(draws), iter(draws)
    for step in range(steps):
        one = ours.next(lambda: torch.from_numpy(next(here).copy()))
        other = theirs.next(lambda: next(there).copy())
        np.testing.assert_allclose(one.numpy(), other, atol=1e-12)
        if step == steps // 2:  # go on elsewhere
            moved = TensorNoise(factorization, torch.zeros(3, dtype=torch.float64))
            moved.load_state_dict(ours.state_dict())
            ours = moved


# ------------------------------------------------------------ neighbours
@pytest.mark.parametrize(
    ("noise", "relation"),
    [(n, r) for n in ("independent", "banded", "blt") for r in RELATIONS][:-1],  # no fixed batches
)
@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
def test_replay_on_hostile_neighbours(noise, relation, clipping):
    """Nothing but the released values reaches out, and they move no further than declared."""
    pairs = hostile_pairs(relation)
    pairs = pairs if clipping == "flat" and noise == "independent" else pairs[::4]

    def fit(X, y):
        n = 63 if relation == "add_remove" else len(X)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(X.shape[1], 3), nn.Tanh(), nn.Linear(3, 1)).double()
        private = training(
            model,
            TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),
            batch_size=min(16, n),
            epochs=2,
            noise=noise,
            neighbouring=relation,
            n_public=63 if relation == "add_remove" else None,
            clipping=clipping,
        )
        for x, t in private.loader:
            private.step(lambda out, t: F.softplus(-out[:, 0] * t), x, targets=t)
        return weights(model).numpy(), private.certificate().to_json(), private.epsilon_spent()

    for pair in pairs:
        findings = replay(fit, pair)
        assert findings == [], pair.name


# ------------------------------------------------------------ accounting
def test_epsilon_of_poisson_steps_is_the_accountants():
    private = training(noise="independent", epochs=2)
    expected = []
    mu = 1 / private.plan.noise_multiplier
    step = Step(Sampling(1 / 6), (GaussianKind(mu, mu),))
    assert private.epsilon_spent() == 0.0
    found = []
    for _ in range(2):
        for x, y in private.loader:
            private.step(cross_entropy, x, targets=y)
            found.append(private.epsilon_spent())
            expected.append(Accountant().epsilon(Counter({step: len(found)}), 1e-5))
    assert found == pytest.approx(expected)
    assert found == sorted(found)
    assert 1.9 < found[-1] <= 2.0
    assert private.epsilon_spent() == private.epsilon_spent()


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_epsilon_of_fixed_batches_in_closed_form(relation):
    """Independent noise: as many Gaussians as epochs; the multiplier is in units of the
    sensitivity."""
    private = training(noise="independent", batches="fixed", epochs=4, neighbouring=relation)
    run(private, 2)
    mu = math.sqrt(2) / private.plan.noise_multiplier
    assert private.epsilon_spent() == pytest.approx(gaussian_epsilon(mu, 1e-5))
    run(private, 2)
    assert private.epsilon_spent() == pytest.approx(2.0)
    assert private.epsilon_spent() <= 2.0


@pytest.mark.parametrize("noise", ["blt", "honaker", "tree", "sqrt_toeplitz", "banded"])
def test_epsilon_of_correlated_noise_is_that_of_its_sensitivity(noise):
    private = training(noise=noise, batches="fixed")
    run(private, 3)
    factorization, rule = private.plan.factorization, Participation.epochs(3, 6)
    mu = math.sqrt(factorization.sensitivity_squared(rule)) / private.plan.noise_multiplier
    assert private.epsilon_spent() == pytest.approx(gaussian_epsilon(mu, 1e-5))
    assert 1.99 < private.epsilon_spent() <= 2.0


@pytest.mark.parametrize("noise", [*NOISES, "auto"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_certificates(noise, relation):
    if relation == "add_remove" and noise not in ("independent", "banded", "auto"):
        with pytest.raises(ValueError, match="fixed batches"):
            training(noise=noise, neighbouring=relation, n_public=60)
        return
    n_public = 60 if relation == "add_remove" else None
    private = training(noise=noise, neighbouring=relation, n_public=n_public, unit="patient")
    run(private, 3)
    certificate = private.certificate()
    assert certificate.epsilon <= 2.0
    assert certificate.epsilon > 1.9
    assert certificate.epsilon == pytest.approx(private.epsilon_spent())
    assert (certificate.neighbouring, certificate.unit) == (relation, "patient")
    assert not certificate.private
    assert certificate.releases == private.steps_done == 18
    assert any("depends on that example alone" in text for text in certificate.assumptions)
    jsonschema.validate(json.loads(certificate.to_json()), certificate_schema())
    assert Certificate.from_json(certificate.to_json()).verify()


def test_secure_runs_are_private_and_differ():
    ends = []
    for _ in range(2):
        private = training(random_state=None)
        run(private, 1)
        assert private.certificate().private
        ends.append(weights(private.model))
    assert not torch.equal(*ends)


def test_auto_takes_the_least_error():
    small = training(noise="auto", epsilon=0.5, epochs=1)
    assert small.plan.batches == "poisson"
    large = training(noise="auto", epsilon=100.0)
    assert large.plan.batches == "fixed"
    for private in (small, large):
        choices = {"epsilon": private.budget.epsilon, "epochs": private.steps // 6}
        others = [training(noise=noise, **choices).plan.error for noise in NOISES]
        assert private.plan.error <= min(others) * (1 + 1e-9)


def test_auto_keeps_less_noise_of_a_large_model():
    """Vectors of the model's size are memory: a gibibyte of them, and four at least."""
    budget = Budget(4.0, 1e-6)
    small = choose_plan(budget, 10**5, 1000, 20, "auto", "auto", 10**4)
    large = choose_plan(budget, 10**5, 1000, 20, "auto", "auto", 10**9)
    assert small.factorization.vectors_kept() > 4
    assert large.factorization.vectors_kept() <= 4
    assert small.error < large.error


# ------------------------------------------------------------ steps
@pytest.mark.parametrize(("n", "batch_size"), [(60, 10), (61, 10), (7, 3), (5, 5), (9, 1)])
@pytest.mark.parametrize("microbatch", [None, 2])
@pytest.mark.parametrize("noise", ["independent", "banded", "blt", "tree"])
def test_draws_of_noise_are_accounted_steps(n, batch_size, microbatch, noise, monkeypatch):
    """Empty batches, remainders and microbatches included; a tree that ends draws its root."""
    private = training(
        None, data(n), batch_size=batch_size, microbatch=microbatch, noise=noise, epochs=2
    )
    forest = private.plan.factorization
    roots = isinstance(forest, Restarts) and forest.completes
    trees = math.ceil(private.steps / forest.every) if roots else 1
    drawn = []

    def counting(source, std, like):
        drawn.append(len(like))
        return gaussian_like(source, std, like)

    monkeypatch.setattr("privopt.torch.noise.gaussian_like", counting)
    run(private, 2)
    assert private.steps_done == private.steps == 2 * math.ceil(n / batch_size)
    assert len(drawn) == private.steps + trees - 1
    assert private.certificate().releases == private.steps


def test_an_empty_batch_is_a_step_of_noise():
    choices = {"neighbouring": "add_remove", "n_public": 10**4, "noise": "independent"}
    private = training(None, data(5), batch_size=1, epochs=1, **choices)
    before = weights(private.model)
    x, y = next(iter(private.loader))
    assert len(x) == 0
    private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 1
    assert not torch.equal(before, weights(private.model))


def test_step_takes_our_batch_once():
    private = training()
    x, y = data()[:10]
    with pytest.raises(Refused, match=r"batch that private\.loader has just given"):
        private.step(cross_entropy, x, targets=y)
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="another number of rows"):
        private.step(cross_entropy, torch.cat([x, x]), targets=torch.cat([y, y]))
    with pytest.raises(Refused, match="one number for each"):
        private.step(lambda out: cross_entropy(out, y).mean(), x)
    assert private.steps_done == 0
    assert private.epsilon_spent() == 0.0
    private.step(lambda out: cross_entropy(out, y), x)
    with pytest.raises(Refused, match="has just given"):
        private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 1


def test_the_budgets_steps_are_all_there_is():
    private = training(epochs=1)
    run(private)
    with pytest.raises(Refused, match="all 6 steps"):
        run(private)
    assert private.certificate().epsilon <= 2.0


def test_losses_do_not_leave():
    private = training()
    x, y = next(iter(private.loader))
    assert private.step(cross_entropy, x, targets=y) is None


def test_any_optimizer_and_scheduler():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    private = training(model, optimizer=optimizer)
    run(private)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.005
    run(private)
    assert all(p.grad is not None and p.grad.dtype == p.dtype for p in model.parameters())


def test_a_model_learns():
    """Digits of two kinds, in a second: far above chance."""
    torch.manual_seed(0)
    x = torch.randn(2000, 6)
    y = (x @ torch.tensor([2.0, -1, 1, 0, 0, 1]) > 0).long()
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    private = training(model, TensorDataset(x, y), batch_size=200, epochs=5, lr=2.0, noise="auto")
    run(private, 5)
    assert (model(x).argmax(1) == y).float().mean() > 0.9


def test_the_average_of_the_last_fifth():
    private = training(batch_size=6, epochs=1, noise="blt", lr=2.0)  # ten steps
    seen = []
    for x, y in private.loader:
        assert torch.equal(weights(private.averaged()), weights(private.model)) or len(seen) > 8
        private.step(cross_entropy, x, targets=y)
        seen.append(weights(private.model))
    torch.testing.assert_close(weights(private.averaged()), (seen[-1] + seen[-2]) / 2)
    assert torch.equal(weights(private.model), seen[-1])


def test_the_model_stays_picklable():
    private = training()
    run(private)
    file = io.BytesIO()
    torch.save(private.model, file)
    assert all(not module._forward_hooks for module in private.model.modules())
    assert private.run_by_example == ()


def test_keywords_and_several_inputs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x, *, other, flag=None):
            return SimpleNamespace(out=self.one(x) * self.two(other)).out

    private = training(Model().double())
    for x, y in private.loader:
        private.step(cross_entropy, x, targets=y, other=x + 1, flag="a")
    assert private.steps_done == 6


def test_the_room_is_found_under_privopt():
    assert privopt.torch.make_private is make_private
