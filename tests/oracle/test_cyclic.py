"""Groups that take turns: fair, independent coins that look at nothing, the same at every call."""

import numpy as np
import pytest
from scipy import stats

from privopt.noise import SeededSource
from privopt.oracle import CountRecords, GeometricSkips, KeyedCoins, Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused

RELATIONS = ["zero_out", "replace_one", "add_remove"]


def oracle_over(count, relation="zero_out", sampler=None):
    return Oracle.over(
        np.ones((count, 2)),
        np.ones(count),
        neighbouring=relation,
        bounds=RowBounds(2.0),
        source=SeededSource(0),
        sampler=sampler,
    )


def sizes(parts):
    return [float(part.everything().ask(CountRecords()).open(KEY)[0]) for part in parts]


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_record_is_in_one_group(relation):
    oracle = oracle_over(1000, relation)
    parts = oracle.cyclic(4)
    assert [part.everything()._cells for part in parts] == [((g,),) for g in range(4)]
    assert sum(sizes(parts)) == 1000
    assert sizes(oracle.cyclic(4)) == sizes(parts)


@pytest.mark.statistical
def test_groups_are_fair_and_not_balanced():
    """Chi-square of the sizes over 300 oracles, seeded: multinomial, neither skewed nor dealt
    evenly. False alarm: 1e-6."""
    total = 0.0
    for seed in range(300):
        dealt = GeometricSkips(SeededSource(seed)).groups(400, 5)
        counts = np.bincount(dealt, minlength=5)
        total += float(np.sum((counts - 80) ** 2 / 80))
    law = stats.chi2(300 * 4)
    assert 5e-7 < law.cdf(total) < 1 - 5e-7


def test_a_record_more_leaves_the_others_in_their_groups():
    ids = list(range(50))
    whole = KeyedCoins(ids).groups(50, 7)
    without = KeyedCoins(ids[:20] + ids[21:]).groups(49, 7)
    assert np.array_equal(np.delete(whole, 20), without)
    assert set(whole) <= set(range(7))


def test_one_partition_only():
    oracle = oracle_over(20)
    oracle.cyclic(4)
    for cut in (lambda: oracle.cyclic(5), lambda: oracle.blocks(4)):
        with pytest.raises(Refused, match="other blocks"):
            cut()
    with pytest.raises(ValueError, match="positive"):
        oracle.cyclic(0)
