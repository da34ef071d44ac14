"""More than two classes: blocks of one long vector, each with its share of the noise's budget.

* ``right``: is the class said the true one, by bin of the probability of the class said;
* ``confusion``: one cell for each pair of true class and class said;
* ``log_loss`` and ``brier``: a loss a in [0, 1] as the three numbers (a^2, a - a^2, 1 - a), which
  give its mean and the variance of its mean exactly;
* ``ranks``, only if it is asked for: for each class the table of bin and label, as for two classes
  (one against the rest). Each record is in all K of them, so each has a K-th of their share.

One record's part of each block is at most 1 in l1; blocks are scaled to their shares, so that it is
at most 1 together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from privopt.evaluation.bins import ScoreBins
from privopt.evaluation.estimate import Estimate, NoisyCounts
from privopt.evaluation.two_classes import TwoClasses, TwoClassesResult
from privopt.oracle import Shares

CONFIDENCE = (0.0, 0.4, 0.55, 0.7, 0.85, 0.95, 1.0)
"""Edges of the bins of the probability of the class said."""
SHARES = {"right": 0.35, "confusion": 0.4, "log_loss": 0.15, "brier": 0.1}
RANKS = 0.5
"""Share of the tables of one class against the rest, where they are asked for."""


@dataclass(frozen=True)
class ManyClasses:
    """Where the blocks lie, how long they are, and what share of the budget each has."""

    classes: int
    bins: ScoreBins | None
    ranks: bool
    gaussian: bool = False

    @property
    def answers(self) -> int:
        return 1 if self.bins is None else 1 + self.classes

    @property
    def _one(self) -> TwoClasses:
        return TwoClasses(self.bins, True, True)

    @cached_property
    def sizes(self) -> dict[str, int]:
        scored = self.bins is not None
        found = {"right": 2 * (len(CONFIDENCE) - 1 if scored else 1), "confusion": self.classes**2}
        if scored:
            found |= {"log_loss": 3, "brier": 3}
            if self.ranks:
                found |= {f"rank {k}": self._one.width for k in range(self.classes)}
        return found

    @cached_property
    def weights(self) -> dict[str, float]:
        """What blocks are multiplied by: 1 together, or for Gaussian noise their squares."""
        wished = {}
        for name in self.sizes:
            ranked = name.startswith("rank ")
            wished[name] = RANKS / self.classes if ranked else SHARES[name]
            if not ranked and self.ranks and self.bins is not None:
                wished[name] *= 1 - RANKS
        if self.gaussian:
            ranked = sum(name.startswith("rank ") for name in wished)
            wished = {
                name: one * math.sqrt(ranked) if name.startswith("rank ") else one
                for name, one in wished.items()
            }
        total = (
            math.sqrt(sum(one**2 for one in wished.values()))
            if self.gaussian
            else sum(wished.values())
        )
        return {name: one / total for name, one in wished.items()}

    @property
    def width(self) -> int:
        return sum(self.sizes.values())

    @cached_property
    def starts(self) -> dict[str, int]:
        names = list(self.sizes)
        places = np.cumsum([0, *self.sizes.values()])[:-1].tolist()
        return dict(zip(names, places, strict=True))

    def shares(self, answers: np.ndarray, labels: np.ndarray) -> Shares:
        """What each record adds; nothing where there is no answer or no label."""
        there = np.isfinite(answers).all(axis=1) & (labels >= 0)
        said = np.where(there, answers[:, 0], 0).astype(np.intp)
        label = np.where(there, labels, 0).astype(np.intp)
        ones = np.ones(len(said))
        blocks: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {
            "confusion": [(label * self.classes + said, ones)]
        }
        wrong = (said != label).astype(np.intp)
        if self.bins is None:
            blocks["right"] = [(wrong, ones)]
        else:
            clean = np.where(there[:, None], answers[:, 1:], 1 / self.classes)
            rows = np.arange(len(said))
            sure = np.searchsorted(CONFIDENCE[1:-1], clean[rows, said], side="right")
            blocks["right"] = [(2 * sure + wrong, ones)]
            truth = np.eye(self.classes)[label]
            for name, loss in {
                "log_loss": -np.log(np.clip(clean[rows, label], self._least, 1)) / self._most,
                "brier": ((clean - truth) ** 2).sum(axis=1) / 2,
            }.items():
                a = np.clip(loss, 0, 1)
                parts = (a**2, a - a**2, 1 - a)
                blocks[name] = [(np.full(len(a), k), part) for k, part in enumerate(parts)]
            for k in range(self.classes if self.ranks else 0):
                with np.errstate(all="ignore"):
                    scores = logit(clean[:, k])
                bin_, share = self.bins.places(scores, None)
                cells = [(2 * bin_ + end) * 2 + (label == k) for end in (0, 1)]
                blocks[f"rank {k}"] = list(zip(cells, (1 - share, share), strict=True))
        places, weights = [], []
        for name, parts in blocks.items():
            for place, weight in parts:
                places.append(self.starts[name] + place)
                weights.append(self.weights[name] * weight * there)
        return Shares(np.stack(places, axis=1), np.stack(weights, axis=1), self.width)

    @property
    def _least(self) -> float:
        """The least probability that a loss takes as it is."""
        assert self.bins is not None
        return float(expit(-self.bins.limit))

    @property
    def _most(self) -> float:
        return -math.log(self._least)


@dataclass(frozen=True, eq=False)
class ManyClassesResult:
    """What the released vector says; ``names`` are those of the classes."""

    layout: ManyClasses
    counts: NoisyCounts
    names: tuple[str, ...]

    def _block(self, name: str) -> NoisyCounts:
        start, weight = self.layout.starts[name], self.layout.weights[name]
        found = self.counts.part(slice(start, start + self.layout.sizes[name]))
        return replace(found, sums=found.sums / weight, variances=found.variances / weight**2)

    def metrics(self) -> dict[str, Estimate]:
        """Every metric, by name; those of one class carry its name."""
        right = self._block("right")
        sides = np.arange(len(right.sums)) % 2
        found = {"accuracy": right.ratio(sides == 0, np.ones_like(sides))}
        if self.layout.bins is not None:
            found["log_loss"] = self._mean("log_loss", self.layout._most)
            found["brier"] = self._mean("brier", 2.0)
        K, table = self.layout.classes, self._block("confusion")
        truth, said = np.divmod(np.arange(K * K), K)
        for k, name in enumerate(self.names):
            both = (truth == k) & (said == k)
            found[f"precision of {name}"] = table.ratio(both, said == k)
            found[f"recall of {name}"] = table.ratio(both, truth == k)
        for k in range(K if self.layout.ranks and self.layout.bins is not None else 0):
            found[f"auc of {self.names[k]}"] = self.one_against_rest(k).auc()
        return found

    def _mean(self, name: str, scale: float) -> Estimate:
        """Of a loss in units of ``scale``; its square is the first number."""
        found = self._block(name).ratio([1, 1, 0], np.ones(3), square=np.array([1.0, 0, 0]))
        return found.through(lambda value: scale * value)

    def one_against_rest(self, k: int) -> TwoClassesResult:
        """The table of one class against all others."""
        return TwoClassesResult(self.layout._one, self._block(f"rank {k}"))

    def roc(self) -> list[tuple[float, Estimate, Estimate]]:
        return []

    def calibration(self) -> list[tuple[float, Estimate, float]]:
        """For each bin of the probability of the class said: its middle, the share of right
        answers, and how many records there are."""
        if self.layout.bins is None:
            return []
        block, found = self._block("right"), []
        cells = np.arange(len(block.sums))
        for k in range(len(CONFIDENCE) - 1):
            here = cells // 2 == k
            count = float(block.sums[here].sum())
            if count > 2 * math.sqrt(float(block.variances[here].sum())) + 1:
                middle = (CONFIDENCE[k] + CONFIDENCE[k + 1]) / 2
                found.append((middle, block.ratio(here & (cells % 2 == 0), here), count))
        return found

    def confusion(self) -> tuple[np.ndarray, np.ndarray]:
        """Noisy counts by true class and predicted class, and the deviations of their noise."""
        table, K = self._block("confusion"), self.layout.classes
        return table.sums.reshape(K, K), np.sqrt(table.variances).reshape(K, K)
