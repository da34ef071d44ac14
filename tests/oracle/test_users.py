"""An oracle that knows whose its rows are: every cut leaves each user in one part."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Refused

EACH = np.array([3, 1, 4, 2, 5, 1, 3, 2])
OWNER = np.repeat(np.arange(len(EACH)), EACH)


def held(relation: Any = "zero_out", owned=EACH):
    """The first column says whose a row is."""
    X, y = OWNER[:, None] + 1.0, np.ones(len(OWNER))
    return Oracle.over(
        X, y, neighbouring=relation, bounds=RowBounds(100.0), source=SeededSource(3), owned=owned
    )


def owners(part):
    return sorted(np.rint(np.asarray(part._rows._X)[:, 0] - 1).astype(int).tolist())


def test_parts_hold_whole_users():
    oracle, sizes = held(), [5, 6, 1, 9]
    for whole in (oracle, held().shuffled()):
        parts = whole.parts(sizes)
        found = [owners(part) for part in parts]
        assert all(len(part) <= size for part, size in zip(found, sizes, strict=True))
        together = [user for part in found for user in set(part)]
        assert len(together) == len(set(together))  # nobody in two
        for part in found:
            assert all(part.count(user) == EACH[user] for user in set(part))


@pytest.mark.parametrize("blocks", [2, 3, 30])
def test_blocks_and_groups_hold_whole_users_and_everybody(blocks):
    for found in (
        [owners(part) for part in held().shuffled().blocks(blocks)],
        [owners(part) for part in held("add_remove").cyclic(blocks)],
    ):
        assert sorted(chain.from_iterable(found)) == OWNER.tolist()
        together = [user for part in found for user in set(part)]
        assert len(together) == len(set(together)) == len(EACH)


def test_parts_of_parts_hold_whole_users():
    first, second = held().shuffled().blocks(2)
    for half in (first, second):
        found = [owners(part) for part in half.blocks(3)]
        together = [user for part in found for user in set(part)]
        assert len(together) == len(set(together))


def test_what_cannot_be_is_refused():
    with pytest.raises(Refused, match="every row belongs to one user"):
        held(owned=EACH[:-1])
    empty = Oracle.empty(
        2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0), largest=4
    )
    with pytest.raises(Refused, match="parts of at most 3 rows have no place for the 4 rows"):
        empty.parts([2, 3])
    empty.parts([2, 4])
