"""A stream without a last step: Honaker trees of lengths 1, 2, 4, ..., one after the other.

Tree j begins when 2^j - 1 steps are over and takes the next 2^j. Its noise is scaled by s_j, the
sensitivity of a tree of its own length, so that a record that takes part once loses exactly the
same, 1/sigma, in whichever tree it falls: C is block diagonal with blocks C_j / s_j. A running sum
carries the roots of all trees before and its place in the current one. That is a tenth more noise
than one tree for a known number of steps makes, and it holds for ever, whereas the loss in one tree
that simply grew would grow without bound, by one node at each doubling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from privopt.privacy.budget import Refused
from privopt.privacy.factorizations.factorization import (
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
    WholeDraw,
)
from privopt.privacy.factorizations.honaker import Honaker
from privopt.privacy.participation import Participation, Pattern

FOR_EVER = 2**40 - 1


@dataclass(frozen=True)
class OpenEnded(Factorization):
    """Honaker trees of doubling lengths, each with noise for its own."""

    name: ClassVar[str] = "open_ended"
    steps: int = FOR_EVER

    # ------------------------------------------------------------ privacy
    def encode(self, values: np.ndarray) -> np.ndarray:
        parts = []
        for tree, start, stop in _trees(len(values)):
            parts.append(Honaker(2**tree).encode(values[start:stop]) / _scale(tree))
        return np.concatenate(parts) if parts else values

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        total = np.zeros(len(patterns))
        for tree, start, stop in _trees(self._released(released)):
            inside = [tuple(s - start for s in p if start <= s < stop) for p in patterns]
            losses = Honaker(2**tree).losses_squared(inside, stop - start)
            total += losses / _scale(tree) ** 2
        return total

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        """Exact for a single pass: 1 from the first step on. Several participations move the sum
        at most as many times as far."""
        released = self._released(released)
        return float(participation.fitted(released).times ** 2) if released else 0.0

    # ------------------------------------------------------------ error
    def row_norms(self) -> np.ndarray:
        raise Refused("an open-ended stream has no last step: ask for row_norm(t).")

    def row_norm(self, t: int) -> float:
        """Standard deviation of b_t, a coordinate of the running sum's noise after t steps."""
        trees = _trees(t)
        square = sum(_scale(tree) ** 2 * _variance(stop - start) for tree, start, stop in trees)
        return math.sqrt(square)

    # ------------------------------------------------------------ noise
    def vectors_kept(self) -> int:
        return self.steps.bit_length()

    def stream(self) -> NoiseStream:
        return _Doubling()

    def rounding(self, largest: float) -> Rounding:
        """A record is in one tree, and later trees begin anew."""
        found = [Honaker(2**tree).rounding(largest) for tree in range(self.steps.bit_length())]
        scales = [_scale(tree) for tree in range(len(found))]
        return Rounding(
            min(scale * one.least for scale, one in zip(scales, found, strict=True)),
            max(scale * one.most for scale, one in zip(scales, found, strict=True)),
            found[-1].error,
            found[-1].rows,
        )


class _Doubling(NoiseStream):
    """The current tree; what is carried over of earlier ones needs no memory."""

    def __init__(self) -> None:
        self._tree = Honaker(1).stream()

    def next(self, draw: Draw) -> np.ndarray:
        tree = self._begun()
        noise = self._tree.next(draw)
        noise *= _scale(tree)
        self.step += 1
        return noise

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        tree = self._begun()
        noise = self._tree.next_whole(lambda scale: draw(scale * _scale(tree)))
        self.step += 1
        return noise

    def _begun(self) -> int:
        """Number of the tree of the next step, begun if it is the first there."""
        tree = (self.step + 1).bit_length() - 1
        if self.step == 2**tree - 1:
            self._tree = Honaker(2**tree).stream()
        return tree

    def vectors(self) -> list[np.ndarray]:
        return self._tree.vectors()

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        tree, start, stop = _trees(step)[-1] if step else (0, 0, 0)
        self._tree = Honaker(2**tree).stream()
        self._tree.load_state_dict({"step": stop - start, "vectors": vectors})


def _trees(steps: int) -> list[tuple[int, int, int]]:
    """(tree, first step, end) of all trees that have begun."""
    count = steps.bit_length()
    return [(j, 2**j - 1, min(2 ** (j + 1) - 1, steps)) for j in range(count)]


@lru_cache(maxsize=64)
def _scale(tree: int) -> float:
    """Sensitivity of a tree of 2^tree steps in a single pass.

    A step is seen by a chain of nodes of increasing height up to the root, and every chain belongs
    to some step; the largest sum of squared entries is found height by height.
    """
    form, best = Honaker(1), np.zeros(tree + 1)
    for height in range(tree + 1):
        here, below = np.array([float(height)]), np.arange(float(height))
        best[height] = form.entering(here)[0] ** 2
        if height:
            chains = best[:height] + form.staying(np.full(height, float(height)), below) ** 2
            best[height] = max(best[height], chains.max())
    return math.sqrt(best[tree])


def _variance(t: int) -> float:
    """Variance of Honaker's estimate after t steps."""
    return sum(1 / (2 - 2.0**-h) for h in range(t.bit_length()) if t >> h & 1)
