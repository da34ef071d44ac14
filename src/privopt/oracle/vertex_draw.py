"""A choice among the vertices of an l1 ball or a simplex that reads a few columns only.

The exponential mechanism takes vertex size * e_k with probability proportional to
exp(-c g_k), c = size/scale, with g the gradient. For the l1 ball both vertices +- size * e_k are
drawn as one, of weight 2 cosh(c g_k), and the sign follows.

g changes with every step, for all k. So a vertex is *proposed* by weights that were computed once,
at an earlier gradient a, and accepted in proportion to its true weight. The envelope is certified:
if g_k is never further than E_k from a_k, then

    weight = 2 cosh(c g_k) <= 2 cosh(c (|a_k| + E_k)),

with the ratio as the probability of acceptance, and a vertex comes out with exactly the
probabilities of the exponential mechanism at g. Most of the time the random bits decide against
every g_k within E_k of a_k alike, and the column is not even read.

- A *light* column has E_k = w * sum_i |x_ik| with c E_k <= ``LOOSE``. Slopes lie in an interval of
  width w, by the clip, and change by at most smoothness * (change of the margin), which gives
  another w; the smaller one counts. a is the gradient of the start, for good.
- For a *heavy* column that would be too much. Its a_k is computed anew whenever
  smoothness * largest entry * (sum over records of the change of the margin since), a bound for
  every column, exceeds LOOSE/c.

How often a proposal was rejected depends on the data beyond what is released. It is kept
nowhere, and the random bits come from a stream of their own.

References: Raff, Khanna and Lu (2023) for Frank-Wolfe on sparse rows with a lazily maintained
gradient; von Neumann (1951) for rejection.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.weight_tree import WeightTree

if TYPE_CHECKING:
    from privopt.oracle.incremental_gradient import IncrementalGradient

LOOSE = 1.0
"""Largest logarithm by which an envelope may exceed the weight it was made from."""


class VertexDraw:
    """Scores of vertices with a sampler of their own. A sealed payload."""

    __slots__ = (
        "_anchor",
        "_bend",
        "_followed",
        "_heavy",
        "_heavy_columns",
        "_heavy_tree",
        "_light_tree",
        "_room",
        "_rounding",
        "_signed",
        "_size",
        "_strength",
        "_uniform",
    )

    def __init__(
        self, incremental_gradient: IncrementalGradient, size: float, signed: bool
    ) -> None:
        self._followed, self._size, self._signed = incremental_gradient, size, signed
        self._strength = math.nan

    def scores(self) -> np.ndarray:
        """All scores, the plain way: for audits, and for choices without noise."""
        scores = -self._size * self._followed.gradient()
        return np.concatenate([scores, -scores]) if self._signed else scores

    def choose(self, scale: float, source: Source) -> int:
        """Index k of a score with probability proportional to exp(score_k / scale)."""
        if not volume(source):
            return int(np.argmax(self.scores())) if self._followed.count else 0
        if self._strength != self._size / scale:
            self._prepare(self._size / scale, source)
        uniform, c = self._uniform, self._strength
        if c * self._rounding > LOOSE:  # so little noise that rounding would break an envelope
            values = self._followed.gradient()
            k = WeightTree(self._log_weights(values, 0.0)).draw(uniform)
            return self._with_sign(k, uniform(), float(values[k]))
        light, heavy, drift = self._light_tree, self._heavy_tree, 0.0
        if heavy:
            drift = self._drift()
            if c * drift > LOOSE:
                heavy, drift = self._renew_heavy(), self._rounding
        share = _share(heavy, light)
        while True:
            near = drift
            if heavy and uniform() < share:
                k = int(self._heavy[heavy.draw(uniform)])
            else:
                assert light is not None
                k = light.draw(uniform)
                near = float(self._room[k])
            value, coin = None, uniform()
            if coin >= self._acceptance(k, self._least(k, near)):
                value = self._followed.coordinate(k)
                if coin >= self._acceptance(k, value):
                    continue
            coin, anchor = uniform(), float(self._anchor[k])
            low = self._with_sign(k, coin, anchor - near)
            if low == self._with_sign(k, coin, anchor + near):
                return low
            return self._with_sign(
                k, coin, self._followed.coordinate(k) if value is None else value
            )

    def _with_sign(self, k: int, coin: float, value: float) -> int:
        """Index of one of the two vertices: of the opposite one if the coin says so, which has
        probability (1 + tanh(c g_k)) / 2 and rises with g_k."""
        if self._signed and 2 * coin - 1 < math.tanh(self._strength * value):
            return k + len(self._anchor)
        return k

    # ------------------------------------------------------------ proposals
    def _prepare(self, strength: float, source: Source) -> None:
        """Weights of all proposals, from the gradient where the path stands."""
        followed, query = self._followed, self._followed.query
        loss, largest = query.loss, query.bounds.largest
        sums = _sums_of_sizes(followed.columns)
        width = query.slope_clip * (1 if loss.one_signed else 2)
        furthest = self._size * largest + followed.furthest_margin()
        # Rounding of a sum over records is covered; it grows with their number.
        rounding = query.slope_clip * (1e-9 + 1e-15 * followed.count)
        width = min(width, loss.smoothness * furthest * (1 + 1e-9)) + rounding
        self._strength, self._uniform = strength, source.apart().random
        self._bend = loss.smoothness * largest * (1 + 1e-9)
        self._rounding = rounding * float(sums.max())
        sums *= width
        self._anchor, self._room = followed.gradient(), sums
        heavy = strength * self._room > LOOSE
        self._heavy, self._heavy_tree, self._light_tree = np.flatnonzero(heavy), None, None
        if not heavy.all():
            weights = self._log_weights(self._anchor, self._room)
            weights[self._heavy] = -math.inf
            self._light_tree = WeightTree(weights)
        if heavy.any():
            self._heavy_columns = followed.columns[:, self._heavy]
            self._room[self._heavy] = LOOSE / strength
            self._renew_heavy()

    def _renew_heavy(self) -> WeightTree:
        """New weights of heavy columns, from the gradient where the path stands."""
        self._followed.mark()
        values = self._heavy_columns.T @ self._followed.slopes()
        self._anchor[self._heavy] = values
        self._heavy_tree = WeightTree(self._log_weights(values, LOOSE / self._strength))
        return self._heavy_tree

    def _drift(self) -> float:
        """How far any coordinate of the gradient may be from where heavy columns were renewed."""
        return self._bend * self._followed.drift() + self._rounding

    def _log_weights(self, values: np.ndarray, room: np.ndarray | float) -> np.ndarray:
        """Logarithms of the largest weights that coordinates within ``room`` of these have."""
        if not self._signed:
            return self._strength * (room - values)
        exponent = np.abs(values)
        exponent += room
        exponent *= self._strength
        rest = -2 * exponent
        exponent += np.log1p(np.exp(rest, out=rest), out=rest)
        return exponent

    def _least(self, k: int, near: float) -> float:
        """The value with the smallest weight among those ``near`` the anchor."""
        anchor = float(self._anchor[k])
        return max(abs(anchor) - near, 0.0) if self._signed else anchor + near

    def _acceptance(self, k: int, value: float) -> float:
        """Weight of a value over the proposed weight, at most 1."""
        anchor, room = float(self._anchor[k]), float(self._room[k])
        if not self._signed:
            found = math.exp(self._strength * (anchor - room - value))
        else:
            true, most = self._strength * abs(value), self._strength * (abs(anchor) + room)
            found = math.exp(true - most) * (1 + math.exp(-2 * true)) / (1 + math.exp(-2 * most))
        if not found <= 1:
            raise AssertionError("a weight exceeds its envelope")
        return found


def _sums_of_sizes(columns: Any) -> np.ndarray:
    """Sum of absolute entries of each column."""
    sizes = sp.csc_array((np.abs(columns.data), columns.indices, columns.indptr), columns.shape)
    return sizes.T @ np.ones(columns.shape[0])


def _share(one: WeightTree | None, other: WeightTree | None) -> float:
    """Part of the first of two trees in the sum of all weights."""
    if one is None or other is None:
        return 0.0 if one is None else 1.0
    return 0.5 * (1 + math.tanh(0.5 * (one.log_total - other.log_total)))
