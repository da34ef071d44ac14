"""A private choice: its exact law, its movement, and what it refuses."""

import math

import numpy as np
import pytest

import privopt
from privopt.mechanisms.selection import flip_probabilities
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds, Votes
from privopt.oracle.sealed import KEY

RELATIONS = ("zero_out", "add_remove", "replace_one")
every_relation = pytest.mark.parametrize("neighbouring", RELATIONS)


def sums(votes, bound=0.5, neighbouring="zero_out"):
    """Sums and range as the gate gets them, for scores from 0 to 2 bound."""
    oracle = Oracle.over(
        np.asarray(votes, dtype=float) - bound,
        np.zeros(len(votes)),
        neighbouring=neighbouring,
        bounds=RowBounds(math.inf, 0.0, bound),
        source=SeededSource(0),
        classification=False,
    )
    sealed = oracle.everything().ask(Votes(bound))
    return sealed.open(KEY), float(sealed.sensitivity.radius)


def changed(votes, neighbouring, other):
    if neighbouring == "add_remove":
        return votes[:-1]
    return [*votes[:-1], [math.nan] * 3 if neighbouring == "zero_out" else other]


@every_relation
def test_the_law_is_within_epsilon_and_reaches_it(neighbouring):
    """Exact chances of permute-and-flip on neighbours; half the range would show twice as much."""
    epsilon, worst = 1.0, 0.0
    for ahead in range(0, 9):
        first = [[1, 0, 0]] * ahead + [[0, 1, 0]] * 4 + [[1, 0, 0]]
        second = changed(first, neighbouring, [0, 1, 1])
        laws = []
        for votes in (first, second):
            total, radius = sums(votes, neighbouring=neighbouring)
            assert radius == (2.0 if neighbouring == "replace_one" else 1.0)
            laws.append(flip_probabilities((total - total.max()) * epsilon / radius))
        worst = max(worst, float(np.abs(np.log(laws[0] / laws[1])).max()))
    assert 0.6 < worst <= epsilon + 1e-9


@pytest.mark.statistical
def test_choices_follow_that_law():
    votes = np.eye(3)[[0] * 4 + [1] * 6 + [2] * 3]
    found = np.bincount(
        [privopt.select(votes, epsilon=1.0, random_state=seed)[0] for seed in range(600)],
        minlength=3,
    )
    expected = 600 * flip_probabilities(np.array([-2.0, 0.0, -3.0]))
    assert ((found - expected) ** 2 / expected).sum() < 27.6  # of chi-squared, 1e-6


def test_scores_beyond_the_bounds_and_empty_records_say_no_more():
    total, _ = sums([[1e9, -1e9, 0.5], [math.nan, 1, 1], [1, 0, 0]])
    np.testing.assert_allclose(total, [1.0, -1.0, -0.5])


def test_the_bound_holds():
    votes, errors = np.eye(4)[[0] * 10 + [1] * 9 + [2] * 8 + [3] * 7], []
    for seed in range(200):
        index, _ = privopt.select(votes, epsilon=0.5, random_state=seed)
        errors.append(10 - votes.sum(axis=0)[index])
    assert np.mean(errors) <= math.log(4) / 0.5


@pytest.mark.parametrize(
    ("scores", "more", "words"),
    [
        (np.ones(3), {}, "must be a table"),
        (np.ones((3, 2)), {"bounds": (1, 1)}, "the lower one first"),
        (np.ones((3, 2)), {"bounds": (0, math.inf)}, "finite"),
        ([["a", "b"]], {}, "numbers"),
    ],
)
def test_bad_input(scores, more, words):
    with pytest.raises(ValueError, match=words):
        privopt.select(scores, **more)
