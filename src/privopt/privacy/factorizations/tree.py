r"""Binary trees: noise on sums of dyadic blocks of steps (Dwork et al., 2010; Chan et al., 2011).

Node (h, j) holds noise for the sum of steps j 2^h + 1 .. (j+1) 2^h, and b_t adds up the nodes that
tile 1..t, one for each bit of t. The node that ends at t with the height of t's lowest bit is the
only one that step t brings in, so one fresh Gaussian per step is enough, B is square, and its
encoder C is as sparse as a Fenwick tree: step i enters at t = i, and again at each later node that
swallows the one it is in, t <- t + lowbit(t). A record's loss in the released sums is thus exact at
the cost of log2(n) entries for each step.

``accounting="nodes"`` charges all complete nodes instead, also those that no running sum uses: what
DP-FTRL's published accounting does (Kairouz et al., 2021). It is never smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privopt.privacy.factorizations.factorization import (
    UNIT,
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
    WholeDraw,
    less_past,
)
from privopt.privacy.factorizations.separated_nodes import most_squared_nodes
from privopt.privacy.participation import Participation, Pattern

Accounting = Literal["exact", "nodes"]
MOST_LISTED = 1 << 18
"""Steps of a single pass that are gone through one by one; of longer ones the largest is bounded
by that of the next whole tree."""


@dataclass(frozen=True)
class Tree(Factorization):
    """The binary tree: b_t is the sum of the noise of the nodes that tile 1..t."""

    name: ClassVar[str] = "tree"
    accounting: Accounting = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accounting not in ("exact", "nodes"):
            raise ValueError(f'accounting must be "exact" or "nodes", got {self.accounting!r}.')

    # ------------------------------------------------------------ the node that step t brings in
    def entering(self, height: np.ndarray) -> np.ndarray:
        """Entry of C for the step at the end of a node of this height."""
        return np.ones(len(height))

    def staying(self, height: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Entry of C for a step whose node, ``before`` high, is swallowed by a higher one."""
        return np.ones(len(height))

    def scale(self, height: int) -> float:
        """Standard deviation of the fresh part of a node."""
        return 1.0

    def carried(self, height: int, before: int) -> float:
        """What a node keeps of a node it swallows."""
        return 0.0

    def weight(self, height: int) -> float:
        """Weight of a node in the running sum."""
        return 1.0

    def row_norms(self) -> np.ndarray:
        t = np.arange(1, self.steps + 1)
        total = np.zeros(self.steps)
        for height in range(self.steps.bit_length()):
            total += (t >> height & 1) * self.node_variance(height)
        return np.sqrt(total)

    def node_variance(self, height: int) -> float:
        """Variance that a node of this height adds to a running sum."""
        return 1.0

    def vectors_kept(self) -> int:
        return self.steps.bit_length()

    # ------------------------------------------------------------ privacy
    def encode(self, values: np.ndarray) -> np.ndarray:
        stack: dict[int, np.ndarray] = {}
        out = np.empty_like(values)
        for row, value in enumerate(values):
            height = _height(row + 1)
            swallowed = [(h, stack.pop(h)) for h in range(height)]
            total = value + sum(self.weight(h) * node for h, node in swallowed)
            node = total / self.weight(height)
            fresh = node - sum(self.carried(height, h) * other for h, other in swallowed)
            stack[height] = node
            out[row] = fresh / self.scale(height)
        return out

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        released = self._released(released)
        return self._losses(*_leaves(patterns), len(patterns), released)

    def _losses(self, leaf: np.ndarray, owner: np.ndarray, count: int, released: int) -> np.ndarray:
        """Losses of ``count`` patterns, given by their steps (from 1) and whose each is."""
        if self.accounting == "nodes":
            return _squared_sums(count, *_complete_nodes(leaf, owner, released))
        return _squared_sums(count, *self._entries(leaf, owner, released)[:3])

    def completed_losses_squared(self, patterns: Sequence[Pattern]) -> np.ndarray:
        """The same after all steps, once the noise of the whole tree's root is out as well."""
        leaf, owner = _leaves(patterns)
        if self.accounting == "nodes":
            places, owners, values = _complete_nodes(leaf, owner, self.completed_steps())
        else:
            places, owners, values, last = self._entries(leaf, owner, self.steps)
            if self.completed_steps() > self.steps:
                places = np.concatenate([places, np.full(len(leaf), self.steps + 1)])
                owners = np.concatenate([owners, owner])
                values = np.concatenate([values, self.completing(last)])
        return _squared_sums(len(patterns), places, owners, values)

    def _entries(
        self, leaf: np.ndarray, owner: np.ndarray, released: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Row, owner and value of all entries of C in the columns of these steps; and the height
        of the node that holds each step in the end."""
        at, last = leaf.copy(), np.zeros(len(leaf), dtype=np.int64)
        index = np.flatnonzero(at <= released)
        places, owners, values = [leaf[:0]], [owner[:0]], [np.zeros(0)]
        first = True
        while len(index):
            here = at[index]
            height = _heights(here)
            entry = self.entering(height) if first else self.staying(height, last[index])
            places.append(here)
            owners.append(owner[index])
            values.append(entry)
            last[index], first = height, False
            at[index] = here + (here & -here)
            index = index[at[index] <= released]
        return np.concatenate(places), np.concatenate(owners), np.concatenate(values), last

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        """Exact for a single pass and a fixed order; otherwise that of all nodes, which is not
        smaller."""
        released = self._released(released)
        participation = participation.fitted(max(released, 1))
        if participation.times == 1 and released > MOST_LISTED:
            return self._longest_path(released)
        if participation.times == 1 and released:
            steps = np.arange(released)
            return float(self._losses(steps + 1, steps, released, released).max())
        patterns = participation.orders(released)
        if patterns is None:
            return float(
                most_squared_nodes(
                    released, participation.min_separation_steps, participation.times
                )
            )
        return float(self.losses_squared(patterns, released).max()) if patterns else 0.0

    def _longest_path(self, released: int) -> float:
        """Largest loss of one step in a whole tree that holds this many: over all ways in which a
        step can be swallowed by higher and higher nodes."""
        top = (released - 1).bit_length()
        if self.accounting == "nodes":
            return float(released.bit_length())
        heights = np.arange(top + 1)
        best = self.entering(heights) ** 2
        for height in range(1, top + 1):
            below = heights[:height]
            through = self.staying(np.full(height, height), below) ** 2
            best[height] = max(best[height], float(np.max(best[:height] + through)))
        return float(best.max())

    # ------------------------------------------------------------ completion
    def completed_steps(self) -> int:
        """Steps of the smallest whole tree that holds all steps."""
        return 1 << (self.steps - 1).bit_length()

    def completing_scale(self) -> float:
        """Standard deviation of the fresh part of the root over steps that were never taken."""
        return 1.0

    def completing(self, last: np.ndarray) -> np.ndarray:
        """Entries of the root's row, for steps that come in through nodes of these heights."""
        return np.ones(len(last))

    # ------------------------------------------------------------ noise
    def stream(self) -> Stack:
        return Stack(self)

    def fresh(self, height: int) -> float:
        """Standard deviation of the fresh part of the step that brings in such a node: 1/C_tt."""
        return self.weight(height) * self.scale(height)

    def share(self, height: int, before: int) -> float:
        """Part of a swallowed node's whole noise that the step takes off again."""
        return 1 - self.weight(height) * self.carried(height, before) / self.weight(before)

    def rounding(self, largest: float) -> Rounding:
        """Noise of whole nodes is bounded level by level."""
        levels = self.steps.bit_length()
        sizes, error = [], 0.0
        for height in range(levels):
            kept = [(1 - self.share(height, h)) * sizes[h] for h in range(height)]
            taken = [abs(self.share(height, h)) * sizes[h] for h in range(height)]
            error = max(error, (height + 3) * UNIT * sum(taken))
            sizes.append((largest + sum(map(abs, kept))) * (1 + 1e-6))
        fresh = [self.fresh(height) for height in range(levels)]
        return Rounding(min(fresh), max(fresh), error, levels)


class Stack(NoiseStream):
    """The nodes that tile 1..t, at most one for each bit of t."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._nodes: dict[int, np.ndarray] = {}

    def next(self, draw: Draw) -> np.ndarray:
        tree = self._tree
        height = _height(self.step + 1)
        node = draw()
        if tree.scale(height) != 1.0:
            node *= tree.scale(height)
        swallowed = [(h, self._nodes.pop(h)) for h in range(height)]
        for h, other in swallowed:
            if tree.carried(height, h):
                node += tree.carried(height, h) * other
        noise = tree.weight(height) * node
        for h, other in swallowed:
            other *= tree.weight(h)
            noise -= other
        self._nodes[height] = node
        self.step += 1
        return noise

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        """Kept are the sums of all noise of a node's steps: integers, exact in doubles."""
        tree, height = self._tree, _height(self.step + 1)
        fresh = draw(tree.fresh(height))
        if height:
            swallowed = [(h, self._nodes.pop(h)) for h in range(height)]
            past = np.zeros(fresh.shape)
            for h, other in swallowed:
                past += tree.share(height, h) * other
            fresh = less_past(fresh, past)
            self._nodes[height] = sum((other for _, other in swallowed), fresh.astype(float))
        else:
            self._nodes[height] = fresh.astype(float)
        self.step += 1
        return fresh

    def complete(self, draw: Draw) -> np.ndarray:
        """Replace the noise of all steps by that of the whole tree's root, as if zeros had come in
        until the tree was full, and return the change. One draw stands for all steps left out."""
        tree, steps = self._tree, self.step
        root = (tree.completed_steps() - 1).bit_length()
        change = draw()
        change *= tree.completing_scale() * tree.weight(root)
        for h, node in self._nodes.items():
            change += (tree.weight(root) * tree.carried(root, h) - tree.weight(h)) * node
        assert steps == tree.steps < tree.completed_steps()
        return change

    def vectors(self) -> list[np.ndarray]:
        return [self._nodes[height] for height in sorted(self._nodes)]

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        heights = [h for h in range(step.bit_length()) if step >> h & 1]
        if len(heights) != len(vectors):
            raise ValueError("this is not the state of a tree of noise at that step.")
        self._nodes = dict(zip(heights, vectors, strict=True))


def _height(t: int) -> int:
    """Height of the node that ends at step t: the number of trailing zeros of t."""
    return (t & -t).bit_length() - 1


def _heights(t: np.ndarray) -> np.ndarray:
    return np.log2(t & -t).astype(np.int64)


def _leaves(patterns: Sequence[Pattern]) -> tuple[np.ndarray, np.ndarray]:
    """All steps of all patterns, counted from 1, and the pattern each belongs to."""
    leaf = np.array([step + 1 for pattern in patterns for step in pattern], dtype=np.int64)
    return leaf, np.repeat(np.arange(len(patterns)), [len(pattern) for pattern in patterns])


def _squared_sums(
    count: int, places: np.ndarray, owners: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Squared norm of each owner's row sums. No entry is negative: equal contributions move it
    furthest, and the entries of one row add up."""
    keys, inverse = np.unique(places * count + owners, return_inverse=True)
    sums = np.bincount(inverse, weights=values, minlength=len(keys))
    return np.bincount(keys % count, weights=sums**2, minlength=count)


def _complete_nodes(
    leaf: np.ndarray, owner: np.ndarray, released: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place, owner and value 1 for every complete node over these steps."""
    places, owners = [], []
    for height in range(released.bit_length()):
        block = (leaf - 1) >> height
        keep = (block + 1) << height <= released
        places.append((block[keep] << 6) + height)
        owners.append(owner[keep])
    if not places:
        return leaf[:0], owner[:0], np.zeros(0)
    place = np.concatenate(places)
    return place, np.concatenate(owners), np.ones(len(place))
