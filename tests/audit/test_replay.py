"""The auditor itself: its pairs really are neighbours, and it audits estimators as they are."""

from __future__ import annotations

import numpy as np
import pytest

from privopt import LogisticRegression
from privopt.audit import hostile_pairs, replay
from privopt.privacy.budget import NEIGHBOURING


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("classification", [True, False])
def test_pairs_differ_in_one_record(relation, classification):
    pairs = hostile_pairs(relation, classification=classification)
    assert len(pairs) >= 20
    assert len({pair.name for pair in pairs}) == len(pairs)
    for pair in pairs:
        first = dict(zip(pair.first_ids, zip(*pair.first, strict=True), strict=True))
        second = dict(zip(pair.second_ids, zip(*pair.second, strict=True), strict=True))
        common = first.keys() & second.keys()
        changed = [i for i in common if not _same(first[i], second[i])]
        only = first.keys() ^ second.keys()
        if relation == "add_remove":
            assert changed == []
            assert len(only) == 1
        else:
            assert len(changed) == 1
            assert only == set()


def _same(one, other):
    return np.array_equal(one[0], other[0], equal_nan=True) and np.array_equal(
        one[1], other[1], equal_nan=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize(
    ("classes", "delta"), [([-1, 1], 0.0), ([-1, 1], 1e-5), ([-1, 0, 1], 1e-5)]
)
def test_the_fitted_estimator_leaks_nothing_beside_its_releases(relation, classes, delta):
    """Attributes, plan, certificate and pickle of a fitted model are the same on a neighbour."""

    def run(X, y):
        model = LogisticRegression(
            epsilon=1.0,
            delta=delta,
            neighbouring=relation,
            classes=classes,
            n_public=60,
            solver="objective_perturbation",  # one release for each class keeps this quick
            nan_policy="empty",
            random_state=0,
        )
        # A label must be one of the declared ones; a broken label is a broken row here.
        broken = ~np.isin(y, classes)
        X[broken] = np.nan
        return model.fit(X, np.where(broken, classes[0], y))

    pairs = [pair for pair in hostile_pairs(relation) if len(pair.second_ids) > 0]
    found = {pair.name: text for pair in pairs if (text := replay(run, pair))}
    assert found == {}


def test_classes_read_from_data_are_seen_by_replay():
    """Without declared classes the only member of a class changes the shape of the model."""

    def run(X, y):
        y = np.where(np.isfinite(y), y, -1.0)
        return LogisticRegression(nan_policy="empty", random_state=0).fit(X, y).classes_

    pair = next(p for p in hostile_pairs("replace_one") if p.name == "only member of a class")
    assert replay(run, pair)
