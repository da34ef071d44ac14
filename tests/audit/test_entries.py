"""Every public name is an entry of the audit, or says why it needs none; and the audit of entries
finds what the audit of solvers did not."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import privopt
import privopt.mechanisms.rank_quantile as rank_quantile
from privopt.audit import record, replay
from privopt.audit.entries import ENTRIES, RELATIONS, calls
from privopt.audit.fits import estimators
from privopt.audit.releases_nothing import RELEASES_NOTHING
from privopt.audit.sweep import places
from privopt.noise import SeededSource
from privopt.privacy.factorizations.catalogue import STREAMING

TURN = {name: RELATIONS[i % 3] for i, name in enumerate(ENTRIES)}
# What takes one relation less, or long.
TURN |= {"prefix_sums": "replace_one", "OnlineLogisticRegression": "zero_out"}
TURN |= dict.fromkeys(("Lasso", "ElasticNet", "SparseLogisticRegression"), "replace_one")
TURN |= {
    "OnlineLinearRegression": "replace_one",
    "PrivateSearchCV": "zero_out",
    "RefitStream": "zero_out",
    "federated.Server": "replace_one",
    "prediction_intervals": "zero_out",
}


def found(name, relation, seed, share=1):
    return [
        f"{call.said}, {pair.name}: {text}"
        for call in calls(name, relation, seed)
        for pair in call.pairs[::share]
        for text in replay(lambda X, y, call=call: call.run(X, y, SeededSource(0)), pair)
    ]


def test_every_public_name_is_an_entry_or_says_why_not():
    public = {name for name in ENTRIES if "." not in name}
    assert set(privopt.__all__) == public | set(RELEASES_NOTHING)
    assert not public & set(RELEASES_NOTHING)
    assert set(estimators()) <= public
    drawn = [place for place in places("prefix_sums") if place.draw is not None]
    assert {place.neighbouring for place in drawn} == set(RELATIONS)


def test_every_noise_of_streams_is_tried():
    assert len(ENTRIES["prefix_sums"]) == len(STREAMING)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.filterwarnings("ignore")
def test_replay_of_a_few_pairs(name):
    """All pairs under all relations: ``privopt audit --replay``."""
    with np.errstate(all="ignore"):
        some = list(calls(name, TURN[name], 0))
        assert some
        assert found(name, TURN[name], 0, share=25) == []


def test_what_releases_nothing_releases_nothing():
    def scaled(X, y):
        return privopt.BoundedScaler((-1.0, 1.0)).fit(X).transform(X[:1])

    _, tape = record(scaled, (np.eye(3), np.ones(3)))
    assert tape.releases == []


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
def test_a_movement_of_2q_in_quantiles_by_rank_is_found(relation):
    """Right for q above one half, wrong by far for q near 0; q is drawn near both ends."""

    def half(q, sensitivity):
        return 2.0 if sensitivity.radius > sensitivity.single else 2 * q

    with patch.object(rank_quantile, "movement", half):
        assert any("log weights" in text for text in found("quantile", relation, 0))
