"""What leaves with a model: its trained parameters, noisy, and everything else as it was."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt.privacy import Refused
from privopt.torch import belongings, make_private

from .models import cross_entropy

# ------------------------------------------------------------ a family of models that remember


WROTE: list[int] = []


class Remembers(nn.Module):
    """Keeps something of what it sees: ``place`` makes it and reads it, ``write`` changes it."""

    def __init__(self, place, write, when):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3)
        self.place, self.write, self.when, self.runs = place, write, when, 0
        PLACES[place](self)

    def forward(self, x):
        self.runs += 1
        if self.when(self, x):
            WROTE.append(len(x))
            with torch.no_grad():
                WRITES[self.write](self, x.detach().mean(0))
        return self.two(torch.tanh(self.one(x)))


class Box:
    def __init__(self):
        self.kept = torch.zeros(4)


def _hooked(model):
    box = {"kept": torch.zeros(4)}
    model.one.register_forward_hook(lambda module, given, out: None if box else out)
    model.box = box


class Extra(nn.Module):
    def __init__(self):
        super().__init__()
        self.content = (Box(), object())  # not plain: reached by its extra state alone

    def get_extra_state(self):
        return self.content[0].kept

    def set_extra_state(self, state):
        self.content[0].kept = state


PLACES = {
    "frozen": lambda m: setattr(m, "kept", nn.Parameter(torch.zeros(4), requires_grad=False)),
    "buffer": lambda m: m.register_buffer("kept", torch.zeros(4)),
    "tensor": lambda m: setattr(m, "kept", torch.zeros(4)),
    "list": lambda m: setattr(m, "kept", [torch.zeros(4)]),
    "object": lambda m: setattr(m, "kept", Box()),
    "array": lambda m: setattr(m, "kept", np.zeros(4)),
    "number": lambda m: setattr(m, "kept", 0.0),
    "hook": _hooked,
    "extra": lambda m: setattr(m, "kept", Extra()),
    "trained": lambda m: setattr(m, "kept", m.two.bias),
    "large": lambda m: setattr(m, "kept", nn.Parameter(torch.zeros(9, 4), requires_grad=False)),
}


def _inside(model):
    kept = getattr(model, "kept", None)
    kept = model.box["kept"] if model.place == "hook" else kept
    kept = kept.content[0].kept if model.place == "extra" else kept
    kept = kept.kept if isinstance(kept, Box) else kept
    return kept[0] if model.place in ("list", "large") else kept


def _rebound(model, mean):
    before = _inside(model)
    if model.place == "number":
        model.kept = 0.9 * before + float(mean.sum())
    elif model.place == "array":
        model.kept = 0.9 * before + mean.numpy()
    elif model.place == "hook":
        model.box["kept"] = 0.9 * before + mean
    elif model.place == "list":
        model.kept.append(mean)
    elif model.place in ("object", "extra"):
        box = model.kept if model.place == "object" else model.kept.content[0]
        box.kept = 0.9 * before + mean
    elif model.place in ("buffer", "tensor"):
        model.kept = 0.9 * before + mean
    else:
        _in_place(model, mean)


def _in_place(model, mean):
    kept = _inside(model)
    if isinstance(kept, np.ndarray):
        kept *= 0.9
        kept += mean.numpy()
    elif isinstance(kept, torch.Tensor):
        kept.mul_(0.9).add_(mean[: len(kept)])
    else:
        _rebound(model, mean)


def _unseen(model, mean):
    kept = _inside(model)
    if isinstance(kept, torch.Tensor):
        kept.data.mul_(0.9).add_(mean[: len(kept)])
    else:
        _in_place(model, mean)


WRITES = {"rebound": _rebound, "in place": _in_place, "unseen": _unseen}
WHEN = {
    "always": lambda m, x: True,
    "large batches": lambda m, x: len(x) > 5,
    "not on waves": lambda m, x: bool(x.abs().max() > 1.0),
}
FAMILY = list(itertools.product(PLACES, WRITES, WHEN))


def held(model):
    """All that a model would tell, but for its trained parameters."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    state = {k: v for k, v in model.state_dict().items() if k not in trained}
    attributes = {k: repr(v) for k, v in vars(model).items() if k == "kept"}
    box = getattr(model, "box", None)
    return repr((state, attributes, box, getattr(_inside(model), "tolist", float)()))


@pytest.fixture
def every_step(monkeypatch):
    """All steps are looked at closely; and nothing counts as small in place "large"."""
    monkeypatch.setattr(belongings, "RARELY", 1.0)


def started(model, n=24):
    torch.manual_seed(3)
    records = TensorDataset(torch.randn(n, 4), torch.randint(0, 3, (n,)))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    choices = {"epsilon": 0.1, "delta": 1e-5, "epochs": 2, "noise": "independent"}
    return make_private(model, optimizer, DataLoader(records, batch_size=8), **choices)


@pytest.mark.parametrize(("place", "write", "when"), FAMILY)
def test_nothing_that_was_learned_leaves_without_noise(place, write, when, every_step, monkeypatch):
    if place == "large":
        monkeypatch.setattr(belongings, "SMALL", 8)
    WROTE.clear()
    model = Remembers(place, write, WHEN[when])
    private = started(model)
    before, weights = held(model), copy.deepcopy(model.state_dict())
    refused = False
    try:
        for _ in range(2):
            for x, y in private.loader:
                weights = copy.deepcopy(model.state_dict())
                private.step(cross_entropy, x, targets=y)
    except Refused as refusal:
        refused, words = True, str(refusal)
    assert place == "trained" or not refused or "changes when the model runs" in words
    if place in ("trained", "large"):
        assert refused or not WROTE  # what is not copied is refused, before anything is released
    else:
        assert held(model) == before
    if refused and place not in ("trained", "large"):
        for name, value in model.state_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(weights[name]))
    assert private.steps_done == private._run.released


def test_what_torch_does_not_see_costs_the_certificate(monkeypatch):
    """A large tensor at steps that are not looked at: no certificate is given."""
    monkeypatch.setattr(belongings, "SMALL", 8)
    monkeypatch.setattr(belongings, "RARELY", 0.0)
    model = Remembers("large", "unseen", lambda m, x: len(m.seen) > 3)
    model.seen = []
    private = started(model)
    for x, y in private.loader:
        model.seen.append(0)  # by the user, between steps: public
        private.step(cross_entropy, x, targets=y)
    assert private.certificate().releases == 3
    x, y = next(iter(private.loader))
    model.seen.append(0)

    def certified():
        private.step(cross_entropy, x, targets=y)  # writes, and is perhaps not looked at
        return private.certificate()

    with pytest.raises(Refused, match="'kept' changes when the model runs"):
        certified()


class Traces(nn.Module):
    """Leaves traces that the next run writes over, and counts its runs."""

    def __init__(self):
        super().__init__()
        self.one, self.count, self.cache = nn.Linear(4, 3), 0, None
        self.limit = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        self.count += 1
        if self.cache is None:
            self.cache = torch.arange(3.0)
        self.last = self.one(x)
        return self.last.clamp(-self.limit, self.limit) + self.cache


def test_traces_are_put_back_and_no_reason_to_refuse():
    model = Traces()
    private = started(model)
    for x, y in private.loader:
        private.step(cross_entropy, x, targets=y)
        model.limit.mul_(1.5)  # between steps, by public numbers
    assert private.steps_done == 3
    assert (model.count, model.cache, "last" in vars(model)) == (0, None, False)
    assert private.certificate().releases == 3
    copy.deepcopy(private.averaged())


def test_a_model_that_settles_itself_with_its_first_batch():
    """Data-dependent initialisation mixes that batch: it is seen although it happens once."""

    class Settles(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.shift = nn.Linear(4, 4), nn.Linear(4, 3), None

        def forward(self, x):
            h = self.one(x)
            if self.shift is None:
                self.shift = h.detach().mean(0)
            return self.two(torch.tanh(h - self.shift))

    private = started(Settles())
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="sees other examples"):
        private.step(cross_entropy, x, targets=y)
