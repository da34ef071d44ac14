"""Bad input: one clear sentence, and model and budget are as they were."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from privopt.privacy import Refused
from privopt.torch.clip import Clip

from .models import cross_entropy
from .runs import net, training, weights


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"delta": 0.0}, "delta > 0"),
        ({"epochs": 0}, "epochs must be"),
        ({"epochs": 2.5}, "epochs must be"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"clipping": "layers"}, "clipping must be"),
        ({"noise": "white"}, "noise must be"),
        ({"batches": "shuffled"}, "batches must be"),
        ({"noise": "blt", "batches": "poisson"}, "Poisson batches amplify"),
        ({"neighbouring": "add_remove"}, "give n_public"),
        ({"neighbouring": "add_remove", "n_public": 60, "batches": "fixed"}, "fixed batches shift"),
        ({"n_public": 59}, "drop n_public"),
        ({"batch_size": 61}, "does not fit into 60 records"),
        ({"microbatch": 0}, "microbatch must be"),
        ({"microbatch": 2.5}, "microbatch must be"),
        ({"compile": 1}, "compile must be"),
        ({"optimizer": "sgd"}, "must be a torch Optimizer"),
        ({"random_state": "x"}, "random_state must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
    ],
)
def test_bad_choices(choices, words):
    with pytest.raises(ValueError, match=words):
        training(**choices)


def test_matrices_are_for_reference():
    with pytest.raises(Refused, match="needs a matrix"):
        training(noise="honaker_full")


def test_batch_normalisation_is_refused_before_data_is_used():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(Refused, match=r"layer '1' \(BatchNorm1d\) mixes"):
        training(model)


def test_an_optimizer_that_asks_for_losses():
    model = net()
    with pytest.raises(ValueError, match="LBFGS asks for the loss again"):
        training(model, optimizer=torch.optim.LBFGS(model.parameters()))


def test_an_optimizer_of_sparse_gradients():
    model = net()
    with pytest.raises(ValueError, match="use Adam"):
        training(model, optimizer=torch.optim.SparseAdam(list(model.parameters())))


def test_an_optimizer_of_a_part_of_the_model():
    """The others would be clipped along, and their gradients would be for nothing."""
    model = net()
    optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
    with pytest.raises(ValueError, match="freeze them"):
        training(model, optimizer=optimizer)
    model[0].requires_grad_(False)
    assert training(model, optimizer=optimizer).settings()["parameters"] == 18


def test_an_optimizer_of_another_model():
    with pytest.raises(ValueError, match="not the model's"):
        training(net(), optimizer=torch.optim.SGD(net().parameters(), 0.1))


def test_a_model_that_moved():
    private = training()
    x, y = next(iter(private.loader))
    private.model[0].requires_grad_(False)
    with pytest.raises(Refused, match="trains other parameters"):
        private.step(cross_entropy, x, targets=y)
    private.model[0].requires_grad_(True)
    private.model.to("meta")
    with pytest.raises(Refused, match="has moved"):
        private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 0


def test_microbatches_need_targets():
    private = training(microbatch=1)
    for x, y in private.loader:
        if len(x) > 1:
            break
        private.step(cross_entropy, x, targets=y)
    with pytest.raises(ValueError, match="need targets"):
        private.step(lambda out: cross_entropy(out, y), x)


# ------------------------------------------------------------ model and budget unharmed
def _other_rows(private, x, y):
    private.step(cross_entropy, x[:1].repeat(len(x) + 1, 1), targets=y)


MISTAKES = {
    "averaged": (
        lambda private, x, y: private.step(
            lambda out, t: cross_entropy(out, t).mean(), x, targets=y
        ),
        "one number for each",
    ),
    "a loss of pairs": (
        lambda private, x, y: private.step(
            lambda out, t: cross_entropy(out, t) - cross_entropy(out, t).mean(), x, targets=y
        ),
        "the loss of one example depends on others",
    ),
    "rows of another loader": (_other_rows, "another number of rows"),
    "no targets": (
        lambda private, x, y: private.step(lambda out: cross_entropy(out, y), x),
        "need targets",
    ),
    "the model's own mistake": (
        lambda private, x, y: private.step(cross_entropy, x[:, :1], targets=y),
        "shapes cannot be multiplied",
    ),
    "two batches": (lambda private, x, y: list(private.loader), "each batch is stepped once"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("noise", ["independent", "blt"])
def test_a_mistake_costs_nothing(name, noise):
    """And the right step can be taken afterwards."""
    action, words = MISTAKES[name]
    private = training(noise=noise, microbatch=4, batch_size=12)
    x, y = next(iter(private.loader))
    before = weights(private.model)
    with pytest.raises((Refused, ValueError, RuntimeError), match=words):
        action(private, x, y)
    assert torch.equal(before, weights(private.model))
    assert private.epsilon_spent() == private.steps_done == len(private._run.log) == 0
    assert all(p.grad is None for p in private.model.parameters())
    private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 1


def test_a_model_that_mixes_examples_is_refused_at_its_first_step():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.two(self.one(x) - self.one(x).mean(0))

    private = training(Mixes().double())
    x, y = next(iter(private.loader))
    before = weights(private.model)
    with pytest.raises(Refused, match="layer 'two' sees other examples"):
        private.step(cross_entropy, x, targets=y)
    assert torch.equal(before, weights(private.model))
    assert private.epsilon_spent() == 0.0


def test_the_clip_norm_of_correlated_noise_cannot_change():
    private = training(noise="blt")
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(cross_entropy, x, targets=y)
    before, spent = weights(private.model), private.epsilon_spent()
    x, y = next(batches)
    private._engine.clip = Clip(2.0)
    with pytest.raises(Refused, match="clip norm of a stream cannot change"):
        private.step(cross_entropy, x, targets=y)
    assert torch.equal(before, weights(private.model))
    assert private.epsilon_spent() == spent
    private._engine.clip = Clip(1.0)
    private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 2


def test_a_loss_that_is_not_finite_is_a_step_like_any_other():
    """To refuse it would tell that such an example is there: it counts as zero."""
    ends = []
    for bad in (0.0, math.nan, math.inf):
        private = training(noise="independent")
        x, y = next(iter(private.loader))
        factors = torch.ones(len(y), dtype=torch.float64)
        factors[0] = bad
        private.step(lambda out, t, factors=factors: cross_entropy(out, t) * factors, x, targets=y)
        ends.append(weights(private.model))
    assert torch.isfinite(ends[0]).all()
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_size", [10, 60])
def test_an_ordinary_loop_is_refused_before_its_first_step(batch_size):
    """Gradients without noise: the epsilon of such a run would be printed as zero."""
    private = training(batch_size=batch_size)
    before = weights(private.model)
    x, y = next(iter(private.loader))
    cross_entropy(private.model(x), y).mean().backward()
    with pytest.raises(Refused, match=r"waits for private\.step"):
        private.optimizer.step()
    assert torch.equal(before, weights(private.model))
    private.optimizer.zero_grad()
    private.step(cross_entropy, x, targets=y)
    assert private.steps_done == 1


def test_the_newest_run_guards_the_optimizer():
    """A run that was left alone, with a batch that waits, does not stand in the way of the next."""
    first = training()
    next(iter(first.loader))
    second = training(first.model, optimizer=first.optimizer)
    x, y = next(iter(second.loader))
    second.step(cross_entropy, x, targets=y)
    assert second.steps_done == 1
    next(iter(second.loader))
    with pytest.raises(Refused, match=r"waits for private\.step"):
        first.optimizer.step()


def test_steps_on_public_data_are_free():
    """Between two private steps, while no batch waits."""
    private = training()
    for x, y in private.loader:
        private.step(cross_entropy, x, targets=y)
        private.optimizer.zero_grad()
        cross_entropy(private.model(torch.ones_like(x[:1])), y[:1]).sum().backward()
        private.optimizer.step()
    assert private.steps_done == 6
