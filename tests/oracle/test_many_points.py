"""Sums at many points at once equal the sums one by one."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Hinge, Huber, Logistic
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.objective import Objective
from privopt.oracle.rows import EmptyRows
from privopt.oracle.sealed import KEY


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Huber(0.5)], ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_values_and_gradients(form, loss, intercept):
    rng = np.random.default_rng(0)
    X, y = 2 * rng.normal(size=(50, 3)), rng.choice([-1.0, 1.0], size=50)
    X[7], y[9] = np.nan, np.nan
    oracle = Oracle.over(
        form(X),
        y,
        neighbouring="zero_out",
        bounds=RowBounds(1.0, intercept),
        source=SeededSource(0),
        classification=loss.classification,
    )
    objective = oracle.everything().function(loss).open(KEY)
    thetas = rng.normal(size=(6, objective.dimension))
    np.testing.assert_allclose(
        objective.values(thetas), [objective.value(t) for t in thetas], rtol=1e-12
    )
    np.testing.assert_allclose(
        objective.gradients(thetas), [objective.gradient(t) for t in thetas], rtol=1e-10, atol=1e-12
    )


def test_no_records():
    objective = Objective(EmptyRows(3, RowBounds(1.0)), Logistic())
    thetas = np.ones((4, 3))
    assert (objective.values(thetas) == np.zeros(4)).all()
    assert (objective.gradients(thetas) == np.zeros((4, 3))).all()
