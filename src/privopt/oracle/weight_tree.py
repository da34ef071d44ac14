"""Draw one of very many candidates in proportion to their weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FAN = 128


class WeightTree:
    """k with probability proportional to exp(log_weights[k]).

    A tree of sums with 128 children a node: three levels for two million candidates. A draw goes
    down from the root and takes a *fresh* uniform variable at every node. A single variable of 53
    bits for all candidates would be off by K 2^-53 in total variation, which over many draws gets
    near a small delta; here each level adds 128 * 2^-53 at most. Sums are made anew from
    their parts, so that nothing drifts. The given array is overwritten.
    """

    __slots__ = ("_levels", "log_total")

    def __init__(self, log_weights: np.ndarray) -> None:
        top = float(log_weights.max())
        log_weights -= top  # the largest weight is 1: what underflows is never drawn
        weights = np.exp(log_weights, out=log_weights)
        self._levels: list[np.ndarray] = []
        while not self._levels or len(weights) > 1:
            nodes = -(-len(weights) // FAN)
            sums = np.zeros(nodes * FAN)
            sums[: len(weights)] = weights
            sums = sums.reshape(nodes, FAN)
            np.cumsum(sums, axis=1, out=sums)
            self._levels.insert(0, sums)
            weights = sums[:, -1]
        self.log_total = top + float(np.log(weights[0]))

    def draw(self, uniform: Callable[[], float]) -> int:
        node = 0
        for sums in self._levels:
            children = sums[node]
            place = FAN
            while place == FAN:  # once in 2^53 draws a product is rounded up to the whole
                place = int(children.searchsorted(uniform() * children[-1], "right"))
            node = node * FAN + place
        return node
