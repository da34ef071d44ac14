"""Who is who: a record that is held twice, and records in the places of others."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from privopt.privacy import Refused
from privopt.torch.fingerprints import EMPTY, Fingerprints, digest_of

from .runs import data, net, run, training, weights

BASE = data(24)


class Items(Dataset):
    """Records by number, in whatever form and order a class of the user's gives them."""

    def __init__(self, numbers, form="pairs", noisy=False):
        self.numbers, self.form, self.noisy = list(numbers), form, noisy

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, place):
        x, y = BASE[self.numbers[place]]
        if self.noisy:  # changes at random, as in the reading of pictures
            x = x + torch.rand(4) + np.random.rand() + random.random()  # noqa: NPY002
        return {"pairs": (x, y), "names": {"x": x.numpy(), "y": int(y)}, "text": [repr(x), y]}[
            self.form
        ]


REPEATS = {
    "every record eight times": [i % 6 for i in range(48)],
    "one after the other": [i // 8 for i in range(48)],
    "one record twice": [*range(24), 7],
    "a class that is repeated": [*range(24), 3, 3, 3, 5],
}
FORMS = ["pairs", "names", "text"]


@pytest.mark.parametrize(
    ("form", "noisy"), [("pairs", False), ("names", False), ("text", False), ("pairs", True)]
)
@pytest.mark.parametrize("name", REPEATS)
def test_repeats_are_refused_before_anything_is_drawn(name, form, noisy):
    """Eight times the same record at the price of one: epsilon 10 in place of 1."""
    records, model = Items(REPEATS[name], form, noisy), net()
    before = weights(model)
    with pytest.raises(ValueError, match="the same record more than once"):
        training(model, records)
    assert torch.equal(before, weights(model))
    stated = training(model, records, equal_records="people")
    assert "equal records in the data set are different people" in stated._assumptions
    unread = training(model, records, equal_records="unchecked")
    assert any("not checked" in text for text in unread._assumptions)


@pytest.mark.parametrize("form", FORMS)
def test_different_records_are_no_repeats(form):
    assert "more than once" not in repr(training(records=Items(range(24), form))._assumptions)


def test_rows_of_a_table_are_people_unless_it_is_asked():
    records = TensorDataset(*(x.repeat(8, *[1] * (x.dim() - 1)) for x in BASE.tensors))
    stated = training(records=records).certificate().assumptions
    assert "equal records in the data set are different people" in stated
    with pytest.raises(ValueError, match="the same record more than once"):
        training(records=records, equal_records="refused")
    training(records=BASE, equal_records="refused")
    with pytest.raises(ValueError, match="equal_records must be"):
        training(equal_records="some")


def test_the_random_numbers_of_a_user_stay():
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    training(records=Items(range(24), noisy=True), model=torch.nn.Linear(4, 3).double())
    torch.manual_seed(1)
    Fingerprints(DataLoader(Items(range(24), noisy=True)))
    assert torch.equal(torch.rand(3), first)


def test_records_without_content_stand_for_nobody():
    """A neighbour under zero_out holds one in somebody's place; there may be many."""
    x = torch.randn(24, 4).double()
    x[3], x[5], x[7], x[8] = 0, 0, torch.nan, torch.nan
    y = torch.ones(24, dtype=torch.int64)
    y[[3, 5]] = 0
    training(records=TensorDataset(x, y))
    assert digest_of({"x": torch.zeros(3), "y": 0, "z": None}, b"k") == EMPTY
    assert digest_of((float("nan"), 5), b"k") == EMPTY


def test_content_alone_counts():
    same = [digest_of((torch.ones(2), "a"), b"k"), digest_of([torch.ones(2), "a"], b"k")]
    assert same[0] == same[1] != EMPTY
    others = [
        (torch.ones(2), "b"),
        (torch.ones(2).double(), "a"),
        (torch.ones(1, 2), "a"),
        ("a", torch.ones(2)),
        {"x": torch.ones(2), "y": "a"},
        {"y": torch.ones(2), "x": "a"},
        (np.int64(1), object),
        (b"1", torch.ones(2).bfloat16()),
    ]
    found = [same[0], *(digest_of(other, b"k") for other in others)]
    assert len(set(found)) == len(found)
    assert digest_of(1, b"k") != digest_of(1, b"l")  # nobody can look a record up
    assert digest_of(lambda: 0, b"k") is None


def test_items_that_cannot_be_compared_are_an_assumption():
    class Closures(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, place):
            return lambda: place

    private = training(records=Closures(), batch_size=2)
    assert "its items cannot be compared" in repr(private._assumptions)


# ------------------------------------------------------------ going on with others
CHANGES = {
    "another order": [*range(12, 24), *range(12)],
    "two exchanged": [1, 0, *range(2, 24)],
    "one record replaced": [*range(23), 0],
}


@pytest.mark.parametrize("noise", ["independent", "banded", "blt"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_run_goes_on_with_its_records(name, noise):
    choices = {"noise": noise, "equal_records": "people", "random_state": None}
    private = training(records=Items(range(24)), **choices)
    run(private)
    state = private.state_dict()
    other = training(records=Items(CHANGES[name]), **choices)
    with pytest.raises(Refused, match="other records than the one this state was written with"):
        other.load_state_dict(state)
    assert other.steps_done == 0
    again = training(records=Items(range(24)), **choices)
    again.load_state_dict(state)
    assert "not checked" not in repr(again.certificate().assumptions)
    assert again._records.state() == state["records"]  # as long as the run lasts
    blind = training(records=Items(CHANGES[name]), **(choices | {"equal_records": "unchecked"}))
    blind.load_state_dict(state)
    assert "the records it began with, in the same order (not checked)" in repr(
        blind.certificate().assumptions
    )


# ------------------------------------------------------------ passes
class Stream(IterableDataset):
    def __init__(self, numbers):
        self.numbers = list(numbers)

    def __iter__(self):
        return (BASE[i] for i in self.numbers)


def test_a_pass_over_a_stream():
    """The batches are cut at public places, and a run goes on in the middle of a pass."""
    choices = {"n_public": 24, "batch_size": 10, "random_state": None}
    private = training(records=Stream(range(24)), **choices)
    assert (private.plan.noise, private.plan.batches, private.steps) == ("independent", "fixed", 9)
    seen = []
    for x, y in private.loader:
        seen.append(x)
        private.step(lambda out, t: out.sum(1) * t, x, targets=y)
        if len(seen) == 2:
            break
    resumed = training(records=Stream(range(24)), **choices)
    resumed.load_state_dict(private.state_dict())
    seen += [x for x, _ in resumed.loader]
    assert torch.equal(torch.cat(seen), BASE.tensors[0])
    assert [len(x) for x in seen] == [8, 8, 8]
    run(private, 3)
    whole = training(records=data(24), noise="independent", batches="fixed", batch_size=10)
    run(whole, 3)
    assert private.epsilon_spent() == pytest.approx(whole.epsilon_spent())
    assert "each record comes once in a pass" in repr(private.certificate().assumptions)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([i % 3 for i in range(24)], "the same record more than once"),
        ([*range(24), 0], "more records in a pass than n_public"),
        ([], "no record at all"),
    ],
)
def test_streams_that_are_not_what_was_declared(numbers, words):
    private = training(records=Stream(numbers), n_public=24, batch_size=24)
    with pytest.raises(Refused, match=words):
        run(private)
    assert private.steps_done == 0


def test_a_stream_that_ends_early_has_empty_steps():
    private = training(records=Stream(range(5)), n_public=24, batch_size=8)
    run(private, 3)
    assert private.finished


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"noise": "blt"}, "read in its own order"),
        ({"batches": "poisson"}, "read in its own order"),
        ({"neighbouring": "add_remove"}, "shifts all that follow"),
        ({"n_public": None}, "the data set needs a length, or"),
        ({"batch_size": None}, "needs a batch_size"),
    ],
)
def test_streams_that_no_theorem_covers(choices, words):
    with pytest.raises(ValueError, match=words):
        training(records=Stream(range(24)), **({"n_public": 24} | choices))
