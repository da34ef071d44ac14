"""Largest sum of squared node counts in a binary tree, for participations that keep a distance.

A block of steps is described by a table: entry [q][s, v] is the least wait, from the end of the
block to the next step that may be chosen, if q steps are chosen in it, none before offset s, with
a sum of at least v. Two neighbouring blocks join by going from the wait of the left one to the
start of the right one; the node above both then adds q^2.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

Table = list[np.ndarray]
MOST_WORK = 1e10
"""Elementary operations before the sum is bounded level by level instead."""


@lru_cache(maxsize=256)
def most_squared_nodes(steps: int, separation: int, times: int) -> int:
    """Maximum, over sets of at most ``times`` steps any two of which are at least ``separation``
    apart, of the sum over complete nodes of the squared number of chosen steps below.

    Exact where the tables are small; for very many participations, the sum of each level's own
    maximum, which is not smaller.
    """
    times = min(times, -(-steps // separation))
    bound = _by_levels(steps, separation, times)
    if separation * (times * bound) ** 2 / 8 > MOST_WORK:
        return bound
    block = _leaf(separation)
    blocks = [block]
    for height in range(1, steps.bit_length()):
        block = _joined(block, block, times, 1 << height, separation, node=True)
        blocks.append(block)
    forest: Table | None = None
    for height in reversed(range(steps.bit_length())):
        if steps >> height & 1:
            right = blocks[height]
            forest = (
                right
                if forest is None
                else _joined(forest, right, times, steps, separation, node=False)
            )
    assert forest is not None
    return max(
        int(np.flatnonzero(table[0] < separation).max(initial=0)) for table in forest[: times + 1]
    )


def _leaf(separation: int) -> Table:
    start = np.arange(separation)
    none = np.maximum(start - 1, 0)[:, None]
    # A wait equal to the separation means "impossible": true waits are smaller.
    one = np.full((separation, 2), separation)
    one[0, :] = separation - 1
    return [none, one]


def _joined(
    left: Table, right: Table, times: int, size: int, separation: int, *, node: bool
) -> Table:
    most = min(times, len(left) + len(right) - 2, -(-size // separation))
    joined: Table = []
    for q in range(most + 1):
        pairs = [(i, q - i) for i in range(len(left)) if 0 <= q - i < len(right)]
        width = max(left[i].shape[1] + right[j].shape[1] - 1 for i, j in pairs)
        bonus = q * q if node else 0
        table = np.full((separation, width + bonus), separation)
        for i, j in pairs:
            # One more row for "impossible", so that it stays impossible.
            padded = np.vstack([right[j], np.full((1, right[j].shape[1]), separation)])
            for v in range(left[i].shape[1]):
                part = table[:, bonus + v : bonus + v + right[j].shape[1]]
                np.minimum(part, padded[left[i][:, v]], out=part)
        if bonus:
            table[:, :bonus] = table[:, bonus : bonus + 1]
        # A larger sum also counts as a smaller one.
        table = np.minimum.accumulate(table[:, ::-1], axis=1)[:, ::-1]
        useful = (table < separation).any(axis=0)
        joined.append(table[:, : max(1, int(useful.sum()))])
    return joined


def _by_levels(steps: int, separation: int, times: int) -> int:
    """Each level's largest sum of squares: as many full nodes as the participations fill."""
    total = 0
    for height in range(steps.bit_length()):
        most = min(times, -(-(1 << height) // separation))
        full, rest = divmod(times, most)
        total += full * most**2 + rest**2
    return total
