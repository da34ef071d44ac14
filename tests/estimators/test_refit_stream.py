"""A batch estimator refitted block by block: every record pays once, and the stream goes on."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import privopt
from privopt import LinearRegression, LogisticRegression, RefitStream, Refused
from privopt.audit import record
from privopt.estimators import refit_stream
from privopt.mechanisms import HOOK

ROWS = np.random.default_rng(0).uniform(-1, 1, (1200, 3))
LABELS = (ROWS[:, 0] + 0.2 * ROWS[:, 1] > 0).astype(int)
PARTS = np.array_split(np.arange(1200), 6)
BOUNDED = {"epsilon": 3.0, "delta": 1e-5, "bounds": (-1, 1)}


def two(**given):
    return LogisticRegression(**{"classes": [0, 1], **BOUNDED, **given})


def streamed(model, names=True, parts=PARTS):
    for part in parts:
        model.partial_fit(ROWS[part], LABELS[part], record_ids=part if names else None)
    return model


def entered(model):
    """Blocks that are paid for, whatever became of them."""
    return model._blocks.entered


@parametrize_with_checks([RefitStream(LogisticRegression(), block_size=1000, random_state=0)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "given",
    [{}, {"delta": 0.0}, {"bounds": None}, {"solver": "noisy_sgd", "bounds": None}],
    ids=["bounds", "pure", "norm", "sampled"],
)
def test_the_stream_costs_what_one_block_does(given):
    """Parallel composition: as many cells as blocks, and the epsilon of one fit."""
    one = two(random_state=1, **given).fit(ROWS[PARTS[0]], LABELS[PARTS[0]]).privacy_
    model = streamed(RefitStream(two(**given), random_state=1), parts=PARTS[:3])
    found = model.privacy_
    assert found.epsilon == pytest.approx(one.epsilon, rel=1e-6)
    assert found.epsilon <= 3.0
    assert (found.cells, model.blocks_) == (3, 3)
    assert found.releases >= 3
    assert found.verify()
    assert "each record is in one block" not in " ".join(found.assumptions)


def test_a_record_moves_the_releases_of_its_own_block_alone():
    """Two data sets differ in one record: of both tapes, one cell's values differ."""

    def run(X, y):
        with np.errstate(all="ignore"):
            return RefitStream(two(), block_size=200, random_state=0).fit(X, y).coef_

    _, before = record(run, (ROWS, LABELS))
    for place in (0, 199, 200, 1199):
        X = ROWS.copy()
        X[place] = -X[place]
        _, after = record(run, (X, LABELS))
        moved = {
            one.event.cells
            for one, other in zip(before.releases, after.releases, strict=True)
            if one.event.mechanism != "ObjectivePerturbation"
            and not np.array_equal(one.payload, other.payload)
        }
        assert moved == {((place // 200,),)}


def test_the_model_in_force_is_the_mean_of_the_last():
    last = streamed(RefitStream(two(), random_state=1))
    mean = streamed(RefitStream(two(), average=2, random_state=1))
    before = streamed(RefitStream(two(), random_state=1), parts=PARTS[:-1])
    np.testing.assert_allclose(mean.coef_, (last.coef_ + before.coef_) / 2)
    np.testing.assert_allclose(mean.intercept_, (last.intercept_ + before.intercept_) / 2)
    scores = (last.decision_function(ROWS) + before.decision_function(ROWS)) / 2
    np.testing.assert_allclose(mean.decision_function(ROWS), scores)
    plain = mean.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(ROWS), mean.predict_proba(ROWS), rtol=1e-12)
    assert mean.score(ROWS, LABELS) > 0.9


def test_shapes_of_blocks_are_averaged():
    y = np.abs(ROWS[:, 0]) - 0.5
    made = LinearRegression(20.0, 1e-5, bounds=(-1, 1), features="splines")
    model = RefitStream(made, average=3, block_size=400, random_state=0).fit(ROWS, y)
    assert model.model_.shapes_ is not None
    parts = [one.shapes_[0].values for one in model._models]
    np.testing.assert_allclose(model.model_.shapes_[0].values, np.mean(parts, axis=0))
    assert model.score(ROWS, y) > 0.5


def test_named_records_come_once_and_unnamed_ones_are_promised():
    model = streamed(RefitStream(two(), random_state=1), parts=PARTS[:2])
    with pytest.raises(Refused, match="already taken part in 1 step"):
        model.partial_fit(ROWS[:50], LABELS[:50], record_ids=np.arange(50))
    with pytest.raises(Refused, match="twice in one batch"):
        model.partial_fit(ROWS[:2], LABELS[:2], record_ids=[5000, 5000])
    assert model.blocks_ == 2
    model.partial_fit(ROWS[PARTS[2]], LABELS[PARTS[2]])
    assert refit_stream.ONCE in model.privacy_.assumptions
    assert (
        refit_stream.ONCE
        in model.partial_fit(
            ROWS[PARTS[3]], LABELS[PARTS[3]], record_ids=PARTS[3]
        ).privacy_.assumptions
    )


def test_a_refused_block_is_not_entered_and_a_failed_one_is():
    model = streamed(RefitStream(two(), random_state=1), parts=PARTS[:1])
    with pytest.raises(ValueError, match="not in classes"):
        model.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]] + 5, record_ids=PARTS[1])
    assert model.blocks_ == entered(model) == 1
    releases = model.privacy_.releases

    def failing(mechanism, payload, sensitivity, event, run):
        if type(mechanism).__name__ == "ObjectivePerturbation":
            raise Refused("no.")
        return run()

    token = HOOK.set(failing)
    with pytest.raises(Refused, match=r"no\."):
        model.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]], record_ids=PARTS[1])
    HOOK.reset(token)
    with pytest.raises(Refused, match="already taken part"):
        model.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]], record_ids=PARTS[1])
    model.partial_fit(ROWS[PARTS[2]], LABELS[PARTS[2]], record_ids=PARTS[2])
    assert model.privacy_.cells == model.blocks_ == 3
    assert 2 * releases < model.privacy_.releases


@pytest.mark.parametrize("how", ["pickle", "save"])
def test_a_stream_goes_on_in_another_process(how, tmp_path):
    """The models are those of the stream that never stopped; ids stay behind, and it is said."""
    whole = streamed(RefitStream(two(), average=3, random_state=1))
    half = streamed(RefitStream(two(), average=3, random_state=1), parts=PARTS[:3])
    if how == "save":
        privopt.save(half, tmp_path / "stream.skops")
        back = privopt.load(tmp_path / "stream.skops")
    else:
        back = pickle.loads(pickle.dumps(half))
    assert back._people is None
    streamed(back, parts=PARTS[3:])
    np.testing.assert_array_equal(back.coef_, whole.coef_)
    assert back.privacy_.epsilon == whole.privacy_.epsilon
    assert back.privacy_.cells == 6
    assert refit_stream.COPIED in back.privacy_.assumptions
    assert half.blocks_ == 3


def test_a_ledger_is_charged_once_for_blocks_of_one_size(tmp_path):
    ledger = privopt.Ledger.create(tmp_path / "ledger.db", 3.0, 1e-5)
    model = RefitStream(two(), ledger=ledger)
    for part in PARTS[:3]:
        model.partial_fit(ROWS[part], LABELS[part], record_ids=part)
    assert model.privacy_.private
    assert (model.privacy_.ledger or {})["dataset"]
    with pytest.raises(Refused, match="give blocks of one size, or begin with no ledger"):
        model.partial_fit(ROWS[1000:1100], LABELS[1000:1100], record_ids=np.arange(1000, 1100))
    with pytest.raises(Refused):
        two(ledger=ledger).fit(ROWS, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [{"neighbouring": "replace_one"}, {"epsilon": 1.0}, {"epsilon": 9.0}, {"delta": 1e-4}],
    ids=str,
)
def test_all_blocks_keep_the_budget_of_the_first(changed):
    """What earlier blocks released was made for that relation and that epsilon."""
    model = streamed(RefitStream(two()), parts=PARTS[:1])
    before = model.privacy_
    model.estimator.set_params(**changed)
    with pytest.raises(Refused, match="keep the first one's budget"):
        model.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]], record_ids=PARTS[1])
    assert model.privacy_ == before
    assert entered(model) == 1
    back = pickle.loads(pickle.dumps(model))
    with pytest.raises(Refused, match="keep the first one's budget"):
        back.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]], record_ids=PARTS[1])
    assert model.fit(ROWS, LABELS).blocks_ == 10  # a new stream


@pytest.mark.parametrize("change", ["given", "taken away", "exchanged"])
def test_the_ledger_of_the_first_block_is_that_of_all(change, tmp_path):
    """A stream is charged once, so a ledger that comes later would never be."""
    one, other = (privopt.Ledger.create(tmp_path / f"{name}.db", 3.0, 1e-5) for name in "ab")
    first, later = {"given": (None, one), "taken away": (one, None), "exchanged": (one, other)}[
        change
    ]
    model = streamed(RefitStream(two(), ledger=first), parts=PARTS[:1])
    model.ledger = later
    with pytest.raises(Refused, match="first block of this stream was charged to"):
        model.partial_fit(ROWS[PARTS[1]], LABELS[PARTS[1]], record_ids=PARTS[1])
    assert entered(model) == 1
    model.ledger = first
    assert streamed(model, parts=PARTS[1:2]).privacy_.cells == 2


@pytest.mark.parametrize("how", ["pickle", "copy"])
def test_a_copy_that_goes_on_says_that_it_cannot_notice_old_records(how):
    """Ids stay behind, so the same ones are taken again; the stream itself still refuses them."""
    model = streamed(RefitStream(two(), random_state=1), parts=PARTS[:2])
    back = pickle.loads(pickle.dumps(model)) if how == "pickle" else copy.deepcopy(model)
    back.partial_fit(ROWS[PARTS[0]], LABELS[PARTS[0]], record_ids=PARTS[0])
    said = " ".join(back.privacy_.assumptions)
    assert "records of the blocks before do not come again" in said
    assert "no other copy goes on with the same records" in said
    with pytest.raises(Refused, match="already taken part"):
        back.partial_fit(ROWS[PARTS[0]], LABELS[PARTS[0]], record_ids=PARTS[0])
    with pytest.raises(Refused, match="already taken part"):
        model.partial_fit(ROWS[PARTS[0]], LABELS[PARTS[0]], record_ids=PARTS[0])
    assert refit_stream.COPIED not in streamed(model, parts=PARTS[2:3]).privacy_.assumptions


def test_names_after_a_fit_are_not_held_against_its_rows_and_it_is_said():
    model = RefitStream(two(), block_size=200, random_state=1).fit(ROWS[:400], LABELS[:400])
    assert refit_stream.ONCE not in model.privacy_.assumptions
    model.partial_fit(ROWS[PARTS[0]], LABELS[PARTS[0]], record_ids=PARTS[0])
    assert refit_stream.ONCE in model.privacy_.assumptions


REFUSED = [
    (lambda: RefitStream(3), "refits a linear batch estimator"),
    (lambda: RefitStream(privopt.OnlineLogisticRegression()), "refits a linear batch estimator"),
    (lambda: RefitStream(two(neighbouring="add_remove", n_public=9)), "blocks shift when a record"),
    (lambda: RefitStream(two(rows_per_user=2)), "a user's rows may lie in several blocks"),
    (lambda: RefitStream(two(ledger="x.db")), "give the ledger to the stream"),
    (lambda: RefitStream(two(), average=0), "average must be a positive integer, got 0"),
    (
        lambda: RefitStream(two(), block_size=cast(Any, 2.5)),
        "block_size must be a positive integer",
    ),
    (lambda: RefitStream(two(link="capped"), average=2), "have no mean: take average=1"),
    (lambda: RefitStream(two(classes=None)), "classes must be passed on the first call"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=lambda v: str(v)[:25])
def test_what_is_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make().partial_fit(ROWS, LABELS)


def test_frames_classes_and_clones():
    """Names are those of the first block; classes may come with it."""
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    model = RefitStream(two(classes=None, bounds={name: (-1, 1) for name in "abc"}), random_state=0)
    model.partial_fit(frame[:400], LABELS[:400], classes=[0, 1])
    model.partial_fit(frame[400:800], LABELS[400:800])
    assert model.feature_names_in_.tolist() == list("abc")
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame[list("cba")][800:], LABELS[800:])
    assert not hasattr(clone(model), "model_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = RefitStream(two(classes=None), block_size=500, random_state=0).fit(ROWS, LABELS)
    assert fitted.blocks_ == 2
    assert "classes was read from y" in " ".join(fitted.privacy_.assumptions)
