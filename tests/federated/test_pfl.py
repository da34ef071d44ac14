"""The mechanism of pfl-research: its simulator's sum is replaced by the server's release."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import privopt.federated
from privopt import Refused
from privopt.federated import Server
from privopt.noise import SilentSource
from tests.federated.simulator import Statistics, iteration, stand_in

PEOPLE = [str(i) for i in range(40)]


@pytest.fixture(autouse=True)
def pfl(monkeypatch):
    """Names of pfl while a test runs, and no trace of them after it."""
    import sys

    before = set(sys.modules)
    stand_in()
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "pfl" or name == "privopt.federated.pfl":
            del sys.modules[name]


def made(**more):
    given = {
        "epsilon": 4.0, "delta": 1e-5, "rounds": 6, "report_goal": 5, "clip_norm": 0.5,
        "min_separation": 3, "noise": "banded", "random_state": SilentSource(),
    }  # fmt: skip
    return privopt.federated.PFLMechanism(6, **{**given, **more})


def dataset(user):
    return SimpleNamespace(user_id=user)


def update(dataset):
    draws = np.random.default_rng(int(dataset.user_id))
    return Statistics([draws.normal(size=(2, 2)), draws.normal(size=2)])


def flat(matrices):
    return np.concatenate([np.ravel(matrix) for matrix in matrices])


def test_without_noise_it_is_the_mean_of_clipped_updates():
    private, asked = made(), []
    data = private.cohorts(lambda user: asked.append(user) or dataset(user), PEOPLE)
    for _ in range(6):
        asked.clear()
        found = iteration(data, update, [private], 5)
        each = [flat(update(dataset(user)).matrices) for user in asked]
        wanted = sum(u * min(1, 0.5 / np.linalg.norm(u)) for u in each) / 5
        np.testing.assert_allclose(flat(found.average()), wanted, atol=1e-6)
    certificate = private.certificate()
    assert (certificate.releases, certificate.unit) == (6, "user")
    assert certificate.epsilon == pytest.approx(4.0)
    assert any("the simulator adds up" in line for line in certificate.assumptions)
    assert all(private.server.plan.rule.allows(p) for p in private.server.people.patterns)


def test_the_noise_is_that_of_a_server_of_its_own():
    one = made(random_state=3)
    other = Server(
        np.zeros(6), epsilon=4.0, delta=1e-5, rounds=6, report_goal=5, clip_norm=0.5,
        min_separation=3, noise="banded", random_state=3,
    )  # fmt: skip
    data = one.cohorts(dataset, PEOPLE)
    for _ in range(3):
        found = flat(iteration(data, update, [one], 5).average())
        before = other.model
        for person in other.begin_round(PEOPLE):
            other.answer(person, flat(update(dataset(person)).matrices))
        np.testing.assert_allclose(found, other.end_round() - before, atol=1e-6)


def test_nothing_private_passes_by_the_server_whatever_the_order():
    """Postprocessors before and after see the zeros of each user's place, and the release."""
    seen = []

    class Looking:
        def postprocess_one_user(self, *, stats, user_context):
            seen.append(flat(stats.matrices))
            return stats, {}

        def postprocess_server(self, *, stats, central_context, aggregate_metrics):
            seen.append(flat(stats.matrices))
            return stats, {}

    private = made(random_state=1)
    data = private.cohorts(dataset, PEOPLE)
    found = iteration(data, update, [private, Looking()], 5)
    assert not np.any(seen)  # users' places, and the simulator's own sum
    seen.clear()
    found = iteration(data, update, [Looking(), private], 5)
    np.testing.assert_array_equal(seen[-1], flat(found.matrices))


def test_a_user_who_was_not_asked_or_answers_twice_counts_nothing():
    private = made()
    data = private.cohorts(dataset, PEOPLE)
    (one, _), *_ = list(data.get_cohort(5))
    stranger = dataset("99")
    total = None
    for who in (one, one, stranger):
        user = SimpleNamespace(user_id=who.user_id)
        total, _ = private.postprocess_one_user(stats=update(who), user_context=user)
    total, _ = private.postprocess_server(stats=total, central_context=None, aggregate_metrics={})
    mine = flat(update(one).matrices)
    wanted = mine * min(1, 0.5 / np.linalg.norm(mine)) / 5
    np.testing.assert_allclose(flat(total.average()), wanted, atol=1e-6)


def test_sampling_draws_cohorts_of_any_size():
    private = made(min_separation=None, population=40, report_goal=10, noise="independent")
    data = private.cohorts(dataset, PEOPLE)
    sizes = []
    for _ in range(6):
        cohort = list(data.get_cohort(10))
        sizes.append(len(cohort))
        private.server.end_round()
    assert len(set(sizes)) > 1


def test_bad_input_is_one_sentence():
    private = made()
    with pytest.raises(TypeError, match="leave optimizer out"):
        made(optimizer=None)
    with pytest.raises(ValueError, match="cohort_size=7 and ask=5 say two things"):
        next(private.cohorts(dataset, PEOPLE).get_cohort(7))
    with pytest.raises(ValueError, match="a dataset with that user_id"):
        next(private.cohorts(lambda user: dataset("7"), PEOPLE[8:]).get_cohort(5))
    with pytest.raises(Refused, match="need a user_id"):
        private.postprocess_one_user(
            stats=update(dataset("1")), user_context=SimpleNamespace(user_id=None)
        )
    with pytest.raises(ValueError, match="the model's 6 numbers"):
        private.postprocess_one_user(
            stats=Statistics([np.zeros(3)]), user_context=SimpleNamespace(user_id="1")
        )
    with pytest.raises(Refused, match="a round at a time"):
        next(private.cohorts(dataset, PEOPLE))
