"""Poisson batches: rates, variance, independence, and coins that couple two runs.

All draws are seeded. Each statistical test would fail a right sampler on a fresh seed with a
probability of about 1e-6.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats

from privopt.losses import Logistic
from privopt.noise import SeededSource
from privopt.oracle import (
    ClippedGradient,
    CountRecords,
    GeometricSkips,
    KeyedCoins,
    Oracle,
    RowBounds,
)
from privopt.oracle.sealed import KEY

ALARM = 1e-6
RATES = [0.02, 0.1, 0.5, 0.9]


def inclusions(rate, count, draws, seed=0):
    """A draws x count table of zeros and ones."""
    sampler = GeometricSkips(SeededSource(seed))
    table = np.zeros((draws, count))
    for view in range(draws):
        chosen = sampler.choose(count, rate, view)
        assert np.all(np.diff(chosen) > 0)
        table[view, chosen] = 1.0
    return table


@pytest.mark.statistical
@pytest.mark.parametrize("rate", RATES)
def test_every_index_is_included_at_the_rate(rate):
    """Chi-square over 50 indices, 1e5 coins; first and last index also on their own."""
    draws, count = 2000, 50
    table = inclusions(rate, count, draws)
    z = (table.sum(axis=0) - draws * rate) / np.sqrt(draws * rate * (1 - rate))
    p = stats.chi2(count).cdf(np.sum(z**2))
    assert ALARM / 2 < p < 1 - ALARM / 2
    assert np.abs(z[[0, -1]]).max() < 5


@pytest.mark.statistical
@pytest.mark.parametrize("rate", RATES)
def test_batch_sizes_vary_as_binomial(rate):
    """Variance n q (1 - q): fixed-size or shuffled batches have far less. |z| > 5 is the alarm."""
    draws, count = 2000, 50
    sizes = inclusions(rate, count, draws, seed=1).sum(axis=1)
    variance = count * rate * (1 - rate)
    excess = (1 - 6 * rate * (1 - rate)) / variance
    z = (np.mean((sizes - count * rate) ** 2) / variance - 1) / np.sqrt((2 + excess) / draws)
    assert abs(z) < 5
    smallest = np.mean(sizes == 0)
    expected = (1 - rate) ** count
    assert abs(smallest - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("rate", RATES)
def test_records_are_chosen_independently(rate):
    """Correlation of neighbours at lags 1 to 4, and of one index in successive views."""
    table = inclusions(rate, 50, 2000, seed=2)
    centred = (table - rate) / np.sqrt(rate * (1 - rate))
    for lag in (1, 2, 3, 4):
        pairs = centred[:, lag:] * centred[:, :-lag]
        assert abs(pairs.sum() / np.sqrt(pairs.size)) < 5
    pairs = centred[1:] * centred[:-1]
    assert abs(pairs.sum() / np.sqrt(pairs.size)) < 5


@pytest.mark.statistical
def test_the_whole_law_of_a_small_sample():
    """All 2^3 subsets of three records against their exact probabilities, chi-square."""
    rate, draws = 0.3, 20_000
    table = inclusions(rate, 3, draws, seed=3)
    codes = (table @ [1, 2, 4]).astype(int)
    members = np.array([bin(code).count("1") for code in range(8)])
    expected = draws * rate**members * (1 - rate) ** (3 - members)
    assert stats.chisquare(np.bincount(codes, minlength=8), expected).pvalue > ALARM


def test_skips_go_on_until_the_end_of_the_data():
    """With every gap equal to one, each draw of gaps is far too short and must be continued."""
    coins = SimpleNamespace(geometric=lambda rate, size: np.ones(size, dtype=np.int64))
    chosen = GeometricSkips(SimpleNamespace(coins=coins)).choose(1000, 0.01, 1)
    np.testing.assert_array_equal(chosen, np.arange(1000))


@pytest.mark.parametrize("rate", [1e-18, 1e-100, 1e-300, 5e-324])
def test_a_tiny_rate_chooses_nothing_and_does_not_overflow(rate):
    sampler = GeometricSkips(SeededSource(0))
    for count in (0, 1, 1000):
        assert sampler.choose(count, rate, 1).size == 0


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_no_records_give_no_choice(rate):
    assert GeometricSkips(SeededSource(0)).choose(0, rate, 1).size == 0


def test_rate_one_takes_all():
    np.testing.assert_array_equal(GeometricSkips(SeededSource(0)).choose(7, 1.0, 1), np.arange(7))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, np.nan, np.inf])
def test_a_rate_outside_zero_and_one_is_refused(rate):
    oracle = Oracle.over(
        np.ones((4, 1)),
        np.ones(4),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
    )
    with pytest.raises((ValueError, OverflowError)):
        oracle.poisson(rate)


# ------------------------------------------------------------ through the oracle
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.from_numpy])
def test_a_batch_is_the_sum_over_the_chosen_records(form):
    """Unit vectors as rows: the total shows who is in, and it is what a twin sampler says."""
    oracle = Oracle.over(
        form(np.eye(40)),
        np.ones(40),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(5),
    )
    twin = GeometricSkips(SeededSource(5))
    sizes = set()
    for number in range(1, 20):
        view, chosen = oracle.poisson(0.1), twin.choose(40, 0.1, number)
        expected = np.zeros(40)
        expected[chosen] = -0.5
        total = view.ask(ClippedGradient(Logistic(), 1.0)).open(KEY)
        np.testing.assert_allclose(total, expected, rtol=1e-13)
        assert view.ask(CountRecords()).open(KEY) == [len(chosen)]
        sensitivity = view.ask(CountRecords()).sensitivity
        assert sensitivity.sampling.rate == 0.1
        assert not sensitivity.sampling.full
        sizes.add(len(chosen))
    assert len(sizes) > 2
    everyone = oracle.poisson(1.0).ask(CountRecords())
    assert everyone.open(KEY) == [40]
    assert everyone.sensitivity.sampling.full


def test_drawing_noise_does_not_change_the_batches():
    chosen = []
    for noisy in (False, True):
        source = SeededSource(6)
        sampler = GeometricSkips(source)
        batches = []
        for view in range(10):
            if noisy:
                source.noise.standard_normal(17)
            batches.append(sampler.choose(30, 0.2, view).tolist())
        chosen.append(batches)
    assert chosen[0] == chosen[1]


# ------------------------------------------------------------ keyed coins
def test_keyed_coins_couple_a_data_set_with_its_neighbours():
    ids = list(range(100, 160))
    full = KeyedCoins(ids, key=9)
    for lost in (0, 31, 59):
        rest = ids[:lost] + ids[lost + 1 :]
        smaller = KeyedCoins(rest, key=9)
        for view in range(1, 40):
            kept = {ids[i] for i in full.choose(60, 0.3, view)}
            assert {rest[i] for i in smaller.choose(59, 0.3, view)} == kept - {ids[lost]}


def test_keyed_coins_couple_two_oracles():
    """Only the removed record's own contribution may differ, in every view."""
    totals = []
    for keep in (range(30), [i for i in range(30) if i != 11]):
        oracle = Oracle.over(
            np.eye(30)[list(keep)],
            np.ones(len(keep)),
            neighbouring="add_remove",
            bounds=RowBounds(1.0),
            source=SeededSource(0),
            sampler=KeyedCoins(list(keep)),
        )
        query = ClippedGradient(Logistic(), 1.0)
        totals.append([oracle.poisson(0.4).ask(query).open(KEY) for _ in range(30)])
    moved = np.array(totals[0]) - np.array(totals[1])
    assert not moved[:, [i for i in range(30) if i != 11]].any()
    assert 0 < np.count_nonzero(moved[:, 11]) < 30


@pytest.mark.statistical
def test_keyed_coins_have_the_rate_and_depend_on_view_and_key():
    """Binomial count of 1e5 coins, |z| < 5; pairs of views and of keys are uncorrelated."""
    rate, count, views = 0.3, 250, 400
    tables = []
    for key in (0, 1):
        coins, table = KeyedCoins(range(count), key=key), np.zeros((views, count))
        for view in range(views):
            table[view, coins.choose(count, rate, view)] = 1.0
        tables.append((table - rate) / np.sqrt(rate * (1 - rate)))
        assert abs(tables[-1].sum() / np.sqrt(views * count)) < 5
    for pairs in (
        tables[0] * tables[1],
        tables[0][1:] * tables[0][:-1],
        tables[0][:, 1:] * tables[0][:, :-1],
    ):
        assert abs(pairs.sum() / np.sqrt(pairs.size)) < 5


def test_keyed_coins_need_one_identity_per_record():
    with pytest.raises(ValueError, match="one identity per record"):
        KeyedCoins([1, 2, 3]).choose(4, 0.5, 1)
    assert KeyedCoins([]).choose(0, 0.5, 1).size == 0
    assert KeyedCoins([3, 4]).choose(2, 1.0, 1).tolist() == [0, 1]
