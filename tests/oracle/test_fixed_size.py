"""Batches of fixed size: the law of the draw, its coupling, and what the view declares.

All draws are seeded; each statistical test would fail a right sampler with probability 1e-6.
"""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats

from privopt.losses import Logistic
from privopt.noise import SecureSource, SeededSource
from privopt.oracle import ClippedGradient, GeometricSkips, KeyedCoins, Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import FULL, Sampling


def oracle_over(X, sampler=None, form=np.asarray):
    return Oracle.over(
        form(X),
        np.ones(len(X)),
        neighbouring="replace_one",
        bounds=RowBounds(1.0),
        source=SeededSource(4),
        sampler=sampler,
    )


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", [GeometricSkips(SeededSource(1)), KeyedCoins(range(5))])
def test_every_set_is_equally_likely(sampler):
    """All ten pairs of five records, chi-square over 20000 draws."""
    draws = [tuple(sorted(sampler.draw(5, 2, view))) for view in range(20_000)]
    pairs = list(itertools.combinations(range(5), 2))
    counts = [draws.count(pair) for pair in pairs]
    assert sum(counts) == len(draws)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_the_secure_source_draws_without_replacement():
    sampler = GeometricSkips(SecureSource())
    for size in (1, 3, 50, 99, 100):
        chosen = sampler.draw(100, size, 1)
        assert len(set(chosen.tolist())) == size
        assert set(chosen.tolist()) <= set(range(100))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_a_batch_is_the_sum_over_its_records(form):
    oracle = oracle_over(np.eye(12), form=form)
    seen = set()
    for _ in range(30):
        sealed = oracle.fixed(3, of=12).ask(ClippedGradient(Logistic(), 1.0))
        total = sealed.open(KEY)
        assert sorted(total.round(12)) == [-0.5] * 3 + [0.0] * 9
        assert sealed.sensitivity.sampling == Sampling(0.25, fixed_size=True)
        assert (sealed.sensitivity.radius, sealed.sensitivity.single) == (2.0, 1.0)
        seen.add(tuple(total.round(12)))
    assert len(seen) > 15


def test_a_batch_of_all_is_not_sampled():
    sealed = oracle_over(np.eye(4)).fixed(4, of=4).ask(ClippedGradient(Logistic(), 1.0))
    assert sealed.sensitivity.sampling == FULL
    np.testing.assert_allclose(sealed.open(KEY), np.full(4, -0.5), rtol=1e-13)


@pytest.mark.parametrize("size", [0, -1, 5])
def test_sizes_out_of_range(size):
    with pytest.raises(ValueError, match="between 1 and 4"):
        oracle_over(np.eye(4)).fixed(size, of=4)


def test_keyed_coins_couple_neighbours():
    """Replacing a record changes a batch's total only by that record, and only where it is in."""
    changed = 0
    first = oracle_over(np.eye(9), KeyedCoins(range(9)))
    other = np.eye(9)
    other[4] = -other[4]
    second = oracle_over(other, KeyedCoins(range(9)))
    for _ in range(40):
        totals = [
            o.fixed(3, of=9).ask(ClippedGradient(Logistic(), 1.0)).open(KEY)
            for o in (first, second)
        ]
        moved = totals[0] - totals[1]
        assert not moved[np.arange(9) != 4].any()
        changed += bool(moved[4])
    assert 0 < changed < 40


def test_keyed_coins_need_one_identity_per_record():
    with pytest.raises(ValueError, match="one identity per record"):
        KeyedCoins([1, 2]).draw(3, 1, 1)


def test_the_empty_oracle_declares_the_same_sensitivity():
    full = oracle_over(np.eye(6)).fixed(2, of=6)
    empty = Oracle.empty(
        6, neighbouring="replace_one", bounds=RowBounds(1.0), source=SeededSource(0)
    ).fixed(2, of=6)
    query = ClippedGradient(Logistic(), 1.0)
    assert full.ask(query).sensitivity == empty.ask(query).sensitivity
