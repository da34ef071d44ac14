"""Streams for users: their rows are cut to a public number, their participations counted."""

from __future__ import annotations

import numpy as np
import pytest

from privopt import OnlineLinearRegression, OnlineLogisticRegression, Refused
from privopt.audit import replay, user_pairs
from privopt.noise import SilentSource

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(240, 3)) * 0.3
LABELS = np.where(X @ [2.0, -1.0, 0.5] + 0.1 * DRAWS.normal(size=240) > 0, 1, -1)
NUMBERS = np.clip(X @ [0.5, -0.5, 0.2], -1, 1)
WHO = np.arange(240) // 4  # 60 users with four rows each, ten of them in each batch
KINDS = [
    (OnlineLogisticRegression, LABELS, {"classes": [-1, 1]}),
    (OnlineLinearRegression, NUMBERS, {}),
]


def made(kind, more, **given):
    how = {
        "epsilon": 3.0, "delta": 1e-4, "n_steps": 6, "rows_per_user": 2, "random_state": 0,
        "noise": "banded",
    }  # fmt: skip
    return kind(**{**how, **more, **given})


def passed(model, y, ids=WHO, steps=6, **more):
    for part in np.array_split(np.arange(240), 6)[:steps]:
        who = {} if ids is None else {"user_ids": ids[part]}
        model.partial_fit(X[part], y[part], **who, **more)
    return model


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
@pytest.mark.parametrize("noise", ["independent", "tree", "banded", "blt"])
def test_noise_is_that_of_the_rows_of_a_user_together(kind, y, more, noise):
    users = passed(made(kind, more, noise=noise), y)
    records = passed(made(kind, more, noise=noise, rows_per_user=None), y, ids=None)
    certificate, run = users.privacy_, users._run
    assert run.multiplier == pytest.approx(2 * records._run.multiplier)
    assert (certificate.unit, certificate.releases) == ("user", 6)
    assert certificate.epsilon == pytest.approx(3.0)
    assert "every row of a user carries" in str(certificate.assumptions)
    assert "not checked" not in str(certificate.assumptions)


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
def test_the_first_rows_of_each_user_count_and_no_others(kind, y, more):
    """Without noise: the model of the rows that count, given alone."""
    found = passed(made(kind, more, random_state=SilentSource()), y)
    other = made(kind, more, random_state=SilentSource(), rows_per_user=2)
    kept = np.flatnonzero(np.arange(240) % 4 < 2)
    for part in np.array_split(kept, 6):
        other.partial_fit(X[part], y[part], user_ids=WHO[part])
    assert np.array_equal(found.coef_, other.coef_)


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
def test_users_keep_the_rule(kind, y, more):
    model = passed(made(kind, more), y, steps=1)
    before = model.coef_.copy()
    with pytest.raises(Refused, match="max_participations"):
        model.partial_fit(X[:8], y[:8], user_ids=[*WHO[200:207], 0])
    again = made(kind, more, max_participations=2, min_separation_steps=3)
    passed(again, y, steps=1)
    with pytest.raises(Refused, match="min_separation_steps"):
        again.partial_fit(X[:4], y[:4], user_ids=WHO[:4])
    assert (model.steps_, again.steps_) == (1, 1)  # nothing was lost
    assert np.array_equal(before, model.coef_)


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
def test_a_stream_of_users_resumes(tmp_path, kind, y, more):
    first = passed(made(kind, more, checkpoint=tmp_path / "run"), y, steps=3)
    second = made(kind, more, checkpoint=tmp_path / "run").resume()
    assert second.privacy_.epsilon == first.privacy_.epsilon
    assert second.privacy_.unit == "user"
    with pytest.raises(Refused, match="max_participations"):
        second.partial_fit(X[:4], y[:4], user_ids=WHO[:4])
    with pytest.raises(Refused, match="rows_per_user cannot change"):
        made(kind, more, checkpoint=tmp_path / "run", rows_per_user=3).partial_fit(
            X[200:], y[200:], user_ids=WHO[200:]
        )
    fresh = made(kind, more, checkpoint=tmp_path / "run", epsilon=6.0).start_new_stream()
    for part in np.array_split(np.arange(120, 240), 3):
        fresh.partial_fit(X[part], y[part], user_ids=WHO[part])
    assert fresh.privacy_.epsilon == pytest.approx(6.0)  # both streams, and for users


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
def test_one_pass_over_users(kind, y, more):
    model = made(kind, more, n_steps=6).fit(X, y, user_ids=WHO)
    assert (model.steps_, model.privacy_.unit) == (6, "user")
    with pytest.raises(Refused, match="max_participations"):  # users in several batches
        made(kind, more, n_steps=6).fit(X, y, user_ids=np.arange(240) % 7)


@pytest.mark.parametrize(("kind", "more"), [(k, m) for k, _, m in KINDS])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_no_release_moves_by_more_than_a_user_may(kind, more, relation):
    """The certificate's events are for one record; a user is two of them."""

    def run(A, b):
        order = np.argsort(A[:, -1], kind="stable")
        A, b = A[order], b[order]
        model = made(kind, more, n_steps=3, neighbouring=relation, nan_policy="empty")
        for part in np.array_split(np.arange(60), 3):
            model.partial_fit(A[part, :-1], b[part], user_ids=A[part, -1].astype(int))
        return model.coef_, model.privacy_.to_json()

    for pair in user_pairs(relation)[:4]:
        assert replay(run, pair, group=2) == []


BAD = [
    ({}, {"user_ids": None}, "pass user_ids"),
    ({"rows_per_user": None}, {"user_ids": WHO[:8]}, "user_ids need rows_per_user"),
    ({"rows_per_user": 0}, {"user_ids": WHO[:8]}, "rows_per_user must be a positive integer"),
    ({}, {"user_ids": WHO[:7]}, "one id for each of the 8 rows"),
    ({}, {"user_ids": WHO[:8], "record_ids": WHO[:8]}, "user_ids or record_ids"),
]


@pytest.mark.parametrize(("kind", "y", "more"), KINDS)
@pytest.mark.parametrize(("given", "called", "sentence"), BAD)
def test_bad_input_is_one_sentence(kind, y, more, given, called, sentence):
    with pytest.raises((ValueError, Refused), match=sentence):
        made(kind, more, **given).partial_fit(X[:8], y[:8], **called)
