"""Budgets: what is accepted, what is refused, in one sentence."""

import dataclasses
import math

import numpy as np
import pytest

from privopt.privacy import Budget, PrivacyWarning, Refused

RELATIONS = ("zero_out", "replace_one", "add_remove")


def test_the_defaults_are_pure_and_zero_out():
    budget = Budget(1.0)
    assert dataclasses.astuple(budget) == (1.0, 0.0, "zero_out", "record")
    assert budget.pure
    assert not Budget(1.0, 1e-9).pure


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_three_relations(relation):
    assert Budget(1.0, 1e-6, relation).neighbouring == relation


def test_numbers_of_every_make_become_floats():
    for budget in (Budget(1, 0), Budget(np.float32(1), np.float64(0)), Budget(np.int64(1))):
        assert type(budget.epsilon) is float
        assert type(budget.delta) is float
        assert budget == Budget(1.0)
        assert hash(budget) == hash(Budget(1.0))


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "1", True, None, [1.0]])
def test_epsilon_is_positive_and_finite(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a positive finite number, got"):
        Budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, "0", False, None])
def test_delta_lies_between_zero_and_one(delta):
    with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\), got .* well below 1/n"):
        Budget(1.0, delta)


@pytest.mark.parametrize("relation", ["swap", "ZERO_OUT", "", None])
def test_an_unknown_relation_is_told_the_known_ones(relation):
    with pytest.raises(ValueError, match="zero_out, replace_one, add_remove; got"):
        Budget(1.0, neighbouring=relation)


@pytest.mark.parametrize(
    "arguments", [{"epsilon": -1}, {"epsilon": 1, "delta": 2}, {"epsilon": 1, "neighbouring": "x"}]
)
def test_an_error_is_one_sentence_that_names_its_argument(arguments):
    with pytest.raises(ValueError, match="got") as caught:
        Budget(**arguments)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text
    assert text.startswith(list(arguments)[-1])


def test_a_budget_cannot_be_raised_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Budget(1.0).epsilon = 100.0


def test_refusals_and_warnings_can_be_told_apart():
    assert issubclass(PrivacyWarning, UserWarning)
    assert issubclass(Refused, RuntimeError)
    assert not issubclass(Refused, ValueError)
