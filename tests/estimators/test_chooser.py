"""The chooser looks at public numbers alone, and both of its choices fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import privopt

MEASURED = [
    ((4460, 200), 1.0, "LogisticRegression"),
    ((4460, 1000), 1.0, "LogisticRegression"),
    ((1187, 4000), 8.0, "LogisticRegression"),
    ((1187, 4000), 1.0, "SparseLogisticRegression"),
    ((1187, 1000), 1.0, "SparseLogisticRegression"),
    ((1187, 130_107), 8.0, "SparseLogisticRegression"),
    ((1600, 39_659), 8.0, "SparseLogisticRegression"),
    ((39_800, 300), 0.1, "LogisticRegression"),
]
"""Shapes of texts, epsilon, and which classifier was ahead."""


@pytest.mark.parametrize(("shape", "epsilon", "ahead"), MEASURED)
def test_it_takes_what_was_measured_to_be_ahead(shape, epsilon, ahead):
    assert type(privopt.auto(shape, epsilon, 1e-6, bounds=(0, 1))).__name__ == ahead


@pytest.mark.parametrize("columns", [3, 5000])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
def test_both_choices_fit(columns, relation):
    X = sp.random_array((300, columns), density=0.01, rng=np.random.default_rng(0)).tocsr()
    y = np.arange(300) % 2
    model = privopt.auto(
        X.shape, 2.0, 1e-5, bounds=(0, 2), neighbouring=relation, classes=[0, 1], random_state=0
    )
    assert model.fit(X, y).privacy_.epsilon <= 2.0
    assert model.privacy_.neighbouring == relation
    if columns == 5000:
        assert model.feature_bounds == 2.0


def test_what_is_refused():
    with pytest.raises(ValueError, match="each low one below its high one"):
        privopt.auto((10, 2), bounds=(1, 1))
    with pytest.raises(ValueError, match="numbers of records and of columns"):
        privopt.auto((10, 0))
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        privopt.auto((10, 2), -1.0)
