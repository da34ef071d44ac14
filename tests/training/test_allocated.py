"""Training on batches of which each record is in one of an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import privopt.torch
from privopt.noise import source_for
from privopt.privacy import Refused
from privopt.torch.batches import Allocated

ROWS, SIZE = 60, 12


def run_of(**choices):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(ROWS, 3), torch.randint(0, 2, (ROWS,)))
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"epsilon": 2.0, "delta": 1e-5, "epochs": 2, "batches": "allocated", **choices}
    return privopt.torch.make_private(
        model, optimizer, DataLoader(data, batch_size=SIZE), random_state=0, **given
    )


def epoch(private):
    for x, y in private.loader:
        private.step(lambda out, y: F.cross_entropy(out, y, reduction="none"), x, targets=y)


def test_each_record_is_in_one_batch_of_each_epoch():
    schedule = Allocated(1000, 1000, 100, source_for(0))
    places = []
    for first in (0, 10):
        members = [schedule.draw(first + turn) for turn in range(10)]
        assert np.array_equal(np.sort(np.concatenate(members)), np.arange(1000))
        assert len({len(m) for m in members}) > 1  # balls in bins
        place = np.zeros(1000)
        for turn, those in enumerate(members):
            place[those] = turn
        places.append(place)
    assert abs(np.corrcoef(places)[0, 1]) < 0.15
    assert 0.05 < (places[0] == places[1]).mean() < 0.15  # dealt anew


def test_the_certificate_holds_what_epochs_cost():
    private = run_of()
    epoch(private)
    half = private.epsilon_spent()
    epoch(private)
    assert half < private.epsilon_spent() <= 2.0
    certificate = private.certificate()
    assert certificate.settings["batches"] == "allocated"
    assert certificate.epsilon <= 2.0
    assert (
        private.plan.noise_multiplier
        < run_of(batches="fixed", noise="independent").plan.noise_multiplier
    )


def test_states_are_those_between_epochs():
    private, other = run_of(), run_of()
    x, y = next(iter(private.loader))
    private.step(lambda out, y: F.cross_entropy(out, y, reduction="none"), x, targets=y)
    with pytest.raises(Refused, match="save when an epoch"):
        private.state_dict()
    epoch(private)
    other.load_state_dict(private.state_dict())
    assert other.steps_done == 5
    epoch(other)
    assert other.finished


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"neighbouring": "replace_one"}, "no theorem"),
        ({"noise": "banded"}, "independent noise only"),
        ({"epsilon": None, "noise_multiplier": 1.0}, "give epsilon"),
    ],
)
def test_refusals(choices, message):
    with pytest.raises(ValueError, match=message):
        run_of(**choices)
