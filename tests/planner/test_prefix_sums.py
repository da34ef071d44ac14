"""Private running sums: what they cost, what they clip, what they refuse, what they leak."""

from __future__ import annotations

import math

import numpy as np
import pytest

import privopt
from privopt import Participation, Refused
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.mechanisms.correlated import ROUNDING_SHARE
from privopt.privacy.factorizations import Honaker, named
from privopt.privacy.profiles import gaussian_mu

BUDGET = {"epsilon": 2.0, "delta": 1e-6}
NOISES = ["independent", "tree", "honaker", "sqrt_toeplitz", "banded", "blt", "auto"]


def sums(stream, **options):
    return privopt.prefix_sums(stream, **{"bound": 1.0, **BUDGET, "random_state": 0, **options})


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_the_whole_stream_spends_the_budget(noise, relation):
    found = sums(np.ones((50, 2)), n_steps=50, noise=noise, neighbouring=relation)
    assert len(list(found)) == 50
    certificate = found.certificate
    assert 1.999 < certificate.epsilon <= 2.0
    assert certificate.releases == 50
    assert certificate.verify()
    factor = 2 if relation == "replace_one" else 1
    factorization = named(noise, 50)
    loss = factorization.sensitivity_squared(Participation.single_pass())
    expected = factor * math.sqrt(loss) / gaussian_mu(2.0, 1e-6) * factorization.row_norms()
    assert np.allclose(found.noise_std, expected / (1 - ROUNDING_SHARE))


def test_what_is_spent_grows_with_the_steps():
    found, spent = sums(np.ones((64, 1)), n_steps=64, noise="honaker"), []
    for _ in found:
        spent.append(found.certificate.epsilon)
    assert spent == sorted(spent)
    assert spent[0] < 0.8 < spent[-1]


def test_sums_are_those_of_clipped_records_plus_the_stated_noise():
    """2000 coordinates: the sum is known to a few standard errors."""
    wide = np.zeros((30, 2000))
    wide[:, 0] = 10.0  # clipped to 1
    found = sums(wide, n_steps=30, noise="blt")
    values = np.array(list(found))
    ratio = values[:, 1:].std(axis=1) / found.noise_std
    assert np.all(np.abs(ratio - 1) < 0.1)
    assert np.all(np.abs(values[:, 0] - np.arange(1, 31)) < 6 * found.noise_std)


def test_a_step_may_hold_many_records_or_none():
    batches = [np.ones((3, 2)) / 2, np.zeros((0, 2)), np.ones(2), np.full((1, 2), np.nan)]
    found = privopt.prefix_sums(
        batches, bound=1.0, epsilon=1e6, delta=0.5, n_steps=4, noise="independent"
    )
    last = list(found)[-1]
    # Three short records, none, one clipped to norm 1, an empty one; next to no noise.
    assert np.allclose(last, 1.5 + 1 / math.sqrt(2), atol=0.1)


def test_an_open_ended_stream_has_trees():
    def forever():
        while True:
            yield np.ones(1)

    found = sums(forever())
    for _ in range(300):
        next(found)
    assert found.certificate.settings["noise"] == "open_ended"
    assert 1.999 < found.certificate.epsilon <= 2.0
    assert len(found.noise_std) == 300


def test_the_loss_of_an_endless_tree_bounds_that_of_its_parts():
    single = Participation.single_pass()
    found = [Honaker(2**h).sensitivity_squared(single) for h in (4, 10, 17)]
    for h, exact in zip((4, 10, 17), found, strict=True):
        assert Honaker(2**h)._longest_path(2**h) == pytest.approx(exact)
        assert Honaker(2**h)._longest_path(2 ** (h - 1) + 1) == pytest.approx(exact)
    assert Honaker(2**40).sensitivity_squared(single) < 40


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("noise", ["blt", "honaker"])
def test_nothing_but_the_sums_leaves(noise, relation):
    def run(X, y):
        found = sums(list(X), n_steps=len(X), noise=noise, neighbouring=relation)
        return list(found), found.noise_std, found.certificate.to_json()

    for pair in hostile_pairs(relation):
        assert replay(run, pair) == [], pair.name


@pytest.mark.statistical
@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_follows_its_law(noise):
    """Sixty runs of 20 steps, seeded. False alarm: 1e-4."""
    assert noise_p_value(tapes_of(noise)) > 1e-4


def tapes_of(noise):
    found = []
    for seed in range(60):

        def run(X, y, seed=seed):
            return list(sums(X, n_steps=20, noise=noise, random_state=seed))

        found.append(record(run, (np.ones((20, 3)), np.zeros(20)))[1])
    return found


@pytest.mark.statistical
def test_quieter_noise_than_declared_is_found(monkeypatch):
    from privopt.mechanisms import correlated

    honest = correlated.narrow_gaussian
    monkeypatch.setattr(
        correlated,
        "narrow_gaussian",
        lambda source, shape, top: honest(source, shape, round(0.8 * top)),
    )
    assert noise_p_value(tapes_of("blt")) < 1e-6


def test_a_seed_is_not_private():
    assert not sums([[1.0]], n_steps=1).certificate.private
    found = privopt.prefix_sums([[1.0]], bound=1.0, n_steps=1, **BUDGET)
    next(found)
    assert found.certificate.private


def test_a_step_too_many_is_refused():
    found = sums(np.ones((5, 1)), n_steps=3)
    for _ in range(3):
        next(found)
    with pytest.raises(Refused, match="declared for 3 steps"):
        next(found)
    assert found.certificate.releases == 3


def test_records_that_come_back_are_charged():
    rule = Participation.separated(3, 10)
    once = sums(np.ones((40, 1)), n_steps=40, noise="tree")
    thrice = sums(np.ones((40, 1)), n_steps=40, noise="tree", participation=rule)
    for found in (once, thrice):
        list(found)
    assert thrice.noise_std[-1] > 1.5 * once.noise_std[-1]
    assert any("10 apart" in text for text in thrice.certificate.assumptions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bound": 0.0}, "bound must be positive"),
        ({"bound": math.inf}, "bound must be positive"),
        ({"delta": 0.0}, "delta > 0"),
        ({"neighbouring": "add_remove"}, "zero_out"),
        ({"n_steps": 0}, "n_steps must be positive"),
        ({"noise": "oak", "n_steps": 3}, "noise must be"),
        ({"noise": "blt"}, "needs n_steps"),
        ({"participation": Participation.separated(2, 5)}, "n_steps"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_settings_get_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        sums(np.ones((3, 1)), **options)


def test_bad_items_are_refused_without_being_shown():
    found = sums([["secret"]], n_steps=3)
    with pytest.raises(ValueError, match="numbers alone") as caught:
        next(found)
    assert "secret" not in str(caught.value)
    found = sums([np.ones(2), np.ones(3)], n_steps=3)
    next(found)
    with pytest.raises(ValueError, match="2 coordinates"):
        next(found)
    assert found.certificate.releases == 1
