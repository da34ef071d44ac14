"""What people see of plans and certificates, in a terminal and in a notebook."""

import numpy as np
import pytest

from privopt import Budget, Problem, plan, solve
from privopt.geometry import L2Ball
from privopt.losses import Logistic

PROBLEM, BUDGET = Problem(Logistic(), L2Ball(2.0)), Budget(1.0)


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (200, 3))
    return X, np.where(X[:, 0] > 0, 1, -1)


def test_a_fit_says_who_does_not_apply_and_why(records):
    result = solve(PROBLEM, *records, budget=BUDGET, random_state=0)
    text = str(result.plan)
    assert text.startswith(result.plan.name + ": ")
    assert "not noisy_sgd: " in text
    assert "noise_multiplier = " in text
    assert dict(result.plan.refused) == plan(PROBLEM, n=200, p=3, budget=BUDGET).refused


def test_notebooks_show_text_and_no_markup_of_others(records):
    certificate = solve(PROBLEM, *records, budget=BUDGET, random_state=0).certificate
    shown = certificate._repr_html_()
    assert shown.startswith("<strong>epsilon=1")
    assert "NOT PRIVATE" in shown
    ranking = plan(PROBLEM, n=200, p=3, budget=BUDGET)
    for one in (ranking, ranking.best):
        assert one._repr_html_().startswith("<pre>")
        assert "<script" not in one._repr_html_()
