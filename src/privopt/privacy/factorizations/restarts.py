"""Trees that start anew every few steps: fewer nodes over a step, but the noise of each tree stays.

Without completion the noise of the last step of each tree is carried on: C is block diagonal. With
completion the carried noise is that of the root of the whole tree, as if steps without data had
filled it: less noise, and the root is charged like a further step of the tree. The last tree is
never completed (Kairouz et al., 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular

from privopt.privacy.factorizations.factorization import Draw, Factorization, NoiseStream
from privopt.privacy.factorizations.honaker import Honaker
from privopt.privacy.factorizations.tree import Accounting, Stack, Tree
from privopt.privacy.participation import Participation, Pattern

TREES: dict[str, type[Tree]] = {"honaker": Honaker, "tree": Tree}


@dataclass(frozen=True)
class Restarts(Factorization):
    """A new tree after every ``every`` steps."""

    name: ClassVar[str] = "restarts"
    every: int = 1
    completion: bool = False
    tree: Literal["honaker", "tree"] = "honaker"
    accounting: Accounting = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"a tree has at least one step, got every={self.every}.")
        if self.tree not in TREES:
            raise ValueError(f'tree must be "honaker" or "tree", got {self.tree!r}.')

    @classmethod
    def best(
        cls, tree: Literal["honaker", "tree"], steps: int, rule: Participation
    ) -> Factorization:
        """The tree that starts anew after so many epochs that the mean error is least: one tree for
        the whole stream, or restarts with completion. From public numbers alone."""
        found: list[Factorization] = [TREES[tree](steps)]
        epoch = rule.min_separation_steps
        if rule.times > 1:
            found += [
                cls(steps, epochs * epoch, True, tree)
                for epochs in range(1, rule.times)
                if epochs * epoch < steps
            ]
        return min(found, key=lambda f: f.errors(f.sensitivity_squared(rule))[1])

    def part(self) -> Tree:
        """One of the trees."""
        return TREES[self.tree](min(self.every, self.steps), self.accounting)

    @property
    def completes(self) -> bool:
        part = self.part()
        return self.completion and part.completed_steps() > part.steps

    # ------------------------------------------------------------ privacy
    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        released = self._released(released)
        part, total = self.part(), np.zeros(len(patterns))
        for start in range(0, released, self.every):
            stop = start + self.every
            local = [tuple(s - start for s in p if start <= s < stop) for p in patterns]
            # The root is out once the next tree has begun.
            if self.completes and released > stop:
                total += part.completed_losses_squared(local)
            else:
                total += part.losses_squared(local, min(released - start, self.every))
        return total

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        """Exact for a single pass and a fixed order; otherwise the sum of each tree's largest."""
        released = self._released(released)
        rule = participation.fitted(max(released, 1))
        patterns = rule.orders(released)
        if patterns is not None:
            return float(self.losses_squared(patterns, released).max(initial=0.0))
        total = 0.0
        for start in range(0, released, self.every):
            steps = min(released - start, self.every)
            whole = self.completes and released > start + self.every
            part = TREES[self.tree](self.part().completed_steps() if whole else steps, "nodes")
            total += part.sensitivity_squared(rule)
        return total

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Block by block; with completion the roots hide behind the next step's noise, and the
        equivalent square encoder is a matrix: for audits of short streams."""
        steps, flat = len(values), values.reshape(len(values), -1)
        if self.completes and steps > self.every:
            factor = np.linalg.cholesky(self._covariance(steps))
            return solve_triangular(factor, flat, lower=True).reshape(values.shape)
        part = self.part()
        blocks = [part.encode(values[s : s + self.every]) for s in range(0, steps, self.every)]
        return np.concatenate(blocks)

    def _covariance(self, steps: int) -> np.ndarray:
        """Covariance of the steps' noise with completion, from the trees' encoders."""
        part, every = self.part(), self.every
        encoder = np.zeros((every + 1, every + 1))
        encoder[:every, :every] = part.encode(np.eye(every))
        # The root's row: what every step has in it, and the root's own change.
        heights = _last_heights(every)
        encoder[every, :every] = part.completing(heights)
        root = (part.completed_steps() - 1).bit_length()
        encoder[every, every] = 1 / (part.weight(root) * part.completing_scale())
        whole = np.linalg.inv(encoder)
        trees = -(-steps // every)
        noise = np.zeros((trees * every, trees * (every + 1)))
        for index in range(trees):
            rows = slice(index * every, (index + 1) * every)
            columns = slice(index * (every + 1), (index + 1) * (every + 1))
            noise[rows, columns] = whole[:every]
            if index + 1 < trees:
                noise[(index + 1) * every, columns] += whole[every]
        noise = noise[:steps]
        return noise @ noise.T

    # ------------------------------------------------------------ error
    def row_norms(self) -> np.ndarray:
        part = self.part()
        own = part.row_norms() ** 2
        carried = float(own[-1])
        if self.completes:
            carried = part.node_variance((part.completed_steps() - 1).bit_length())
        trees = -(-self.steps // part.steps)
        total = np.arange(trees)[:, None] * carried + own
        return np.sqrt(total.ravel()[: self.steps])

    def vectors_kept(self) -> int:
        return self.part().vectors_kept()

    def stream(self) -> NoiseStream:
        return _Forest(self)


class _Forest(NoiseStream):
    """The current tree; at the end of one, it is completed when the next begins."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._tree: Stack = restarts.part().stream()

    def next(self, draw: Draw) -> np.ndarray:
        change: np.ndarray | None = None
        if self._tree.step == self._restarts.every:
            if self._restarts.completes:
                change = self._tree.complete(draw)
            self._tree = self._restarts.part().stream()
        noise = self._tree.next(draw)
        if change is not None:
            noise += change
        self.step += 1
        return noise

    def vectors(self) -> list[np.ndarray]:
        return self._tree.vectors()

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        tree = self._restarts.part().stream()
        tree.step = (step - 1) % self._restarts.every + 1 if step else 0
        tree.load_vectors(tree.step, vectors)
        self._tree = tree


def _last_heights(steps: int) -> np.ndarray:
    """Height of the node that holds each step after all of them."""
    heights = np.zeros(steps, dtype=np.int64)
    start = 0
    for h in reversed(range(steps.bit_length())):
        if steps >> h & 1:
            heights[start : start + (1 << h)] = h
            start += 1 << h
    return heights
