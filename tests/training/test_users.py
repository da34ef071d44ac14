"""Users in place of records: what is clipped is a user's, and the guarantee is for users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt import Refused
from privopt.audit import replay, user_pairs
from privopt.noise import SeededSource, SilentSource
from privopt.torch import make_private
from privopt.torch.users import Users

USERS, ROWS, CLIP, MOST = 40, 200, 0.5, 3
DRAWS = SeededSource(0).noise
X = torch.tensor(DRAWS.normal(size=(ROWS, 4)))
Y = torch.tensor(DRAWS.normal(size=ROWS))
IDS = np.minimum(DRAWS.geometric(0.05, size=ROWS) - 1, USERS - 1)
KINDS = [("independent", "poisson"), ("banded", "poisson"), ("blt", "fixed"), ("honaker", "fixed")]


def squared(out, target):
    return (out[:, 0] - target) ** 2


def made(model=None, data=(X, Y), ids=IDS, **more):
    model = nn.Linear(4, 1).double() if model is None else model
    given = {
        "epsilon": 4.0, "delta": 1e-4, "epochs": 2, "clip_norm": CLIP, "user_ids": ids,
        "rows_per_user": MOST, "random_state": 0, "noise": "blt",
    }  # fmt: skip
    loader = DataLoader(TensorDataset(*data), batch_size=8)
    return make_private(
        model, torch.optim.SGD(model.parameters(), 1.0), loader, **{**given, **more}
    )


def by_hand(model, rows, together):
    """The clipped gradient of one user: of the sum of the losses, or row by row."""
    groups = [rows] if together else [[row] for row in rows]
    total = torch.zeros(5, dtype=torch.double)
    for group in groups:
        loss = squared(model(X[group]), Y[group]).sum()
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        bound = CLIP / (1 if together else MOST)
        total += flat * min(1.0, bound / float(flat.norm()))
    return total


@pytest.mark.parametrize(("noise", "batches"), KINDS)
@pytest.mark.parametrize("clipping", ["together", "rows"])
def test_without_noise_a_step_is_the_mean_of_the_users_clipped_gradients(noise, batches, clipping):
    private = made(
        noise=noise, batches=batches, user_clipping=clipping, random_state=SilentSource()
    )
    model = private.model
    for x, y in private.loader:
        step = private.steps_done
        rows = [list(r) for r in private.loader.brought(step)]
        assert len(x) == sum(map(len, rows))
        empty = torch.zeros(5, dtype=torch.double)
        total = sum((by_hand(model, r, clipping == "together") for r in rows), empty)
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        private.step(squared, x, targets=y)
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        expected = before - total / private.expected_batch_size
        assert torch.allclose(after, expected, atol=1e-9)


@pytest.mark.parametrize("clipping", ["together", "rows"])
@pytest.mark.parametrize(("noise", "batches"), KINDS)
def test_the_budget_and_the_noise_are_those_of_as_many_records(noise, batches, clipping):
    """A user costs what a record would in a data set of users, and moves a step as far."""
    private = made(noise=noise, batches=batches, user_clipping=clipping)
    users = len(np.unique(IDS))
    model = nn.Linear(4, 1).double()
    alike = make_private(
        model,
        torch.optim.SGD(model.parameters(), 1.0),
        DataLoader(TensorDataset(X[:users], Y[:users]), batch_size=8),
        epsilon=4.0, delta=1e-4, epochs=2, clip_norm=CLIP, noise=noise, batches=batches,
    )  # fmt: skip
    assert (private.steps, private.noise_std) == (alike.steps, alike.noise_std)
    while not private.finished:
        for x, y in private.loader:
            private.step(squared, x, targets=y)
    certificate = private.certificate()
    assert (certificate.unit, certificate.releases) == ("user", private.steps)
    assert 3.5 < certificate.epsilon <= 4.0 * (1 + 1e-9)
    assert "one id" in str(certificate.assumptions)
    assert (certificate.settings["rows_per_user"], certificate.settings["clip_norm"]) == (3, CLIP)


@pytest.mark.parametrize("clipping", ["together", "rows"])
def test_the_noise_of_a_step_is_there(clipping):
    model = nn.Linear(3000, 1, bias=False).double()
    data = torch.zeros(ROWS, 3000, dtype=torch.double), Y  # gradients are zero
    private = made(model, data, noise="independent", batches="fixed", user_clipping=clipping)
    before = model.weight.detach().clone()
    for x, y in private.loader:
        private.step(squared, x, targets=y)
        break
    found = float((model.weight - before).detach().std()) * private.expected_batch_size
    assert found == pytest.approx(private.noise_std, rel=0.08)


def test_rows_are_chosen_anew_and_never_more_than_declared():
    private = made(random_state=SilentSource(), epochs=6)
    busiest, seen = np.bincount(IDS).argmax(), []
    while not private.finished:
        for x, y in private.loader:
            for rows in private.loader.brought(private.steps_done):
                assert len(set(rows)) == len(rows) <= MOST
                assert len(set(IDS[rows])) == 1
                if IDS[rows[0]] == busiest:
                    seen.append(tuple(sorted(rows)))
            private.step(squared, x, targets=y)
    assert len(seen) == 6
    assert len(set(seen)) > 3


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("clipping", ["together", "rows"])
def test_a_user_moves_every_release_by_the_clip_norm_at_most(relation, clipping):
    """Replayed on neighbours that differ in all rows of one user."""

    def run(A, b):
        data = torch.tensor(np.nan_to_num(A[:, :-1], nan=np.nan)), torch.tensor(b)
        model = nn.Linear(A.shape[1] - 1, 1).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        private = made(
            model, data, A[:, -1].astype(int), neighbouring=relation, user_clipping=clipping
        )
        for x, y in private.loader:
            private.step(squared, x, targets=y)
        return [p.detach().numpy() for p in model.parameters()], private.certificate().to_json()

    people = tuple(range(12))  # coins belong to users here
    for pair in user_pairs(relation)[:3]:
        assert replay(run, replace(pair, first_ids=people, second_ids=people)) == []


def trained(**how):
    """Parameters after all steps, without noise."""
    model = nn.Linear(4, 1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    private = made(model, random_state=SilentSource(), batches="fixed", **how)
    while not private.finished:
        for x, y in private.loader:
            private.step(squared, x, targets=y)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), private


@pytest.mark.parametrize(
    "how",
    [
        {"user_clipping": "rows", "microbatch": 5},
        {"user_clipping": "rows", "compile": "eager"},
        {"user_clipping": "together", "microbatch": 2},
        {"user_clipping": "together", "microbatch": 7},
    ],
    ids=str,
)
def test_pieces_and_graphs_give_the_same_sums(how):
    whole, _ = trained(user_clipping=how["user_clipping"], epochs=1)
    found, private = trained(**how, epochs=1)
    assert torch.allclose(found, whole, atol=1e-9)
    assert private.users.clipping == how["user_clipping"]


@pytest.mark.parametrize("clipping", ["together", "rows"])
def test_views_of_rows_are_averaged_before_the_clip(clipping):
    both = torch.stack([X, X + 0.1], dim=1)
    model = nn.Linear(4, 1).double()
    parameters, most = list(model.parameters()), CLIP / (1 if clipping == "together" else MOST)
    private = made(
        model, (both, Y), user_clipping=clipping, views=2, random_state=SilentSource(),
        batches="fixed",
    )  # fmt: skip
    x, y = next(iter(private.loader))
    before, total = torch.cat([p.detach().flatten() for p in parameters]), 0.0
    for rows in private.loader.brought(0):
        for group in [list(rows)] if clipping == "together" else [[row] for row in rows]:
            views = [squared(model(both[group, v]), Y[group]).sum() / 2 for v in (0, 1)]
            flat = torch.cat([g.flatten() for g in torch.autograd.grad(sum(views), parameters)])
            total = total + flat * min(1.0, most / float(flat.norm()))
    private.step(squared, x, targets=y)
    after = torch.cat([p.detach().flatten() for p in parameters])
    assert torch.allclose(after, before - total / private.expected_batch_size, atol=1e-8)


@pytest.mark.parametrize("microbatch", [None, 7])
def test_the_curve_is_the_mean_over_users_of_the_means_of_their_rows(microbatch):
    model = nn.Linear(4, 1).double()
    private = made(
        model, random_state=SilentSource(), batches="fixed", epochs=1, loss_curve=2.0,
        microbatch=microbatch,
    )  # fmt: skip
    total, count = 0.0, 0
    for x, y in private.loader:
        for rows in private.loader.brought(private.steps_done):
            with torch.no_grad():
                own = float(squared(model(X[rows]), Y[rows]).mean())
            total, count = total + min(own, 2.0), count + 1
        private.step(squared, x, targets=y)
    (mean,) = private.loss_curve
    expected = private.expected_batch_size * private.steps
    assert mean == pytest.approx(total / expected, rel=1e-6)


def test_a_user_with_a_curve_moves_a_release_no_further():
    """Gradient and loss together, replayed on neighbours; noise is wider by half a percent."""

    def run(A, b):
        data = torch.tensor(A[:, :-1]), torch.tensor(b)
        model = nn.Linear(A.shape[1] - 1, 1).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        private = made(model, data, A[:, -1].astype(int), loss_curve=1.5, batches="fixed")
        for x, y in private.loader:
            private.step(squared, x, targets=y)
        return [p.detach().numpy() for p in model.parameters()], private.loss_curve

    people = tuple(range(12))
    for pair in user_pairs("zero_out")[:3]:
        assert replay(run, replace(pair, first_ids=people, second_ids=people)) == []
    assert made(loss_curve=1.0).noise_std == pytest.approx(made().noise_std * 1.01**0.5)


def test_the_sentence_says_which_is_better():
    assert "up to 1.7 times less noise" in repr(made())
    assert "faster" in repr(made(user_clipping="rows"))
    assert str(Users([1, 2], 1, "rows", 2)) == "one row of each user"


BAD = [
    ({"rows_per_user": 0}, "rows_per_user must be a positive integer"),
    ({"rows_per_user": None}, "user_ids need rows_per_user"),
    ({"user_ids": None}, "rows_per_user needs user_ids"),
    ({"user_ids": IDS[:-1]}, "one id for each of the 200 rows"),
    ({"user_ids": [None, *IDS[1:]]}, "missing value"),
    ({"user_clipping": "both"}, "together"),
    ({"compile": True}, "run by themselves, which is not compiled"),
    ({"loss_curve": 1.0, "user_clipping": "rows"}, "users bring different numbers"),
    ({"user_ids": [7.5, *IDS[1:].tolist()]}, "user_ids"),
    ({"user_ids": ["7", *IDS[1:].tolist()]}, "user_ids"),
]


@pytest.mark.parametrize(("given", "sentence"), BAD)
def test_bad_input_is_one_sentence(given, sentence):
    with pytest.raises((ValueError, Refused), match=sentence):
        made(**given)
