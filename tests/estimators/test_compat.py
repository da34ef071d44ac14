"""Spellings of other libraries give privopt's estimators, or a sentence."""

from __future__ import annotations

import numpy as np
import pytest

import privopt
from privopt.compat import diffprivlib
from privopt.compat.diffprivlib import models

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 3))
y = (X[:, 0] + rng.normal(0, 0.3, 400) > 0).astype(int)


def test_the_promise_is_diffprivlibs():
    """Pure, and for a record that is replaced by another."""
    for model in (
        models.LogisticRegression(epsilon=2.0, data_norm=2.0).fit(X, y),
        models.LinearRegression(epsilon=2.0, bounds_X=(-1, 1), bounds_y=(-4, 4)).fit(
            X, X @ [1, 2, 0]
        ),
    ):
        assert model.privacy_.delta == 0
        assert model.privacy_.epsilon == pytest.approx(2.0, rel=1e-3)
        assert model.privacy_.neighbouring == "replace_one"


def test_arguments_reach_the_estimator():
    model = models.LinearRegression(
        epsilon=3.0,
        bounds_X=([-1, 0, 2], [1, 5, 3]),
        bounds_y=(0, 7),
        fit_intercept=True,
        dataset="a",
    )
    assert isinstance(model, privopt.LinearRegression)
    assert model.target_bounds == (0, 7)
    assert np.array_equal(model.bounds[1], [1, 5, 3])
    assert model.dataset == "a"
    other = models.LogisticRegression(data_norm=3.0, delta=1e-6, neighbouring="zero_out")
    assert (other.data_norm, other.delta, other.neighbouring) == (3.0, 1e-6, "zero_out")


def test_bounds_are_not_read_off_the_data():
    with pytest.raises(ValueError, match="needs data_norm"):
        models.LogisticRegression(epsilon=1.0)
    with pytest.raises(ValueError, match="needs bounds_X"):
        models.LinearRegression(bounds_y=(0, 1))
    with pytest.raises(TypeError, match="ledger"):
        models.LogisticRegression(data_norm=1.0, accountant=object())


def test_what_is_not_used_is_said():
    with pytest.warns(UserWarning, match="C, max_iter"):
        models.LogisticRegression(data_norm=1.0, C=10.0, max_iter=50)


@pytest.mark.parametrize("name", ["PCA", "StandardScaler", "RandomForestClassifier", "KMeans"])
def test_what_is_absent_says_what_to_use(name):
    with pytest.raises(ImportError, match=name):
        getattr(models, name)


def test_other_rooms_of_diffprivlib():
    assert diffprivlib.models is models
    with pytest.raises(ImportError, match="Ledger"):
        diffprivlib.BudgetAccountant  # noqa: B018
    with pytest.raises(AttributeError):
        diffprivlib.nothing  # noqa: B018
