"""A tree of gradient differences: one pass over the records, each in one node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

MOST_PHASES = 12


@dataclass(frozen=True)
class Leaf:
    """One iterate: the fresh node that it begins with, and the step that follows.

    ``depth`` 0 is a root. ``size``: records of the node. ``share``: how far the iterate can have
    moved since the parent's estimate, in diameters. ``uses``: leaves that the node serves.
    """

    phase: int
    depth: int
    size: int
    share: float
    uses: int
    step: float


@cache
def leaves(phases: int, batch: int) -> tuple[Leaf, ...]:
    """All leaves in their order. Leaf s of a tree begins with the right child that ends the run of
    left children before it: its depth is that of the tree less the trailing zeros of s."""
    found: list[Leaf] = []
    for phase in range(1, phases + 1):
        for s in range(2**phase):
            now = len(found)
            uses = (s & -s) or 2**phase
            depth = phase - uses.bit_length() + 1
            before = now - uses  # where the parent's estimate was made
            # prod of k/(k+2) over the steps in between
            kept = before * (before + 1) / (now * (now + 1)) if depth else 0.0
            found.append(Leaf(phase, depth, batch >> depth, 1 - kept, uses, 2 / (now + 2)))
    return tuple(found)


def largest_batch(n: int, phases: int) -> int:
    """Records of a root, so that all nodes together need no more than n; 0 if they do."""
    batch = int(n / (phases + phases * (phases + 1) / 4))
    return batch if batch >= 2**phases else 0


def difference_clip(leaf: Leaf, clip: float, smoothness: float, margin: float) -> float:
    """Bound on the change of a record's slope since the parent's estimate."""
    return min(2 * clip, smoothness * leaf.share * margin)
